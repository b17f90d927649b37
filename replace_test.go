package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

func TestReplace(t *testing.T) {
	old := there(provider.Running, "i-1")
	busy := failure("delete", provider.ErrTransient)
	out := func(s *proxy.Status) {
		s.Instance.Retiring = "i-1"
		becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, "")
	}
	cannot := func(message string) func(*proxy.Status) {
		return func(s *proxy.Status) {
			is(s, t0, proxy.Provisioned, proxy.True, ReasonCreated, message)
			s.Instance.Attempt = 0 // it has run for an hour
		}
	}
	withLeases := func(n int) func(*world) {
		return func(w *world) { w.reconciler.Leases = leases(n) }
	}
	succeeds := func(p *proxy.Proxy) { p.Status.Instance.Retiring = "i-0" }
	refusesZones := func(w *world) {
		w.cloud.plan = func(r provider.Request) error {
			if r.Placement.Zone != "" {
				return provider.Unsupported("plan", "placement.zone")
			}
			return nil
		}
	}
	runRows(t, []row{
		{
			name:   "an edit: it is closed to new leases first, and nothing else happens",
			record: ready(time.Hour, otherPort),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: out,
			after:  time.Second,
		},
		{
			name:   "a rotated Secret is an edit",
			record: ready(time.Hour),
			given: all(has(old), func(w *world) {
				w.store.inputs = func() (proxy.Inputs, error) { return proxy.Inputs{Password: secret.New("new")}, nil }
			}),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: out,
			after:  time.Second,
		},
		{
			name: "what shapes no instance replaces none",
			record: ready(time.Minute, func(p *proxy.Proxy) {
				p.Spec.MaxLeases, p.Spec.Attributes, p.Spec.HealthCheck.URL = 99, map[string]string{"a": "b"}, "http://x.test/"
			}),
			given: has(old),
			calls: []string{"get cloud/a"},
			after: time.Minute,
		},
		{
			name:   "the mark of the instance counts, whatever the status says",
			record: ready(time.Hour, otherPort, func(p *proxy.Proxy) { p.Status.Instance.Hash = hasher.Hash(p.UID, p.Spec, proxy.Inputs{}) }),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: out,
			after:  time.Second,
		},
		{
			name:   "one that is not healthy yet is closed first as well",
			record: running(time.Hour, otherPort),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: out,
			after:  time.Second,
		},
		{
			name:   "closed, no lease open: the incarnation is deleted, after a write",
			record: retiring(time.Second, otherPort),
			given:  all(has(old), withLeases(0)),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: left,
			after:  5 * time.Second,
		},
		{
			name:   "deleted, and still there: again, after a write that compares",
			record: retiring(time.Second, otherPort, func(p *proxy.Proxy) { left(&p.Status) }),
			given:  has(old),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1"},
			after:  5 * time.Second,
		},
		{
			name:   "leases are open: waited for, and the condition says until when",
			record: retiring(time.Minute, otherPort),
			given:  all(has(old), withLeases(2)),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: drains("2000-01-01T00:04:00Z"),
			after:  5 * time.Second,
		},
		{
			name:   "none is open, and one could still be granted: waited for as well",
			record: retiring(time.Minute, otherPort),
			given:  all(has(old), func(w *world) { w.reconciler.Leases = offering{} }),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: drains("2000-01-01T00:04:00Z"),
			after:  5 * time.Second,
		},
		{
			name:   "it says so once",
			record: retiring(time.Minute, otherPort, func(p *proxy.Proxy) { drains("2000-01-01T00:04:00Z")(&p.Status) }),
			given:  all(has(old), withLeases(1)),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name: "the pass before could not ask the provider: waited for as before, and until then",
			record: retiring(time.Minute, otherPort, func(p *proxy.Proxy) {
				is(&p.Status, t0, proxy.Provisioned, proxy.False, ReasonProviderError, "get: no luck")
				p.Status.Phase = proxy.Provisioning
			}),
			given: all(has(old), withLeases(2)),
			calls: []string{"get cloud/a", "status Replacing Replacing"},
			change: func(s *proxy.Status) {
				drains("2000-01-01T00:04:00Z")(s)
				s.Phase = proxy.Replacing
			},
			after: 5 * time.Second,
		},
		{
			name:   "but no longer than Drain",
			record: retiring(5*time.Minute-2*time.Second, otherPort),
			given:  all(has(old), withLeases(2)),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: drains("2000-01-01T00:00:02Z"),
			after:  2 * time.Second,
		},
		{
			name:   "Drain is over",
			record: retiring(5*time.Minute, otherPort),
			given:  all(has(old), withLeases(2)),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: left,
			after:  5 * time.Second,
		},
		{
			name:   "the delete fails",
			record: retiring(time.Minute, otherPort),
			given:  all(has(old), deleteFails(busy)),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "delete: no luck")
			},
			err: busy,
		},
		{
			name:   "it terminates: no create meanwhile",
			record: retiring(time.Minute, otherPort),
			given:  has(there(provider.Terminating, "i-1")),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: left,
			after:  5 * time.Second,
		},
		{
			name:   "it is gone, and the successor is created",
			record: retiring(time.Minute, otherPort, proven),
			given:  createAnswers(there(provider.Provisioning, "i-2", otherPort), nil),
			calls:  created(),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second, otherPort)(s)
				s.Instance.Incarnation = "i-2" // and i-1 stays retiring
			},
			after: 5 * time.Second,
		},
		{
			name:   "the successor runs: others still wait",
			record: made(time.Minute, succeeds),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				s.Instance.Host, s.Instance.Port = "192.0.2.1", 3128
				becomes(s, proxy.Probing, proxy.True, ReasonCreated, "")
			},
			after: time.Minute,
		},
		{
			name:   "the successor is not healthy: others still wait",
			record: running(time.Minute, succeeds),
			given:  all(has(old), judged(health.Snapshot{Verdict: health.Unhealthy})),
			calls:  []string{"get cloud/a", "status Unhealthy Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Healthy, proxy.False, ReasonProbeFailed, "")
				s.Phase = proxy.Unhealthy
			},
			after: time.Minute,
		},
		{
			name:   "the successor is Ready: the next one may go",
			record: running(time.Minute, succeeds),
			given:  all(has(old), judged(health.Snapshot{Verdict: health.Healthy})),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
				s.Phase, s.Instance.Retiring = proxy.Ready, ""
			},
			after: time.Minute,
		},
		{
			name:   "edited back before it was deleted: it serves again, with the verdict it had",
			record: retiring(time.Minute),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Ready, proxy.True, ReasonCreated, "")
				s.Instance.Retiring, s.Instance.Attempt = "", 0
			},
			after: time.Minute,
		},
		{
			name:   "edited back without a verdict: it is not out any more, and others need not wait for it",
			record: retiring(time.Minute, func(p *proxy.Proxy) { left(&p.Status) }),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Probing, proxy.True, ReasonCreated, "")
				s.Instance.Host, s.Instance.Port = "192.0.2.1", 3128
				s.Instance.Retiring, s.Instance.Attempt = "", 0
			},
			after: time.Minute,
		},
		{
			name:   "the successor is edited before it is Ready: it keeps its turn",
			record: running(time.Minute, succeeds, otherPort),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: out,
			after:  time.Second,
		},
		{
			name:   "edited to what cannot be fulfilled before it was deleted: it serves again",
			record: retiring(time.Minute, noProvider),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Ready, proxy.True, ReasonCreated,
					`the edit is not applied: UnknownProvider: plan: no provider "nowhere" is configured`)
				s.Instance.Retiring, s.Instance.Attempt = "", 0
			},
			after: time.Minute,
		},
		{
			name:   "one that does not run is deleted at once",
			record: made(time.Hour, otherPort),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: func(s *proxy.Status) { becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, "") },
			after:  5 * time.Second,
		},
		{
			name:   "so is one that stopped",
			record: ready(time.Hour, otherPort),
			given:  has(there(provider.Stopped, "i-1")),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "another provider: the old one deletes it",
			record: retiring(time.Minute, otherProvider),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: left,
			after:  5 * time.Second,
		},

		// A typo deletes nothing.
		{
			name:   "an unknown provider",
			record: ready(time.Hour, noProvider),
			given:  has(old),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: cannot(`the edit is not applied: UnknownProvider: plan: no provider "nowhere" is configured`),
			after:  time.Minute,
		},
		{
			name:   "a plan that is refused",
			record: ready(time.Hour, otherZone),
			given:  all(has(old), refusesZones),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: cannot("the edit is not applied: UnsupportedField: plan: placement.zone cannot be honoured by this provider; remove it"),
			after:  time.Minute,
		},
		{
			name:   "a plan that is refused, with another port: it listens where it did",
			record: ready(time.Hour, otherZone, otherPort),
			given:  all(has(old), refusesZones),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: cannot("the edit is not applied: UnsupportedField: plan: placement.zone cannot be honoured by this provider; remove it"),
			after:  time.Minute,
		},
		{
			name:   "for one that is on its way",
			record: made(time.Minute, noProvider),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning,
					`the edit is not applied: UnknownProvider: plan: no provider "nowhere" is configured`)
			},
			after: 5 * time.Second,
		},
		{
			name:   "for one that stopped",
			record: ready(time.Minute, noProvider),
			given:  has(there(provider.Stopped, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Stopped"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonStopped,
					`the edit is not applied: UnknownProvider: plan: no provider "nowhere" is configured`)
			},
			after: 5 * time.Second,
		},
		{
			name:   "references that are not resolved: what was closed stays, and is not deleted",
			record: retiring(time.Minute, otherPort),
			given:  all(has(old), unresolved),
			calls:  []string{"status Replacing Replacing"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},
	})
}

