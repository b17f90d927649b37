package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// explain explains the proxy one.
func (s *site) explain() Explanation {
	s.t.Helper()
	e, err := s.Explain(s.t.Context(), one)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil)
		s.secrets.put("login", map[string]string{"username": "planted-user", "password": "planted-password"})
		s.declare("one", proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials})
		if e := s.explain(); e.Pass != nil || e.Observed != nil || e.Probes != nil || e.Verdict != health.Unknown || e.Problem != nil || e.Outdated {
			t.Errorf("before it runs: %+v", e)
		}
		s.run()
		p := s.untilReady("one", 3128)
		var ids []string
		for _, target := range []string{"shop.test", "news.test"} {
			g, err := s.Leases().Acquire(t.Context(), lease.Request{Target: target})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, g.Leases[0].ID)
		}
		granted := time.Now()
		if err := s.Leases().Report(t.Context(), ids[0], lease.Report{Outcome: lease.Banned}); err != nil {
			t.Fatal(err)
		}
		s.sicken("192.0.2.1:3128", true)
		time.Sleep(50 * time.Second) // a probe or two, less than a threshold
		e := s.explain()
		if !e.At.Equal(time.Now()) || e.Proxy.UID != p.UID || e.Proxy.Status.Phase != proxy.Ready || e.Problem != nil || e.Outdated || !e.Backoff.IsZero() {
			t.Errorf("the proxy: %+v", e)
		}
		if o := e.Observed; o == nil || o.Err != nil || o.Instance.State != provider.Running || o.Instance.Incarnation != p.Status.Instance.Incarnation {
			t.Errorf("observed: %+v", o)
		}
		if len(e.Probes) < 2 || e.Probes[0].OK || e.Probes[0].Party != health.PartyDial || !e.Probes[len(e.Probes)-1].OK || e.Verdict != health.Healthy {
			t.Errorf("verdict %q of probes %+v", e.Verdict, e.Probes)
		}
		wantLeases := []lease.Open{{Target: "news.test", Granted: granted, Expires: granted.Add(5 * time.Minute)},
			{Target: "shop.test", Granted: granted, Expires: granted.Add(5 * time.Minute)}}
		if diff := cmp.Diff(wantLeases, e.Leases); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]lease.Cooldown{{Target: "shop.test", Until: granted.Add(10 * time.Minute)}}, e.Cooldowns); diff != "" {
			t.Errorf("cooldowns (-want +got):\n%s", diff)
		}
		if l := e.Pass; l == nil || l.Err != nil || l.At.After(e.At) || !l.Next.After(e.At) || l.Next.After(e.At.Add(time.Minute)) {
			t.Errorf("the last pass: %+v", l)
		}
		whole, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(whole), fmt.Sprintf("%+v %#v", e, e)} {
			for _, never := range append(ids, "planted") {
				if strings.Contains(text, never) {
					t.Errorf("it holds %q: %s", never, text)
				}
			}
		}
		if _, err := s.Explain(t.Context(), proxy.Key{Namespace: "default", Name: "nobody"}); !errors.Is(err, proxy.ErrNotFound) {
			t.Errorf("of an unknown name: %v", err)
		}
	})
}

// TestExplainEndpoint: nobody is asked about an endpoint, and only an event brings its next pass.
func TestExplainEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		s.declare("one", proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.9", Port: 3128}})
		s.untilReady("one", 3128)
		if e := s.explain(); e.Observed != nil || e.Problem != nil || e.Outdated || e.Pass == nil || !e.Pass.Next.IsZero() || len(e.Probes) == 0 {
			t.Errorf("%+v", e)
		}
	})
}

// TestExplainProblems is about what differs between what is there and what is declared.
func TestExplainProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		s.secrets.put("login", oldLogin)
		spec := proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials}
		s.declare("one", spec)
		s.untilReady("one", 3128)

		s.secrets.put("login", nil)
		time.Sleep(time.Second)
		if e := s.explain(); e.Outdated || e.Problem == nil || !strings.Contains(e.Problem.Error(), "login") || e.Pass.Err == nil {
			t.Errorf("without its Secret: %+v", e)
		}
		s.secrets.put("login", oldLogin)

		spec.Provider = "nowhere"
		s.declare("one", spec)
		time.Sleep(time.Second)
		if e := s.explain(); !e.Outdated || e.Problem == nil || !strings.Contains(e.Problem.Error(), `"nowhere"`) || e.Observed.Instance.State != provider.Running {
			t.Errorf("with a typo: %+v", e)
		}
	})
}

