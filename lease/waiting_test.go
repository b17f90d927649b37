package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

// waiting is a request on its way.
type waiting struct {
	done  chan struct{} // closed when the rest is there
	grant lease.Grant
	err   error
	ended time.Time
}

// over says whether the request has its answer.
func (w *waiting) over() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// waits sends a request and goes on once it waits, or has its answer.
func (c crawler) waits(ctx context.Context, r lease.Request) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.grant, w.err = c.store.Acquire(ctx, r)
		w.ended = time.Now()
	}()
	synctest.Wait()
	return w
}

// leavesNoTrace checks that a store remembers nothing once its proxy is gone and all that ends has ended.
func (c crawler) leavesNoTrace(m *lease.Memory) {
	c.Helper()
	m.Remove("default/a")
	time.Sleep(2 * window)
	if n := m.Remembered(); n != 0 {
		c.Errorf("the store remembers %d things", n)
	}
}

// got checks that a request was granted a proxy at a moment.
func (c crawler) got(w *waiting, proxy string, at time.Time) lease.Lease {
	c.Helper()
	switch {
	case !w.over():
		c.Fatalf("it waits still, want a lease of %s", proxy)
	case w.err != nil:
		c.Fatalf("Acquire: %v, want a lease of %s", w.err, proxy)
	case w.grant.Leases[0].Proxy.Name != proxy || !w.ended.Equal(at):
		c.Fatalf("got %s at %v, want %s at %v", w.grant.Leases[0].Proxy.Name, w.ended, proxy, at)
	}
	return w.grant.Leases[0]
}

// stillWaits checks that a request has no answer yet.
func (c crawler) stillWaits(w *waiting) {
	c.Helper()
	if w.over() {
		c.Fatalf("it has ended with %v, %v; want it to wait", w.grant, w.err)
	}
}

var patient = lease.Request{Target: "shop", Wait: time.Hour}