// TestADrainOutlastsFailures: whatever the provider answers in between, an instance that is to be replaced is there for its
// open leases until the drain ends, which is no later either. Meanwhile the condition says what fails.
func TestADrainOutlastsFailures(t *testing.T) {
	for class, reason := range map[provider.Class]string{
		provider.ErrTransient: ReasonProviderError, provider.ErrPermanent: ReasonPermanentError, provider.ErrQuotaExceeded: ReasonQuotaExceeded,
	} {
		t.Run(string(class), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, ready(time.Hour, otherPort))
				w.reconciler.Leases = leases(1)
				pass := func(get func(*world)) []string {
					get(w)
					_, _ = w.reconcile()
					return w.journal.take()
				}
				works, fails := has(there(provider.Running, "i-1")), getFails(failure("get", class))
				pass(works)
				for range 29 {
					time.Sleep(5 * time.Second)
					pass(fails)
					if c, _ := w.record(t).Status.Condition(proxy.Provisioned); c.Reason != reason {
						t.Errorf("the condition says %s", c.Reason)
					}
					time.Sleep(5 * time.Second)
					if calls := pass(works); slices.Contains(calls, "delete cloud/a i-1") {
						t.Fatalf("deleted after %v with a lease open", time.Since(t0))
					}
					if c, _ := w.record(t).Status.Condition(proxy.Provisioned); c.Reason != ReasonReplacing {
						t.Errorf("asked again, the condition says %s", c.Reason)
					}
				}
				time.Sleep(5*time.Minute - time.Since(t0))
				if calls := pass(works); !slices.Contains(calls, "delete cloud/a i-1") {
					t.Errorf("the drain is over: %q", calls)
				}
			})
		})
	}
}

