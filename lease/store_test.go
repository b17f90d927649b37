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

const (
	ttl    = 5 * time.Minute  // the default
	window = 10 * time.Minute // the default
)

// crawler uses a store, and fails the test where the store does not answer as it must.
type crawler struct {
	*testing.T
	store lease.Store
}

// gets acquires a lease of a given proxy.
func (c crawler) gets(r lease.Request, proxy string) lease.Lease {
	c.Helper()
	g, err := c.store.Acquire(c.Context(), r)
	if err != nil {
		c.Fatalf("Acquire(%+v): %v, want a lease of %s", r, err, proxy)
	}
	if len(g.Leases) != 1 || g.Leases[0].Proxy.Name != proxy {
		c.Fatalf("Acquire(%+v) = %+v, want one lease of %s", r, g.Leases, proxy)
	}
	return g.Leases[0]
}

// getsNone acquires in vain.
func (c crawler) getsNone(r lease.Request, want lease.NoMatch) {
	c.Helper()
	g, err := c.store.Acquire(c.Context(), r)
	got, ok := errors.AsType[*lease.NoMatch](err)
	if !ok {
		c.Fatalf("Acquire(%+v) = %+v, %v, want a NoMatch", r, g, err)
	}
	if d := cmp.Diff(want, *got); d != "" {
		c.Fatalf("Acquire(%+v): numbers differ (-want +got):\n%s", r, d)
	}
}

func (c crawler) reports(l lease.Lease, o lease.Outcome, target string) {
	c.Helper()
	if err := c.store.Report(c.Context(), l.ID, lease.Report{Outcome: o, Target: target}); err != nil {
		c.Fatalf("Report(%s, %q): %v", o, target, err)
	}
}

func (c crawler) releases(l lease.Lease) {
	c.Helper()
	if err := c.store.Release(c.Context(), l.ID); err != nil {
		c.Fatalf("Release: %v", err)
	}
}

func (c crawler) renews(l lease.Lease, d time.Duration) lease.Lease {
	c.Helper()
	renewed, err := c.store.Renew(c.Context(), l.ID, d)
	if err != nil {
		c.Fatalf("Renew(%v): %v", d, err)
	}
	return renewed
}

// failsWith checks an error.
func (c crawler) failsWith(want, err error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Fatalf("error is %v, want %v", err, want)
	}
}

// proxy is a healthy candidate with room for some leases.
func proxy(name string, maxLeases int) lease.Candidate {
	return lease.Candidate{
		Key:         "default/" + name,
		Incarnation: "first",
		Endpoint:    lease.Endpoint{Namespace: "default", Name: name, Scheme: "http", Host: name + ".test", Port: 3128},
		MaxLeases:   maxLeases,
		Healthy:     true,
	}
}

