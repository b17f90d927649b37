// Package storetest holds the tests that every [proxy.Store] and [proxy.Declarer] passes. The test of a store is
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: ..., Reopen: ...})
//	}
//
// A store may answer Get, List and Watch out of a cache: where the contract lets an answer lag, the tests wait for it.
package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/proxy"
)

// Store is what is tested: both contracts over the same records.
type Store interface {
	proxy.Store
	proxy.Declarer
}

// SecretWriter changes the Secrets that a store resolves references in.
type SecretWriter interface {
	// Set makes a Secret or replaces the one of that name.
	Set(namespace, name string, s proxy.Secret)
	// Remove takes a Secret away.
	Remove(namespace, name string)
}

// Subject is a store under test, and its Secrets.
type Subject struct {
	Store   Store
	Secrets SecretWriter
}

// Harness makes what is tested. The cases use the namespaces crawl and other.
type Harness struct {
	// New returns a store without records or Secrets that lasts until t ends.
	New func(t testing.TB) Subject
	// Reopen ends a store and opens what it kept again, as a restart of the process does; Secrets may be new. Defaults to
	// none: then what is kept over a restart is not tested.
	Reopen func(t testing.TB, s Subject) Subject
}

// Run tests a store: each case in a subtest of its own, on a store of its own. What a case that fails is about is logged
// with it.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if c.restarts && h.Reopen == nil {
				t.Skip("the harness has no Reopen")
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(c.explanation)
				}
			})
			c.run(newFixture(t, h))
		})
	}
}

// testCase is one promise of the contracts.
type testCase struct {
	name        string
	explanation string
	run         func(f *fixture)
	restarts    bool
}

func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{declareCases, updateCases, deleteCases, readCases, watchCases, restartCases} {
		all = append(all, some...)
	}
	return all
}

// patience is how long a test waits for what a cache may show late.
const patience = 10 * time.Second

// fixture is a store under test with the steps that the cases are made of. A step that fails ends its case.
type fixture struct {
	testing.TB
	Subject
	harness Harness
}

func newFixture(t testing.TB, h Harness) *fixture { //nolint:thelper // t is kept
	return &fixture{TB: t, Subject: h.New(t), harness: h}
}

// The keys and the source that most cases use.
const source = "storetest"

func key(name string) proxy.Key { return proxy.Key{Namespace: "crawl", Name: name} }

// declaration is a Managed proxy that refers to two Secrets.
func declaration() proxy.Declaration {
	return proxy.Declaration{
		Annotations: map[string]string{"team": "search"},
		Spec: proxy.Spec{
			Provider:    "lab",
			Placement:   proxy.Placement{Zone: "a", DiskSizeGb: 10},
			CloudInit:   &proxy.CloudInit{SecretRef: &proxy.SecretKeyRef{Name: "init", Key: "user-data"}},
			Credentials: &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "login"}},
			Attributes:  map[string]string{"region": "eu"},
			HealthCheck: proxy.HealthCheck{Timeout: proxy.Duration(5 * time.Second), ExpectedStatus: []int32{200}, TLS: &proxy.TLS{ServerName: "t"}},
		},
	}
}

