package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// tape records what a Recorder hears.
type tape struct {
	mu     sync.Mutex
	passes []string
	phases []string
	ready  []string
}

func (r *tape) Reconciled(provider, outcome string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes = append(r.passes, fmt.Sprintf("%q %s %v", provider, outcome, took))
}

func (r *tape) PhaseChanged(provider, from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phases = append(r.phases, fmt.Sprintf("%q %s > %s", provider, from, to))
}

func (r *tape) BecameReady(provider string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = append(r.ready, fmt.Sprintf("%q %v", provider, took))
}

// took3s makes each get of a provider take three seconds, or as long as its caller waits.
func took3s(w *world) {
	get := w.cloud.get
	w.cloud.get = func(ctx context.Context) (provider.Instance, error) {
		select {
		case <-ctx.Done():
			return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrCanceled}
		case <-time.After(3 * time.Second):
			return get(ctx)
		}
	}
}

func TestReconciledOutcomes(t *testing.T) {
	tests := []struct {
		name   string
		record *proxy.Proxy
		given  func(*world)
		want   []string
	}{
		{"all is well", ready(time.Minute), all(has(there(provider.Running, "i-1")), took3s), []string{`"cloud" ok 3s`}},
		{"a quota is no error", declared(), func(w *world) {
			w.cloud.create = func(context.Context, provider.Request) (provider.Instance, error) {
				return provider.Instance{}, failure("create", provider.ErrQuotaExceeded)
			}
		}, []string{`"cloud" ok 0s`}},
		{"the provider fails", ready(time.Minute), func(w *world) {
			w.cloud.get = func(context.Context) (provider.Instance, error) {
				return provider.Instance{}, failure("get", provider.ErrTransient)
			}
		}, []string{`"cloud" error 0s`}},
		{"somebody else was faster", made(time.Minute), all(has(there(provider.Running, "i-1")), func(w *world) {
			w.store.refuse = proxy.ErrConflict
		}), []string{`"cloud" conflict 0s`}},
		{"the caller gives up", ready(time.Minute), all(has(there(provider.Running, "i-1")), took3s, func(w *world) {
			time.AfterFunc(time.Second, w.cancel)
		}), []string{`"cloud" canceled 1s`}},
		{"the provider gives up by itself", ready(time.Minute), func(w *world) {
			w.cloud.get = func(context.Context) (provider.Instance, error) {
				return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrCanceled}
			}
		}, []string{`"cloud" error 0s`}},
		{"the provider is the one that has it", ready(time.Minute, otherProvider), has(there(provider.Running, "i-1")), []string{`"cloud" ok 0s`}},
		{"an endpoint has none", outside(time.Minute), func(*world) {}, []string{`"" ok 0s`}},
		{"a format that nobody here knows", ready(time.Minute, func(p *proxy.Proxy) { p.Status.Format = 99 }), func(*world) {}, []string{`"cloud" error 0s`}},
		{"the store cannot be read", ready(time.Minute), func(w *world) {
			w.reconciler.Store = unreadable{w.store, t0.Add(time.Minute)}
		}, []string{`"" error 0s`}},
		{"no record is no pass", named("another", ready(time.Minute)), func(*world) {}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, heard := newWorld(t, test.record), &tape{}
				w.reconciler.Recorder = heard
				test.given(w)
				_, err := w.reconcile()
				if diff := cmp.Diff(test.want, heard.passes); diff != "" {
					t.Errorf("the pass ended with %v (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

// TestPhaseChanged: each change that is stored is told once, and nothing else.
func TestPhaseChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, heard := newWorld(t, declared()), &tape{}
		w.reconciler.Recorder = heard
		pass := func(given func(*world), want ...string) {
			t.Helper()
			if given != nil {
				given(w)
			}
			heard.phases = nil
			_, _ = w.reconcile()
			if diff := cmp.Diff(want, heard.phases, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			time.Sleep(time.Second)
		}
		pass(func(w *world) { w.store.refuse = proxy.ErrConflict }) // what was not stored did not happen
		pass(func(w *world) { w.store.refuse = nil }, `"cloud" Pending > Provisioning`)
		pass(has(there(provider.Provisioning, "i-1")))
		pass(has(there(provider.Running, "i-1")), `"cloud" Provisioning > Probing`)
		pass(judged(health.Snapshot{Verdict: health.Healthy}), `"cloud" Probing > Ready`)
		pass(nil)
		pass(judged(health.Snapshot{Verdict: health.Unhealthy}), `"cloud" Ready > Unhealthy`)
		pass(judged(health.Snapshot{Verdict: health.Healthy}), `"cloud" Unhealthy > Ready`)
		w.edit(t, one, func(s *proxy.Spec) { s.Provider = "other" })
		pass(nil, `"cloud" Ready > Replacing`)
		if heard.ready != nil {
			t.Errorf("a record that does not know when it was declared: %q", heard.ready)
		}
	})
}

// TestBecameReady: a proxy is Ready for the first time once in its life.
func TestBecameReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := &tape{}
		sites := []*site{newSite(t, func(c *Config) { c.Recorder = heard })}
		restart := func() *site {
			last := sites[len(sites)-1]
			s := newSite(t, func(c *Config) {
				c.Recorder, c.Store, c.Providers = heard, last.store, map[string]provider.Provider{"memory": last.backend.Open("test")}
			})
			s.store, s.backend = last.store, last.backend
			sites = append(sites, s)
			return s
		}
		want := func(what string, ready ...string) {
			t.Helper()
			heard.mu.Lock()
			defer heard.mu.Unlock()
			if diff := cmp.Diff(ready, heard.ready, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			heard.ready = nil
		}
		s := sites[0]
		s.declare("one", proxy.Spec{Provider: "memory"})
		s.sicken("192.0.2.1:3128", true)
		time.Sleep(time.Minute) // before anybody looks at it
		s.run()
		s.until("one", "Unhealthy", 5*time.Minute, func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Unhealthy })
		want("Unhealthy")
		s.ends()

		s = restart().run()
		first := s.untilReady("one", 3128)
		since := first.Status.FirstReadyTime.Std().Sub(t0)
		if since < time.Minute || since > 4*time.Minute {
			t.Errorf("Ready for the first time after %v", since)
		}
		want("Ready, after a restart", fmt.Sprintf(`"memory" %v`, since))
		s.ends()

		s = restart().run()
		s.sicken("192.0.2.1:3128", true)
		s.until("one", "Unhealthy", 5*time.Minute, func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Unhealthy })
		s.sicken("192.0.2.1:3128", false)
		s.untilReady("one", 3128)
		want("Ready again, after a restart")

		time.Sleep(10 * time.Minute)
		s.declare("one", proxy.Spec{Provider: "memory", Port: 8080})
		again := s.untilReady("one", 8080)
		want("replaced")
		if again.Status.FirstReadyTime != first.Status.FirstReadyTime || again.Created != first.Created {
			t.Errorf("the times of a life are %v and %v, and were %v and %v", again.Created, again.Status.FirstReadyTime,
				first.Created, first.Status.FirstReadyTime)
		}

		time.Sleep(10 * time.Minute)
		if err := s.store.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		s.until("one", "gone", time.Minute, func(p *proxy.Proxy) bool { return p == nil })
		s.declare("one", proxy.Spec{Provider: "memory"})
		next := s.untilReady("one", 3128)
		want("the next life", fmt.Sprintf(`"memory" %v`, next.Status.FirstReadyTime.Std().Sub(next.Created.Std())))
		s.ends()
	})
}

// TestFirstReadyTimeOfOldRecords: records from before that time was kept do not get a false one.
func TestFirstReadyTimeOfOldRecords(t *testing.T) {
	for name, created := range map[string]proxy.Time{"created nobody knows when": {}, "Ready already": proxy.At(t0.Add(-time.Hour))} {
		synctest.Test(t, func(t *testing.T) {
			w, heard := newWorld(t, ready(time.Minute, func(p *proxy.Proxy) { p.Created = created })), &tape{}
			w.reconciler.Recorder = heard
			has(there(provider.Running, "i-1"))(w)
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if s := w.record(t).Status; !s.FirstReadyTime.IsZero() || heard.ready != nil || heard.phases != nil {
				t.Errorf("%s: first Ready %v, told %q and %q", name, s.FirstReadyTime, heard.ready, heard.phases)
			}
		})
	}
}