func newMemory(t testing.TB, c lease.Config, proxies ...lease.Candidate) *lease.Memory {
	t.Helper()
	m, err := lease.NewMemory(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proxies {
		m.Set(p)
	}
	return m
}

var (
	anyProxy = lease.Request{}
	forShop  = lease.Request{Target: "shop"}
	forNews  = lease.Request{Target: "news"}
)

// TestStore holds what every store promises, whatever is behind it. Each row has a fresh store of two proxies, a with
// room for two leases and b with room for one, of which a is the first to be offered.
func TestStore(t *testing.T) {
	for _, promise := range []struct {
		name string
		keep func(c crawler)
	}{
		{"a lease says where, for what and how long", aLeaseSaysAll},
		{"the requested TTL holds", func(c crawler) {
			l := c.gets(lease.Request{TTL: time.Second}, "a")
			if want := time.Now().Add(time.Second); !l.Expires.Equal(want) || l.TTL != time.Second {
				c.Errorf("expires %v with TTL %v, want %v and 1s", l.Expires, l.TTL, want)
			}
		}},
		{"IDs are never the same", func(c crawler) {
			if x, y := c.gets(anyProxy, "a"), c.gets(anyProxy, "b"); x.ID == y.ID || x.ID == "" {
				c.Errorf("IDs %q and %q", x.ID, y.ID)
			}
		}},
		{"no proxy has more leases than it bears", capacityHolds},
		{"a released lease makes room", func(c crawler) {
			l := c.gets(lease.Request{Selector: map[string]string{"name": "b"}}, "b")
			c.releases(l)
			c.gets(lease.Request{Selector: map[string]string{"name": "b"}}, "b")
		}},
		{"an expired lease makes room at that very instant", func(c crawler) {
			b := lease.Request{Selector: map[string]string{"name": "b"}}
			c.gets(b, "b")
			time.Sleep(ttl - 1)
			c.getsNone(b, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: 1})
			time.Sleep(1)
			c.gets(b, "b")
		}},
		{"a selector matches by every attribute", selectorMatches},
		{"a TTL out of bounds is refused", func(c crawler) {
			for _, d := range []time.Duration{-1, time.Hour + 1} {
				_, err := c.store.Acquire(c.Context(), lease.Request{TTL: d})
				c.failsWith(lease.ErrTTL, err)
			}
			c.gets(lease.Request{TTL: time.Hour}, "a")
		}},
		{"a caller that is gone gets nothing", func(c crawler) {
			gone, cancel := context.WithCancel(c.Context())
			cancel()
			_, err := c.store.Acquire(gone, anyProxy)
			c.failsWith(context.Canceled, err)
			c.gets(anyProxy, "a")
		}},
		{"renewing counts from now", renewCountsFromNow},
		{"renewing what is not open is an error", renewingWhatIsNotOpen},
		{"releasing what is not open is no error", func(c crawler) {
			l := c.gets(anyProxy, "a")
			for range 3 {
				c.releases(l)
			}
			c.releases(lease.Lease{ID: "never granted"})
		}},
		{"a second release frees nothing else", func(c crawler) {
			b := lease.Request{Selector: map[string]string{"name": "b"}}
			first := c.gets(b, "b")
			c.releases(first)
			c.gets(b, "b")
			c.releases(first)
			c.getsNone(b, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl})
		}},
		{"an outcome that does not exist is refused", func(c crawler) {
			l := c.gets(anyProxy, "a")
			for _, o := range []lease.Outcome{"", "OK", "meh"} {
				c.failsWith(lease.ErrInvalidResult, c.store.Report(c.Context(), l.ID, lease.Report{Outcome: o}))
			}
			c.failsWith(lease.ErrInvalidResult, c.store.Report(c.Context(), "unknown", lease.Report{Outcome: "meh"}))
		}},
		{"a report on an unknown lease is an error", func(c crawler) {
			c.failsWith(lease.ErrUnknown, c.store.Report(c.Context(), "unknown", lease.Report{Outcome: lease.OK}))
		}},
		{"a retry gets the same lease", retryGetsTheSame},
		{"a request ID is free again once its lease has ended", requestIDIsFreed},
		{"a request ID stands for one request", requestIDStandsForOne},
	} {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { promise.keep(crawler{t, newMemory(t, lease.Config{}, twoProxies()...)}) })
		})
	}
}

func twoProxies() []lease.Candidate {
	a, b := proxy("a", 2), proxy("b", 1)
	a.Attributes = map[string]string{"name": "a", "country": "nl", "empty": ""}
	b.Attributes = map[string]string{"name": "b", "country": "nl"}
	return []lease.Candidate{a, b}
}

func aLeaseSaysAll(c crawler) {
	l := c.gets(forShop, "a")
	want := lease.Lease{ID: l.ID, Proxy: twoProxies()[0].Endpoint, Target: "shop", Expires: time.Now().Add(ttl), TTL: ttl}
	want.Proxy.Attributes = twoProxies()[0].Attributes
	if d := cmp.Diff(want, l); d != "" {
		c.Errorf("the lease differs (-want +got):\n%s", d)
	}
}

func capacityHolds(c crawler) {
	c.gets(anyProxy, "a")
	c.gets(anyProxy, "b")
	time.Sleep(time.Minute)
	c.gets(anyProxy, "a")
	c.getsNone(anyProxy, lease.NoMatch{Considered: 2, AtCapacity: 2, RetryAfter: ttl - time.Minute})
}