// drains is what a status becomes that waits for open leases.
func drains(until string) func(*proxy.Status) {
	return func(s *proxy.Status) {
		c, _ := s.Condition(proxy.Provisioned)
		is(s, c.LastTransitionTime.Std(), proxy.Provisioned, proxy.False, ReasonReplacing,
			"waits for its open leases, until "+until+" at the latest")
	}
}

// named returns the record under another name.
func named(name string, p *proxy.Proxy) *proxy.Proxy {
	p.Name, p.UID = name, "uid-"+name
	return p
}

// many returns n records, each by make.
func many(n int, make func() *proxy.Proxy) (records []*proxy.Proxy) {
	for i := range n {
		records = append(records, named(fmt.Sprintf("p%02d", i), make()))
	}
	return records
}

// TestPace is about who may go out for a replacement, depending on the others of the provider.
func TestPace(t *testing.T) {
	serving := func() *proxy.Proxy { return ready(time.Hour) }
	out := func() *proxy.Proxy { return retiring(time.Minute) }
	join := func(lists ...[]*proxy.Proxy) (records []*proxy.Proxy) {
		for _, l := range lists {
			for _, p := range l {
				records = append(records, named(fmt.Sprintf("p%02d", len(records)), p))
			}
		}
		return records
	}
	tests := []struct {
		name   string
		others []*proxy.Proxy
		out    int // what keeps it from its turn: so many of as many that may be
	}{
		{"alone", nil, 0},
		{"none is out", many(8, serving), 0},
		{"one of nine is out", join(many(7, serving), many(1, out)), 1},
		{"one of ten is out", join(many(8, serving), many(1, out)), 0},
		{"two of ten are out", join(many(7, serving), many(2, out)), 2},
		{"two of fourteen are out", join(many(11, serving), many(2, out)), 2},
		{"two of fifteen are out", join(many(12, serving), many(2, out)), 0},
		{"a successor is not Ready yet", join(many(7, serving), many(1, func() *proxy.Proxy {
			return running(time.Minute, func(p *proxy.Proxy) { p.Status.Instance.Retiring = "i-0" })
		})), 1},
		{"one is out that wants the same, and has nothing", join(many(7, serving), many(1, func() *proxy.Proxy {
			return retiring(time.Minute, proven)
		})), 1},
		{"one of another provider is out", join(many(7, serving), many(1, func() *proxy.Proxy {
			return retiring(time.Minute, otherProvider, func(p *proxy.Proxy) { p.Status.Instance.Provider = "other" })
		})), 0},
		{"one is out that moves to another provider", join(many(7, serving), many(1, func() *proxy.Proxy {
			return retiring(time.Minute, otherProvider)
		})), 1},
		{"those of another provider do not count", join(many(7, serving), many(1, out), many(10, func() *proxy.Proxy {
			return ready(time.Hour, otherProvider, func(p *proxy.Proxy) { p.Status.Instance.Provider = "other" })
		})), 1},
		{"External ones do not count", join(many(7, serving), many(1, out), many(10, func() *proxy.Proxy {
			return outside(time.Minute)
		})), 1},
		{"one is out that is being deleted", join(many(7, serving), many(1, func() *proxy.Proxy {
			return retiring(time.Minute, deleting)
		})), 0},
		{"those that are being deleted do not count", join(many(7, serving), many(1, out), many(10, func() *proxy.Proxy {
			return ready(time.Hour, deleting)
		})), 1},
	}
	for _, test := range tests {
		for name, record := range map[string]*proxy.Proxy{"Ready": ready(time.Minute, otherPort), "Probing": running(time.Minute, otherPort)} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, append([]*proxy.Proxy{record}, test.others...)...)
					has(there(provider.Running, "i-1"))(w)
					res, err := w.reconcile()
					if err != nil {
						t.Fatal(err)
					}
					want, after := record.Status.Clone(), 5*time.Second
					calls := []string{"get cloud/a", "status " + name + " Created"}
					if test.out == 0 {
						want.Instance.Retiring, after = "i-1", time.Second
						becomes(&want, proxy.Replacing, proxy.False, ReasonReplacing, "")
						calls[1] = "status Replacing Replacing"
					} else {
						is(&want, t0, proxy.Provisioned, proxy.True, ReasonCreated, fmt.Sprintf(
							`replacement waits for its turn: %d of at most %d proxies of provider "cloud" are out for theirs`, test.out, test.out))
						if name == "Ready" {
							calls = calls[1:] // there may be thousands in the queue
						}
					}
					if diff := cmp.Diff(calls, w.journal.take()); diff != "" {
						t.Errorf("calls (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(want, w.record(t).Status); diff != "" {
						t.Errorf("status (-want +got):\n%s", diff)
					}
					if res.After != after {
						t.Errorf("looks again after %v, want %v", res.After, after)
					}
				})
			})
		}
	}
}