// TestWaiting holds what every store that waits promises. Each row begins with a fresh store whose only proxy, a, has its
// only lease out, for the target "shop".
func TestWaiting(t *testing.T) {
	for _, promise := range []struct {
		name string
		keep func(c crawler, m *lease.Memory, out lease.Lease)
	}{
		{"a release ends the wait", func(c crawler, _ *lease.Memory, out lease.Lease) {
			w := c.waits(c.Context(), patient)
			c.stillWaits(w)
			c.releases(out)
			c.got(w, "a", time.Now())
		}},
		{"an expiry ends the wait, though nobody calls", func(c crawler, _ *lease.Memory, out lease.Lease) {
			w := c.waits(c.Context(), patient)
			time.Sleep(2 * ttl)
			c.got(w, "a", out.Expires)
		}},
		{"what comes free at once ends as many waits", func(c crawler, m *lease.Memory, out lease.Lease) {
			m.Set(proxy("b", 1))
			c.gets(forShop, "b")
			m.Set(proxy("c", 2))
			c.gets(forShop, "c")
			c.gets(forShop, "c")
			var all []*waiting
			for range 5 {
				all = append(all, c.waits(c.Context(), patient))
			}
			time.Sleep(ttl)
			for i, w := range all[:4] {
				if !w.over() || w.err != nil || !w.ended.Equal(out.Expires) {
					c.Errorf("%d: %v at %v, want a lease at %v", i, w.err, w.ended, out.Expires)
				}
			}
			c.stillWaits(all[4])
		}},
		{"a renewal moves the end of the wait", func(c crawler, _ *lease.Memory, out lease.Lease) {
			w := c.waits(c.Context(), patient)
			out = c.renews(out, 30*time.Minute)
			time.Sleep(2 * ttl)
			c.stillWaits(w)
			time.Sleep(30 * time.Minute)
			c.got(w, "a", out.Expires)
		}},
		{"a new proxy ends the wait", func(c crawler, m *lease.Memory, _ lease.Lease) {
			w := c.waits(c.Context(), patient)
			m.Set(proxy("b", 1))
			c.got(w, "b", time.Now())
		}},
		{"a recovery ends the wait", func(c crawler, m *lease.Memory, _ lease.Lease) {
			sick := proxy("b", 1)
			sick.Healthy = false
			m.Set(sick)
			w := c.waits(c.Context(), patient)
			c.stillWaits(w)
			m.Set(proxy("b", 1))
			c.got(w, "b", time.Now())
		}},
		{"more capacity ends the wait", func(c crawler, m *lease.Memory, _ lease.Lease) {
			w := c.waits(c.Context(), patient)
			m.Set(proxy("a", 2))
			c.got(w, "a", time.Now())
		}},
		{"the end of a cooldown ends the wait", func(c crawler, _ *lease.Memory, out lease.Lease) {
			c.reports(out, lease.Banned, "")
			c.releases(out)
			banned := time.Now()
			w := c.waits(c.Context(), patient)
			time.Sleep(2 * window)
			c.got(w, "a", banned.Add(window))
		}},
		{"the verdict of a trial ends the wait", func(c crawler, m *lease.Memory, out lease.Lease) {
			c.reports(out, lease.Banned, "")
			m.Set(proxy("a", 5))
			time.Sleep(window)
			trial := c.gets(forShop, "a")
			w := c.waits(c.Context(), patient)
			c.stillWaits(w)
			c.reports(trial, lease.OK, "")
			c.got(w, "a", time.Now())
		}},
		{"a changed attribute ends the wait", func(c crawler, m *lease.Memory, _ lease.Lease) {
			m.Set(proxy("b", 1))
			w := c.waits(c.Context(), lease.Request{Selector: map[string]string{"country": "nl"}, Wait: time.Hour})
			c.stillWaits(w)
			dutch := proxy("b", 1)
			dutch.Attributes = map[string]string{"country": "nl"}
			m.Set(dutch)
			c.got(w, "b", time.Now())
		}},
		{"first come, first served", func(c crawler, _ *lease.Memory, out lease.Lease) {
			first, second, third := c.waits(c.Context(), patient), c.waits(c.Context(), patient), c.waits(c.Context(), patient)
			c.releases(out)
			out = c.got(first, "a", time.Now())
			c.stillWaits(second)
			c.releases(out)
			out = c.got(second, "a", time.Now())
			c.stillWaits(third)
			c.releases(out)
			c.got(third, "a", time.Now())
		}},
		{"nobody passes those who wait", func(c crawler, _ *lease.Memory, out lease.Lease) {
			w := c.waits(c.Context(), patient)
			time.Sleep(time.Until(out.Expires) - 1)
			time.Sleep(1) // the very instant at which the proxy comes free
			_, err := c.store.Acquire(c.Context(), forShop)
			if _, refused := errors.AsType[*lease.NoMatch](err); !refused {
				c.Errorf("a newcomer got %v, want a refusal", err)
			}
			c.got(w, "a", out.Expires)
		}},
		{"who waits for another target is not in the way", func(c crawler, m *lease.Memory, out lease.Lease) {
			c.reports(out, lease.Banned, "")
			shop, news := c.waits(c.Context(), patient), c.waits(c.Context(), lease.Request{Target: "news", Wait: time.Hour})
			c.releases(out)
			c.stillWaits(shop)
			c.got(news, "a", time.Now())
		}},
		{"who waits for several is served when there are as many", func(c crawler, m *lease.Memory, out lease.Lease) {
			w := c.waits(c.Context(), lease.Request{Count: 2, Wait: time.Hour})
			m.Set(proxy("b", 1))
			c.stillWaits(w)
			c.releases(out)
			c.got(w, "a", time.Now())
			if len(w.grant.Leases) != 2 {
				c.Errorf("got %d leases, want 2", len(w.grant.Leases))
			}
		}},
		{"who wants several does not keep others from one", func(c crawler, m *lease.Memory, _ lease.Lease) {
			w := c.waits(c.Context(), lease.Request{Count: 2, Wait: time.Hour})
			m.Set(proxy("b", 1))
			c.gets(forShop, "b")
			c.stillWaits(w)
		}},
		{"a wait has an end, and its answer says why", func(c crawler, _ *lease.Memory, _ lease.Lease) {
			begun := time.Now()
			w := c.waits(c.Context(), lease.Request{Wait: time.Minute})
			time.Sleep(time.Hour)
			if !w.over() {
				c.Fatal("it waits for ever")
			}
			none, ok := errors.AsType[*lease.NoMatch](w.err)
			if !ok || !w.ended.Equal(begun.Add(time.Minute)) {
				c.Fatalf("it ended with %v after %v, want a NoMatch after a minute", w.err, w.ended.Sub(begun))
			}
			if d := cmp.Diff(&lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl - time.Minute}, none); d != "" {
				c.Errorf("numbers differ (-want +got):\n%s", d)
			}
		}},
		{"a canceled wait leaves no trace", func(c crawler, m *lease.Memory, out lease.Lease) {
			ctx, cancel := context.WithCancel(c.Context())
			w := c.waits(ctx, lease.Request{ID: "once", Selector: map[string]string{"a": "b"}, Wait: time.Hour})
			cancel()
			if !w.over() || !errors.Is(w.err, context.Canceled) {
				c.Errorf("it ended with %v, want %v", w.err, context.Canceled)
			}
			c.releases(out)
			c.leavesNoTrace(m)
		}},
		{"what is granted to one who has gone is given back", func(c crawler, _ *lease.Memory, out lease.Lease) {
			ctx, cancel := context.WithCancel(c.Context())
			w := c.waits(ctx, patient)
			cancel()
			c.releases(out) // in the same moment
			if !w.over() || w.err == nil {
				c.Errorf("a caller that has gone got %v", w.grant)
			}
			c.gets(forShop, "a")
		}},
		{"a request that is sent again while it waits is one request", func(c crawler, m *lease.Memory, out lease.Lease) {
			r := patient
			r.ID = "once"
			first, again := c.waits(c.Context(), r), c.waits(c.Context(), r)
			c.releases(out)
			x, y := c.got(first, "a", time.Now()), c.got(again, "a", time.Now())
			if x.ID != y.ID {
				c.Errorf("two leases: %s and %s", x.ID, y.ID)
			}
		}},
		{"a request that is sent many times while it waits is one request, and leaves no trace", func(c crawler, m *lease.Memory, out lease.Lease) {
			for attempts := 3; attempts <= 5; attempts++ {
				r := patient
				r.ID = fmt.Sprint(attempts)
				var all []*waiting
				for range attempts {
					all = append(all, c.waits(c.Context(), r))
				}
				c.releases(out)
				out = c.got(all[0], "a", time.Now())
				for i, again := range all {
					if l := c.got(again, "a", time.Now()); l.ID != out.ID {
						c.Errorf("attempt %d of %d has lease %s, the first has %s", i+1, attempts, l.ID, out.ID)
					}
				}
				alone := c.waits(c.Context(), patient)
				c.releases(out)
				out = c.got(alone, "a", time.Now())
			}
			c.releases(out)
			c.leavesNoTrace(m)
		}},
		{"all who wait with an ID are told when another request takes it", func(c crawler, m *lease.Memory, out lease.Lease) {
			r := patient
			r.ID = "once"
			var all []*waiting
			for range 5 {
				all = append(all, c.waits(c.Context(), r))
			}
			c.reports(out, lease.Banned, "")
			c.releases(out)
			c.gets(lease.Request{ID: r.ID, Target: "news"}, "a")
			for i, w := range all {
				if !w.over() || !errors.Is(w.err, lease.ErrRequestMismatch) {
					c.Errorf("%d: %v, want %v", i, w.err, lease.ErrRequestMismatch)
				}
			}
			m.Set(proxy("b", 1))
			c.gets(forShop, "b")
			alone := c.waits(c.Context(), patient)
			m.Set(proxy("c", 1))
			c.got(alone, "c", time.Now())
		}},
		{"what is granted to a request all of whose attempts have gone is given back", func(c crawler, _ *lease.Memory, out lease.Lease) {
			r := patient
			r.ID = "once"
			ctx, cancel := context.WithCancel(c.Context())
			var all []*waiting
			for range 3 {
				all = append(all, c.waits(ctx, r))
			}
			cancel()
			c.releases(out) // in the same moment
			for _, w := range all {
				if !w.over() || w.err == nil {
					c.Errorf("a caller that has gone got %v", w.grant)
				}
			}
			c.gets(forShop, "a")
		}},
		{"who sent a request again keeps the lease when the first attempt is given up", func(c crawler, m *lease.Memory, out lease.Lease) {
			r := patient
			r.ID = "once"
			ctx, cancel := context.WithCancel(c.Context())
			first, again := c.waits(ctx, r), c.waits(c.Context(), r)
			c.releases(out)
			cancel() // before anybody has run
			l := c.got(again, "a", time.Now())
			if !first.over() {
				c.Error("the first attempt waits still")
			}
			c.renews(l, 0)
		}},
	} {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t, lease.Config{}, proxy("a", 1))
				c := crawler{t, m}
				promise.keep(c, m, c.gets(forShop, "a"))
			})
		})
	}
}

// A change wakes those whom it serves and nobody else, so a thousand that wait cost a release nothing but its own answer.
func TestWaitingHasNoHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard notes
		m := newMemory(t, lease.Config{Recorder: &heard}, proxy("a", 1))
		c := crawler{t, m}
		out := c.gets(forShop, "a")
		all := make([]*waiting, 1000)
		for i := range all {
			all[i] = c.waits(t.Context(), lease.Request{Target: fmt.Sprint(i % 10), Wait: 10 * time.Hour})
		}
		for i := range all {
			heard = nil
			c.releases(out)
			out = c.got(all[i], "a", time.Now())
			if d := cmp.Diff(notes{"ended released", "granted", "waited"}, heard); d != "" {
				t.Fatalf("what release %d did (-want +got):\n%s", i, d)
			}
		}
	})
}