func selectorMatches(c crawler) {
	c.gets(lease.Request{Selector: map[string]string{"country": "nl", "name": "b"}}, "b")
	c.gets(lease.Request{Selector: map[string]string{"empty": ""}}, "a")
	c.getsNone(lease.Request{Selector: map[string]string{"country": "nl", "name": "c"}}, lease.NoMatch{})
	c.getsNone(lease.Request{Selector: map[string]string{"missing": ""}}, lease.NoMatch{})
}

func renewCountsFromNow(c crawler) {
	l := c.gets(lease.Request{TTL: 10 * time.Minute, Target: "shop"}, "a")
	for _, step := range []struct {
		name      string
		ttl, want time.Duration
	}{
		{"0 is the lease's own", 0, 10 * time.Minute},
		{"longer", 20 * time.Minute, 20 * time.Minute},
		{"0 is the last one", 0, 20 * time.Minute},
		{"shorter than what is left", time.Minute, time.Minute},
	} {
		time.Sleep(time.Second)
		renewed := c.renews(l, step.ttl)
		l.Expires, l.TTL = time.Now().Add(step.want), step.want
		if d := cmp.Diff(l, renewed); d != "" {
			c.Errorf("%s: the lease differs (-want +got):\n%s", step.name, d)
		}
	}
	time.Sleep(time.Minute)
	_, err := c.store.Renew(c.Context(), l.ID, 0)
	c.failsWith(lease.ErrUnknown, err)
}

func renewingWhatIsNotOpen(c crawler) {
	renew := func(id string, ttl time.Duration) error {
		_, err := c.store.Renew(c.Context(), id, ttl)
		return err
	}
	c.failsWith(lease.ErrUnknown, renew("never granted", 0))
	released := c.gets(anyProxy, "a")
	c.releases(released)
	c.failsWith(lease.ErrUnknown, renew(released.ID, 0))
	l := c.gets(anyProxy, "a")
	c.failsWith(lease.ErrTTL, renew(l.ID, time.Hour+1))
	c.failsWith(lease.ErrTTL, renew(l.ID, -1))
	time.Sleep(ttl)
	c.failsWith(lease.ErrUnknown, renew(l.ID, 0))
}

func retryGetsTheSame(c crawler) {
	r := lease.Request{ID: "once", Target: "shop", Selector: map[string]string{"name": "b"}}
	first := c.gets(r, "b")
	r.Selector["name"] = "changed by its owner after the call"
	time.Sleep(time.Minute)
	r.Selector = map[string]string{"name": "b"}
	if d := cmp.Diff(first, c.gets(r, "b")); d != "" {
		c.Errorf("the lease differs (-first +second):\n%s", d)
	}
	renewed := c.renews(first, time.Hour)
	if d := cmp.Diff(renewed, c.gets(r, "b")); d != "" {
		c.Errorf("the renewed lease differs (-renewed +retried):\n%s", d)
	}
	r.TTL = ttl
	if d := cmp.Diff(renewed, c.gets(r, "b")); d != "" {
		c.Errorf("asking for the default TTL by its length differs (-renewed +retried):\n%s", d)
	}
}

func requestIDIsFreed(c crawler) {
	r := lease.Request{ID: "once"}
	first := c.gets(r, "a")
	c.releases(first)
	second := c.gets(r, "a")
	time.Sleep(ttl)
	third := c.gets(r, "a")
	if first.ID == second.ID || second.ID == third.ID {
		c.Errorf("a lease that has ended was granted again: %s %s %s", first.ID, second.ID, third.ID)
	}
	c.releases(first) // is over, and must not take the ID from the third
	if again := c.gets(r, "a"); again.ID != third.ID {
		c.Errorf("got lease %s, want %s", again.ID, third.ID)
	}
}