// TestPaceWaiting: who waits for its turn is still judged by the probes.
func TestPaceWaiting(t *testing.T) {
	w := newWorld(t, ready(time.Minute, otherPort), named("out", retiring(time.Minute)))
	judged(health.Snapshot{Verdict: health.Unhealthy, Reported: health.Result{Party: health.PartyDial, Message: "refused"}})(w)
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if s := w.record(t).Status; s.Phase != proxy.Unhealthy {
		t.Errorf("phase %s, want Unhealthy", s.Phase)
	}
}

// TestPaceNotice: what those that wait are told is told anew at most once a minute, for each of them has it in its status.
func TestPaceNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newWorld(t, ready(time.Minute, otherPort), named("a", retiring(time.Minute)), named("b", ready(time.Hour))), &paper{}
		w.reconciler.Logger = slog.New(slog.NewTextHandler(log, nil))
		told := func() string {
			t.Helper()
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			c, _ := w.record(t).Status.Condition(proxy.Provisioned)
			return c.Message
		}
		first := told()
		b, err := w.store.Get(t.Context(), proxy.Key{Namespace: "default", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		b.Status.Instance.Retiring = "i-1" // as another leader may have it
		if _, err := w.store.UpdateStatus(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		w.journal.take()
		time.Sleep(59 * time.Second)
		if now := told(); now != first || !strings.Contains(now, "1 of at most 1") || w.journal.take() != nil {
			t.Errorf("told %q, then %q", first, now)
		}
		time.Sleep(time.Second)
		if now := told(); !strings.Contains(now, "2 of at most 1") {
			t.Errorf("told %q after a minute", now)
		}
		if lines := log.said(); lines != nil {
			t.Errorf("to wait is nothing that anybody would act on: %q", lines)
		}
	})
}