// TestExplainBackoff: an attempt that failed is put off, and an edit is an attempt at once.
func TestExplainBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil)
		p := failed(time.Second, 10*time.Minute, ReasonPermanentError, func(p *proxy.Proxy) { p.Spec.Provider, p.Status.Instance.Provider = "memory", "memory" })
		p.Status.Instance.Hash = s.reconciler.Hasher.Hash(p.UID, p.Spec, proxy.Inputs{})
		s.reconciler.Started = time.Time{} // no restart lies in between
		s.cfg.Store = proxy.NewMemory(proxy.MemoryConfig{Records: []proxy.Record{{Proxy: *p}}})
		if e := s.explain(); !e.Backoff.Equal(p.Status.Instance.Retry.Std()) || !errors.Is(e.Observed.Err, provider.ErrNotFound) {
			t.Errorf("backoff until %v and observed %+v, want until %v", e.Backoff, e.Observed, p.Status.Instance.Retry)
		}
		p.Spec.Port = 8080
		s.cfg.Store = proxy.NewMemory(proxy.MemoryConfig{Records: []proxy.Record{{Proxy: *p}}})
		if e := s.explain(); !e.Backoff.IsZero() {
			t.Errorf("after an edit: backoff until %v", e.Backoff)
		}
	})
}

// TestExplainOutdated: what counts is the mark of the instance that is there, and while nobody can say, what was written down.
func TestExplainOutdated(t *testing.T) {
	same := there(provider.Running, "i-1")
	other := there(provider.Running, "i-1", otherPort)
	tests := []struct {
		name    string
		record  *proxy.Proxy
		answers provider.Instance
		err     error
		want    bool
	}{
		{"as declared", ready(time.Minute), same, nil, false},
		{"edited", ready(time.Minute, otherPort), same, nil, true},
		{"of an attempt before the edit", ready(time.Minute), other, nil, true},
		{"edited back", ready(time.Minute, func(p *proxy.Proxy) { p.Status.Instance.Hash = other.Marks.Hash }), same, nil, false},
		{"edited, and the provider fails", ready(time.Minute, otherPort), same, failure("get", provider.ErrTransient), true},
		{"the provider fails", ready(time.Minute), other, failure("get", provider.ErrTransient), false},
		{"nothing was met yet", planned(time.Minute, otherPort), provider.Instance{}, failure("get", provider.ErrNotFound), false},
		{"on its way out", ready(time.Minute, otherPort, deleting), same, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cloud{name: "cloud", journal: &journal{}, get: func(context.Context) (provider.Instance, error) { return test.answers, test.err }}
				s := newSite(t, func(cfg *Config) {
					cfg.Store = proxy.NewMemory(proxy.MemoryConfig{Records: []proxy.Record{{Proxy: *test.record}}})
					cfg.Providers["cloud"] = c
				})
				if e := s.explain(); e.Outdated != test.want || e.Problem != nil || !errors.Is(e.Observed.Err, test.err) {
					t.Errorf("outdated %v, want %v: %+v", e.Outdated, test.want, e)
				}
			})
		})
	}
}

// deaf is a provider whose Get hears nobody.
type deaf struct {
	provider.Provider
	mu   sync.Mutex
	wait chan struct{} // Get returns when it is closed; nil: at once
}

func (d *deaf) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	d.mu.Lock()
	wait := d.wait
	d.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return d.Provider.Get(ctx, ref)
}

// TestExplainHangs: a provider that does not answer costs an explanation five seconds and nothing else, and explanations do
// not pile up at it.
func TestExplainHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d *deaf
		s := newSite(t, func(c *Config) {
			d = &deaf{Provider: c.Providers["memory"]}
			c.Providers["memory"] = d
		}).run()
		s.declare("one", proxy.Spec{Provider: "memory"})
		s.untilReady("one", 3128)
		wait := make(chan struct{})
		d.mu.Lock()
		d.wait = wait
		d.mu.Unlock()
		for i := range 6 {
			began := time.Now()
			e := s.explain()
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("explanation %d took %v", i, took)
			}
			want := "has not answered within 5s"
			if i >= 3 {
				want = "has not answered earlier calls"
			}
			if e.Observed.Err == nil || !strings.Contains(e.Observed.Err.Error(), want) {
				t.Errorf("explanation %d: observed %v, want that it %s", i, e.Observed.Err, want)
			}
			if e.Pass == nil || len(e.Probes) == 0 || e.Verdict != health.Healthy {
				t.Errorf("explanation %d lacks the rest: %+v", i, e)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := s.Explain(ctx, one); err != nil || time.Since(began) != time.Second {
			t.Errorf("a caller that gives up is let go after %v: %v", time.Since(began), err)
		}
		d.mu.Lock()
		d.wait = nil
		d.mu.Unlock()
		close(wait)
		synctest.Wait()
		if e := s.explain(); e.Observed.Err != nil {
			t.Errorf("observed, when it answers again: %v", e.Observed.Err)
		}
	})
}

// TestExplainUnknownProvider: an instance whose provider left the configuration.
func TestExplainUnknownProvider(t *testing.T) {
	s := newSite(t, nil)
	p := ready(time.Minute)
	s.cfg.Store = proxy.NewMemory(proxy.MemoryConfig{Records: []proxy.Record{{Proxy: *p}}})
	if e := s.explain(); e.Observed == nil || e.Observed.Err == nil || !strings.Contains(e.Observed.Err.Error(), `"cloud"`) || e.Problem == nil {
		t.Errorf("%+v", e)
	}
}