func requestIDStandsForOne(c crawler) {
	first := lease.Request{ID: "once", Target: "shop", TTL: time.Minute, Selector: map[string]string{"name": "a"}}
	l := c.gets(first, "a")
	for what, change := range map[string]func(*lease.Request){
		"target":   func(r *lease.Request) { r.Target = "news" },
		"TTL":      func(r *lease.Request) { r.TTL = 2 * time.Minute },
		"selector": func(r *lease.Request) { r.Selector = nil },
	} {
		r := first
		change(&r)
		if _, err := c.store.Acquire(c.Context(), r); !errors.Is(err, lease.ErrRequestMismatch) {
			c.Errorf("another %s: error is %v, want %v", what, err, lease.ErrRequestMismatch)
		}
	}
	if again := c.gets(first, "a"); again.ID != l.ID {
		c.Errorf("got lease %s, want %s", again.ID, l.ID)
	}
}

// TestCooldown holds what every store promises about bans. Each row has a fresh store of one proxy a with room for five
// leases.
func TestCooldown(t *testing.T) {
	cooling := func(left time.Duration) lease.NoMatch {
		return lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: left}
	}
	for _, promise := range []struct {
		name string
		keep func(c crawler)
	}{
		{"banned blocks the lease's target and no other", func(c crawler) {
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			c.getsNone(forShop, cooling(window))
			c.gets(forNews, "a")
			c.gets(anyProxy, "a")
		}},
		{"rate_limited blocks like banned", func(c crawler) {
			c.reports(c.gets(forShop, "a"), lease.RateLimited, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"the report's target comes before the lease's", func(c crawler) {
			c.reports(c.gets(forShop, "a"), lease.Banned, "news")
			c.getsNone(forNews, cooling(window))
			c.gets(forShop, "a")
		}},
		{"without any target the proxy rests from all", func(c crawler) {
			c.reports(c.gets(anyProxy, "a"), lease.Banned, "")
			c.getsNone(forShop, cooling(window))
			c.getsNone(anyProxy, cooling(window))
		}},
		{"ok and failed block nothing", func(c crawler) {
			l := c.gets(forShop, "a")
			c.reports(l, lease.OK, "")
			c.reports(l, lease.Failed, "")
			c.gets(forShop, "a")
		}},
		{"a window ends at its very instant", func(c crawler) {
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			time.Sleep(window - 1)
			c.getsNone(forShop, cooling(1))
			time.Sleep(1)
			c.gets(forShop, "a")
		}},
		{"reports while it cools do not prolong it", func(c crawler) {
			x, y := c.gets(forShop, "a"), c.gets(forShop, "a")
			c.reports(x, lease.Banned, "")
			time.Sleep(window / 2)
			c.reports(x, lease.Banned, "")
			c.reports(y, lease.RateLimited, "")
			c.getsNone(forShop, cooling(window/2))
		}},
		{"ok while it cools does not shorten it", func(c crawler) {
			x, y := c.gets(forShop, "a"), c.gets(forShop, "a")
			c.reports(x, lease.Banned, "")
			c.reports(x, lease.OK, "")
			c.reports(y, lease.OK, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"a lease cools a pair once", leaseCoolsPairOnce},
		{"one lease may report bans of several targets", func(c crawler) {
			l := c.gets(anyProxy, "a")
			c.reports(l, lease.Banned, "shop")
			c.reports(l, lease.Banned, "news")
			c.getsNone(forShop, cooling(window))
			c.getsNone(forNews, cooling(window))
		}},
		{"the longer of two cooldowns counts", func(c crawler) {
			x, y := c.gets(forShop, "a"), c.gets(anyProxy, "a")
			c.reports(x, lease.Banned, "")
			time.Sleep(time.Minute)
			c.reports(y, lease.Banned, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"a released lease takes a report for one window", func(c crawler) {
			x, y := c.gets(forShop, "a"), c.gets(forNews, "a")
			c.releases(x)
			c.releases(y)
			time.Sleep(window - 1)
			c.reports(x, lease.Banned, "")
			c.getsNone(forShop, cooling(window))
			time.Sleep(1)
			c.failsWith(lease.ErrUnknown, c.store.Report(c.Context(), y.ID, lease.Report{Outcome: lease.Banned}))
			c.gets(forNews, "a")
		}},
		{"an expired lease takes a report for one window", func(c crawler) {
			x, y := c.gets(forShop, "a"), c.gets(forNews, "a")
			time.Sleep(ttl + window - 1)
			c.reports(x, lease.Banned, "")
			c.getsNone(forShop, cooling(window))
			time.Sleep(1)
			c.failsWith(lease.ErrUnknown, c.store.Report(c.Context(), y.ID, lease.Report{Outcome: lease.Banned}))
		}},
	} {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { promise.keep(crawler{t, newMemory(t, lease.Config{}, proxy("a", 5))}) })
		})
	}
}

func leaseCoolsPairOnce(c crawler) {
	x, y := c.gets(lease.Request{Target: "shop", TTL: time.Hour}, "a"), c.gets(lease.Request{Target: "shop", TTL: time.Hour}, "a")
	c.reports(x, lease.Banned, "")
	time.Sleep(window)
	c.reports(x, lease.Banned, "")
	c.reports(y, lease.Banned, "")
	c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: 2 * window})
	time.Sleep(2 * window)
	c.reports(x, lease.Banned, "")
	c.reports(y, lease.Banned, "")
	c.gets(forShop, "a")
}

