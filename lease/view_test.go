package lease_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/lease"
)

// shows fails unless the view of default/a is as wanted, and the store counts so many cooldowns.
func shows(c crawler, m *lease.Memory, want lease.View, cooldowns int) {
	c.Helper()
	if d := gocmp.Diff(want, m.View("default/a"), cmpopts.EquateEmpty()); d != "" {
		c.Errorf("view (-want +got):\n%s", d)
	}
	if n := m.Cooldowns(); n != cooldowns {
		c.Errorf("%d cooldowns, want %d", n, cooldowns)
	}
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, lease.Config{})
		c := crawler{t, m}
		shows(c, m, lease.View{}, 0)
		m.Set(proxy("a", 5))
		begun := time.Now()
		first := c.gets(lease.Request{Target: "shop", TTL: time.Hour}, "a")
		time.Sleep(time.Minute)
		other := c.gets(anyProxy, "a")
		want := lease.View{Leases: []lease.Open{
			{Granted: begun.Add(time.Minute), Expires: other.Expires},
			{Target: "shop", Granted: begun, Expires: first.Expires},
		}}
		shows(c, m, want, 0)
		for _, id := range []string{first.ID, other.ID} {
			if text := fmt.Sprintf("%+v", m.View("default/a")); strings.Contains(text, id) {
				t.Errorf("a view holds the ID of a lease: %s", text)
			}
		}

		// To renew a lease is no new grant.
		other = c.renews(other, 0)
		want.Leases[0].Expires = other.Expires
		c.reports(first, lease.Banned, "shop")
		banned := time.Now()
		want.Cooldowns = []lease.Cooldown{{Target: "shop", Until: banned.Add(window)}}
		shows(c, m, want, 1)
		c.reports(first, lease.Banned, "news")
		want.Cooldowns = slices.Insert(want.Cooldowns, 0, lease.Cooldown{Target: "news", Until: banned.Add(window)})
		shows(c, m, want, 2)

		// The window ends; a trial is out; the trial says nothing, and the pair is open again.
		c.releases(other)
		time.Sleep(window)
		want.Leases = want.Leases[1:]
		want.Cooldowns[0].HalfOpen, want.Cooldowns[1].HalfOpen = true, true
		shows(c, m, want, 2)
		trial := c.gets(lease.Request{Target: "shop", TTL: time.Minute}, "a")
		want.Leases = slices.Insert(want.Leases, 0, lease.Open{Target: "shop", Granted: time.Now(), Expires: trial.Expires})
		shows(c, m, want, 2)
		c.releases(trial)
		want.Leases, want.Cooldowns = want.Leases[1:], want.Cooldowns[:1]
		shows(c, m, want, 1)
		c.reports(trial, lease.Banned, "shop")
		want.Cooldowns = append(want.Cooldowns, lease.Cooldown{Target: "shop", Until: time.Now().Add(2 * window)})
		shows(c, m, want, 2)

		// A successor has none, and the leases of its predecessor still count.
		m.Set(second("a", 5))
		want.Cooldowns = nil
		shows(c, m, want, 0)
	})
}

// viewed checks the views of all proxies of the walk, and the number of cooldowns.
func (w *walker) viewed() {
	w.Helper()
	cooldowns := 0
	for key := range w.model.proxies {
		var want lease.View
		for _, l := range w.model.open(key) {
			want.Leases = append(want.Leases, lease.Open{Target: l.Target, Expires: l.Expires})
		}
		for of, c := range w.model.cooldowns {
			if of.key == key && !c.opened {
				want.Cooldowns = append(want.Cooldowns, lease.Cooldown{Target: of.target, Until: c.until, HalfOpen: !time.Now().Before(c.until)})
			}
		}
		cooldowns += len(want.Cooldowns)
		byTarget := cmpopts.SortSlices(func(a, b lease.Open) int {
			return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Target, b.Target))
		})
		slices.SortFunc(want.Cooldowns, func(a, b lease.Cooldown) int { return cmp.Compare(a.Target, b.Target) })
		if d := gocmp.Diff(want, w.store.View(key), byTarget, cmpopts.IgnoreFields(lease.Open{}, "Granted")); d != "" {
			w.Fatalf("the views of %s differ (-model +store):\n%s", key, d)
		}
	}
	if n := w.store.Cooldowns(); n != cooldowns {
		w.Fatalf("the store counts %d cooldowns, the model %d", n, cooldowns)
	}
}

// TestViewAfterRestart: what an earlier process granted is shown, but for the moment when it did.
func TestViewAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &ledger{}
		m := newMemory(t, lease.Config{Log: kept})
		c := crawler{t, m}
		m.Set(proxy("a", 5))
		l := c.gets(lease.Request{Target: "shop", TTL: time.Hour}, "a")
		c.reports(l, lease.Banned, "shop")
		c.reports(l, lease.Banned, "news")
		until := time.Now().Add(window)
		time.Sleep(window)
		c.releases(c.gets(lease.Request{Target: "news"}, "a"))
		want := lease.View{Cooldowns: []lease.Cooldown{{Target: "shop", Until: until, HalfOpen: true}},
			Leases: []lease.Open{{Target: "shop", Expires: l.Expires}}}

		m = newMemory(t, lease.Config{Log: kept})
		m.Set(proxy("a", 5))
		shows(crawler{t, m}, m, want, 1)
	})
}