// uncountable is a store whose records cannot be listed.
type uncountable struct{ *ledger }

var errUncountable = errors.New("the list is too long")

func (uncountable) List(context.Context) ([]*proxy.Proxy, error) { return nil, errUncountable }

// TestPaceWithoutCount: who cannot count the others takes nothing out of service, and makes nothing that has a bound.
func TestPaceWithoutCount(t *testing.T) {
	for name, record := range map[string]*proxy.Proxy{"replace": ready(time.Minute, otherPort), "create": declared()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, record)
			w.reconciler.Store, w.reconciler.MaxInstances = uncountable{w.store}, map[string]int{"cloud": 5}
			has(there(provider.Running, "i-1"))(w)
			if _, err := w.reconcile(); !errors.Is(err, errUncountable) {
				t.Errorf("error %v", err)
			}
			if s := w.record(t).Status; s.Instance != record.Status.Instance {
				t.Errorf("instance %+v", s.Instance)
			}
		})
	}
}

// TestMaxInstances is about how many instances a provider may have.
func TestMaxInstances(t *testing.T) {
	full := func(s *proxy.Status) {
		s.Format, s.ObservedGeneration = proxy.StatusFormat, 3
		is(s, t0, proxy.Resolved, proxy.True, ReasonResolved, "")
		becomes(s, proxy.Pending, proxy.False, ReasonQuotaExceeded, `MaxInstances: provider "cloud" has all 2 instances that it may have`)
	}
	tests := []struct {
		name   string
		record *proxy.Proxy
		others []*proxy.Proxy
		full   bool
	}{
		{"room for one more", declared(), []*proxy.Proxy{ready(time.Hour)}, false},
		{"full", declared(), []*proxy.Proxy{ready(time.Hour), ready(time.Hour)}, true},
		{"an intent counts", declared(), []*proxy.Proxy{ready(time.Hour), planned(time.Minute)}, true},
		{"what is being deleted counts", declared(), []*proxy.Proxy{ready(time.Hour), made(time.Hour, deleting)}, true},
		{"what waits for its own does not", declared(), []*proxy.Proxy{ready(time.Hour), declared()}, false},
		{"what other providers have does not", declared(), []*proxy.Proxy{ready(time.Hour), ready(time.Hour,
			func(p *proxy.Proxy) { p.Status.Instance.Provider = "other" })}, false},
		{"what became External counts until it is gone", declared(), []*proxy.Proxy{ready(time.Hour), ready(time.Hour, external)}, true},
		{"what moves away counts for the one that has it", declared(), []*proxy.Proxy{ready(time.Hour), ready(time.Hour, otherProvider)}, true},
		{"without a bound", declared(otherProvider), []*proxy.Proxy{ready(time.Hour), ready(time.Hour)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, p := range test.others {
					named(fmt.Sprintf("p%02d", i), p)
				}
				w := newWorld(t, append([]*proxy.Proxy{test.record}, test.others...)...)
				w.reconciler.MaxInstances = map[string]int{"cloud": 2}
				res, err := w.reconcile()
				if err != nil {
					t.Fatal(err)
				}
				if !test.full {
					if calls := w.journal.take(); len(calls) != 3 || !strings.HasPrefix(calls[1], "create") {
						t.Errorf("calls %q, want an intent, a create and a status", calls)
					}
					return
				}
				if diff := cmp.Diff([]string{"status Pending QuotaExceeded"}, w.journal.take()); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				want := proxy.Status{}
				full(&want)
				if diff := cmp.Diff(want, w.record(t).Status); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				if res.After != 5*time.Minute {
					t.Errorf("looks again after %v", res.After)
				}
			})
		})
	}
}