// TestHalfOpen holds what every store promises about a pair of proxy and target once its cooldown is over. Each row
// begins at that instant, in a fresh store of one proxy a with room for five leases, and with the lease that was banned.
func TestHalfOpen(t *testing.T) {
	trialOut := lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: ttl}
	cooling := func(d time.Duration) lease.NoMatch { return lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: d} }
	for _, promise := range []struct {
		name   string
		banned lease.Request
		keep   func(c crawler, banned lease.Lease)
	}{
		{"one trial at a time", forShop, func(c crawler, _ lease.Lease) {
			c.gets(forShop, "a")
			c.getsNone(forShop, trialOut)
			c.gets(forNews, "a")
		}},
		{"ok of the trial opens the pair", forShop, func(c crawler, _ lease.Lease) {
			c.reports(c.gets(forShop, "a"), lease.OK, "")
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"release of the trial opens the pair", forShop, func(c crawler, _ lease.Lease) {
			c.releases(c.gets(forShop, "a"))
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"expiry of the trial opens the pair", forShop, func(c crawler, _ lease.Lease) {
			c.gets(forShop, "a")
			time.Sleep(ttl)
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"a renewed trial holds the pair until it ends", forShop, func(c crawler, _ lease.Lease) {
			c.renews(c.gets(forShop, "a"), time.Hour)
			time.Sleep(time.Hour - 1)
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: 1})
			time.Sleep(1)
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"a ban of the trial takes the next window", forShop, func(c crawler, _ lease.Lease) {
			l := c.gets(forShop, "a")
			c.reports(l, lease.Banned, "")
			c.releases(l)
			c.getsNone(forShop, cooling(2*window))
			time.Sleep(2 * window)
			c.gets(forShop, "a")
			c.getsNone(forShop, trialOut)
		}},
		{"a late ban of the trial takes the next window", forShop, func(c crawler, _ lease.Lease) {
			l := c.gets(forShop, "a")
			c.releases(l)
			c.reports(l, lease.Banned, "")
			c.getsNone(forShop, cooling(2*window))
		}},
		{"a ban after a trial without a verdict takes the next window", forShop, func(c crawler, _ lease.Lease) {
			c.releases(c.gets(forShop, "a"))
			c.reports(c.gets(forShop, "a"), lease.RateLimited, "")
			c.getsNone(forShop, cooling(2*window))
		}},
		{"a success after a trial without a verdict starts from the first window", forShop, func(c crawler, _ lease.Lease) {
			c.releases(c.gets(forShop, "a"))
			c.reports(c.gets(forShop, "a"), lease.OK, "")
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"a success of the trial starts from the first window", forShop, func(c crawler, _ lease.Lease) {
			l := c.gets(forShop, "a")
			c.reports(l, lease.OK, "")
			c.reports(l, lease.Banned, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"a window without any lease starts from the first window", forShop, func(c crawler, _ lease.Lease) {
			time.Sleep(window)
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			c.getsNone(forShop, cooling(window))
		}},
		{"windows grow up to the longest", forShop, func(c crawler, _ lease.Lease) {
			for _, want := range []time.Duration{20, 40, 80, 160, 320, 360, 360} {
				c.reports(c.gets(forShop, "a"), lease.Banned, "")
				c.getsNone(forShop, lease.NoMatch{Considered: 1, AtCapacity: 0, InCooldown: 1, RetryAfter: want * time.Minute})
				time.Sleep(want * time.Minute)
			}
		}},
		{"failed is no verdict", forShop, func(c crawler, _ lease.Lease) {
			c.reports(c.gets(forShop, "a"), lease.Failed, "")
			c.getsNone(forShop, trialOut)
		}},
		{"ok about another target is no verdict", forShop, func(c crawler, _ lease.Lease) {
			c.reports(c.gets(forShop, "a"), lease.OK, "news")
			c.getsNone(forShop, trialOut)
		}},
		{"ok of a lease that is not the trial is no verdict", forShop, func(c crawler, banned lease.Lease) {
			c.reports(banned, lease.OK, "")
			c.gets(forShop, "a")
			c.reports(banned, lease.OK, "")
			c.getsNone(forShop, trialOut)
		}},
		{"a retried request is the same trial", forShop, func(c crawler, _ lease.Lease) {
			r := lease.Request{ID: "once", Target: "shop"}
			if x, y := c.gets(r, "a"), c.gets(r, "a"); x.ID != y.ID {
				c.Errorf("two trials: %s and %s", x.ID, y.ID)
			}
			c.getsNone(forShop, trialOut)
		}},
		{"nobody tries for a window: the pair opens", forShop, func(c crawler, _ lease.Lease) {
			time.Sleep(window)
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"the last chance for a trial is just before", forShop, func(c crawler, _ lease.Lease) {
			time.Sleep(window - 1)
			c.gets(forShop, "a")
			time.Sleep(2)
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: ttl - 2})
		}},
		{"a proxy as a whole is tried by one lease for any target", anyProxy, func(c crawler, _ lease.Lease) {
			c.gets(forShop, "a")
			c.getsNone(forNews, trialOut)
			c.getsNone(anyProxy, trialOut)
		}},
		{"ok at one target opens the proxy as a whole", anyProxy, func(c crawler, _ lease.Lease) {
			c.reports(c.gets(forShop, "a"), lease.OK, "")
			c.gets(forNews, "a")
			c.gets(anyProxy, "a")
		}},
		{"a ban at one target leaves the trial of the whole undecided", anyProxy, func(c crawler, _ lease.Lease) {
			l := c.gets(forShop, "a")
			c.reports(l, lease.Banned, "")
			c.getsNone(forNews, trialOut)
			c.releases(l)
			c.gets(forNews, "a")
			c.getsNone(forShop, cooling(window))
		}},
	} {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crawler{t, newMemory(t, lease.Config{}, proxy("a", 5))}
				banned := c.gets(lease.Request{Target: promise.banned.Target, TTL: time.Hour}, "a")
				c.reports(banned, lease.Banned, "")
				time.Sleep(window)
				promise.keep(c, banned)
			})
		})
	}
}

func TestNoMatchError(t *testing.T) {
	for _, row := range []struct {
		err  lease.NoMatch
		want string
	}{
		{lease.NoMatch{}, "lease: no proxy matches the selector"},
		{
			lease.NoMatch{Considered: 10, Unhealthy: 1, AtCapacity: 2, InCooldown: 3, Eligible: 4},
			"lease: no proxy is free: of 10 that match, 1 not ready, 2 at capacity, 3 in cooldown, 4 eligible",
		},
	} {
		if got := fmt.Sprint(&row.err); got != row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
}