// status is one with something in each part.
func status() proxy.Status {
	at := proxy.At(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	s := proxy.Status{
		Format: proxy.StatusFormat, Phase: proxy.Ready, LatencyMillis: 12, LastHealthCheckTime: at, FirstReadyTime: at,
		ObservedGeneration: 1,
		Instance: proxy.Instance{
			Provider: "lab", ID: "a/p-1", Incarnation: "i-1", Host: "192.0.2.1", Port: 3128, Retiring: "i-0",
			Hash: "v1-00", Attempt: 2, Planned: at, Retry: at, Asked: "now",
		},
	}
	s.SetCondition(proxy.Condition{Type: proxy.Healthy, Status: proxy.True, Reason: "Probed", Message: "204", LastTransitionTime: at})
	return s
}

// put declares a proxy and waits until the store shows it.
func (f *fixture) put(k proxy.Key, d proxy.Declaration) *proxy.Proxy {
	f.Helper()
	p, err := f.Store.Put(f.Context(), k, d, source)
	if err != nil {
		f.Fatalf("Put %v: %v", k, err)
	}
	return f.shown(p)
}

// shown waits until Get returns p in the version at hand.
func (f *fixture) shown(p *proxy.Proxy) *proxy.Proxy {
	f.Helper()
	f.await(fmt.Sprintf("Get shows %v in version %s", p.Key, p.Version), func() bool {
		got, err := f.Store.Get(f.Context(), p.Key)
		return err == nil && got.Version == p.Version
	})
	return p
}

// gone waits until the store shows no record of a key.
func (f *fixture) gone(k proxy.Key) {
	f.Helper()
	f.await(fmt.Sprintf("%v is gone", k), func() bool {
		_, err := f.Store.Get(f.Context(), k)
		return errors.Is(err, proxy.ErrNotFound)
	})
}

func (f *fixture) updateStatus(p *proxy.Proxy, change func(*proxy.Status)) *proxy.Proxy {
	f.Helper()
	q := p.Clone()
	change(&q.Status)
	got, err := f.Store.UpdateStatus(f.Context(), q)
	if err != nil {
		f.Fatalf("UpdateStatus %v: %v", p.Key, err)
	}
	return got
}

func (f *fixture) updateMeta(p *proxy.Proxy, change func(*proxy.Proxy)) *proxy.Proxy {
	f.Helper()
	q := p.Clone()
	change(q)
	got, err := f.Store.UpdateMeta(f.Context(), q)
	if err != nil {
		f.Fatalf("UpdateMeta %v: %v", p.Key, err)
	}
	return got
}

func (f *fixture) delete(k proxy.Key) {
	f.Helper()
	if err := f.Store.Delete(f.Context(), k); err != nil {
		f.Fatalf("Delete %v: %v", k, err)
	}
}

// terminating declares a proxy, gives it a finalizer and deletes it.
func (f *fixture) terminating(k proxy.Key) *proxy.Proxy {
	f.Helper()
	p := f.updateMeta(f.put(k, declaration()), func(p *proxy.Proxy) { p.Finalizer = true })
	f.delete(k)
	f.await(fmt.Sprintf("Get shows %v as being deleted", k), func() bool {
		got, err := f.Store.Get(f.Context(), k)
		if err == nil {
			p = got
		}
		return err == nil && got.Deleting
	})
	return p
}

// refused checks the error of a write, and that p is stored as before.
func (f *fixture) refused(what string, err, want error, p *proxy.Proxy) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: got error %v, want %v", what, err, want)
	}
	f.stored(p)
}

// stored checks that p is what is stored. A cache might not show what was written by mistake, so a write that changes
// nothing asks for the version too.
func (f *fixture) stored(p *proxy.Proxy) {
	f.Helper()
	got, err := f.Store.Get(f.Context(), p.Key)
	if err != nil {
		f.Fatalf("Get %v: %v", p.Key, err)
	}
	f.same("Get", p, got)
	got, err = f.Store.UpdateStatus(f.Context(), p.Clone())
	if err != nil {
		f.Fatalf("a write that changes nothing, from what must be stored: %v", err)
	}
	f.same("UpdateStatus that changes nothing", p, got)
}

// same compares records. Nothing and an empty list are the same.
func (f *fixture) same(what string, want, got *proxy.Proxy) {
	f.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		f.Fatalf("%s: -want +got:\n%s", what, diff)
	}
}

// await waits until something is so.
func (f *fixture) await(what string, so func() bool) {
	f.Helper()
	deadline := time.After(patience)
	for wait := 50 * time.Microsecond; !so(); wait = min(2*wait, 50*time.Millisecond) {
		select {
		case <-deadline:
			f.Fatalf("after %v it is not so that %s", patience, what)
		case <-time.After(wait):
		}
	}
}