// TestManyWorkers runs many passes at once over many proxies, first to make them and then to replace them all, and watches
// after each write that no more have an instance, or are out, than may.
func TestManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const proxies, most, workers = 30, 25, 8
		var records []*proxy.Proxy
		for i := range proxies {
			records = append(records, named(fmt.Sprintf("p%02d", i), declared()))
		}
		w := newWorld(t, records...)
		crowd := &crowd{ledger: w.store, t: t, instances: most, out: most / 5}
		backend := &machines{made: map[string]provider.Instance{}}
		r := w.reconciler
		r.Store, r.MaxInstances = crowd, map[string]int{"cloud": most}
		r.Providers = map[string]provider.Provider{"cloud": delayed{backend, provider.Delays{Call: time.Minute}}}
		r.Health = everybodyHealthy{}
		step := func() {
			var group sync.WaitGroup
			keys := make(chan proxy.Key)
			for range workers {
				group.Go(func() {
					for k := range keys {
						if _, err := r.Reconcile(t.Context(), k); err != nil {
							t.Error(err)
						}
					}
				})
			}
			for _, p := range records {
				keys <- p.Key
			}
			close(keys)
			group.Wait()
			time.Sleep(2 * time.Second)
		}
		for range 5 {
			step()
		}
		if n := crowd.count(func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Ready }); n != most {
			t.Fatalf("%d are Ready, want %d", n, most)
		}
		crowd.out = proxies / 5 // all of them are this provider's
		for _, p := range records {
			w.edit(t, p.Key, func(s *proxy.Spec) { s.Port = 8080 })
		}
		for range 200 {
			step()
		}
		if n := crowd.count(func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Ready && p.Status.Instance.Port == 8080 }); n != most {
			t.Errorf("%d were replaced, want %d", n, most)
		}
		if crowd.mostOut != crowd.out {
			t.Errorf("at most %d were out at once, want as many as may be, %d", crowd.mostOut, crowd.out)
		}
	})
}

// crowd is a store that counts after each write of a status.
type crowd struct {
	*ledger
	t              *testing.T
	instances, out int // as many as may be

	mu      sync.Mutex
	mostOut int
}

func (c *crowd) count(is func(*proxy.Proxy) bool) (n int) {
	list, _ := c.List(context.Background())
	for _, p := range list {
		if is(p) {
			n++
		}
	}
	return n
}

func (c *crowd) UpdateStatus(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	p, err := c.Memory.UpdateStatus(ctx, p)
	if n := c.count(func(p *proxy.Proxy) bool { return p.Status.Instance.ID != "" }); n > c.instances {
		c.t.Errorf("%d have an instance, and no more than %d may", n, c.instances)
	}
	n := c.count(func(p *proxy.Proxy) bool { return p.Status.Instance.Retiring != "" })
	if n > c.out {
		c.t.Errorf("%d are out, and no more than %d may", n, c.out)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mostOut = max(c.mostOut, n)
	return p, err
}

// machines is a provider that does at once what it is told, and can be used concurrently.
type machines struct {
	mu   sync.Mutex
	n    int
	made map[string]provider.Instance
}

func (m *machines) Plan(r provider.Request) (string, error) { return r.Name, nil }

func (m *machines) Create(_ context.Context, r provider.Request) (provider.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.made[r.Name]; !there {
		m.n++
		m.made[r.Name] = provider.Instance{ID: r.Name, Incarnation: fmt.Sprint(m.n), Marks: r.Marks, State: provider.Running,
			Host: "192.0.2.1", Port: r.Port}
	}
	return m.made[r.Name], nil
}

func (m *machines) Get(_ context.Context, ref provider.Ref) (provider.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, there := m.made[ref.ID]
	if !there {
		return in, failure("get", provider.ErrNotFound)
	}
	return in, nil
}

func (m *machines) Delete(_ context.Context, ref provider.Ref) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[ref.ID].Incarnation == ref.Incarnation {
		delete(m.made, ref.ID)
	}
	return nil
}

func (m *machines) List(context.Context) ([]provider.Instance, error) { return nil, nil }

// everybodyHealthy is a health engine without doubts.
type everybodyHealthy struct{}

func (everybodyHealthy) Snapshot(string, string) (health.Snapshot, bool) {
	return health.Snapshot{Verdict: health.Healthy}, true
}
