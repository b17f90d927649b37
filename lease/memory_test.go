package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

// TestMemory holds what the memory store promises to the one who feeds it. Each row has a fresh store of one proxy a with
// room for two leases.
func TestMemory(t *testing.T) {
	for _, promise := range []struct {
		name string
		keep func(c crawler, m *lease.Memory)
	}{
		{"an unhealthy proxy is not leased", func(c crawler, m *lease.Memory) {
			sick := proxy("a", 2)
			sick.Healthy = false
			m.Set(sick)
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, Unhealthy: 1})
			m.Set(proxy("a", 2))
			c.gets(anyProxy, "a")
		}},
		{"a lease survives that its proxy is unhealthy", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			sick := proxy("a", 2)
			sick.Healthy = false
			m.Set(sick)
			c.renews(l, 0)
			c.reports(l, lease.Banned, "shop")
			m.Set(proxy("a", 2))
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: window})
		}},
		{"each candidate is counted once, under its first obstacle", countedOnce},
		{"a removed proxy is not leased", func(c crawler, m *lease.Memory) {
			m.Remove("default/a")
			m.Remove("default/a")
			m.Remove("never set")
			c.getsNone(anyProxy, lease.NoMatch{})
		}},
		{"the loss of a proxy is loud", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			m.Remove("default/a")
			lostProxy(c, l)
		}},
		{"the replacement of a proxy is loud", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			m.Set(second("a", 2))
			lostProxy(c, l)
			c.gets(anyProxy, "a")
		}},
		{"a lost lease that has ended is unknown", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			m.Remove("default/a")
			c.releases(l)
			_, err := c.store.Renew(c.Context(), l.ID, 0)
			c.failsWith(lease.ErrUnknown, err)
			c.reports(l, lease.Banned, "")
			time.Sleep(window)
			c.failsWith(lease.ErrUnknown, m.Report(c.Context(), l.ID, lease.Report{Outcome: lease.Banned}))
		}},
		{"a report on a lost lease cools nobody", func(c crawler, m *lease.Memory) {
			x, y := c.gets(forShop, "a"), c.gets(forShop, "a")
			c.releases(y)
			m.Set(second("a", 2))
			c.reports(x, lease.Banned, "")
			c.reports(y, lease.Banned, "")
			c.gets(forShop, "a")
		}},
		{"a new incarnation forgets cooldowns", func(c crawler, m *lease.Memory) {
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			m.Set(second("a", 3))
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
		{"the same incarnation keeps cooldowns, set again or removed in between", func(c crawler, m *lease.Memory) {
			l := c.gets(forShop, "a")
			c.reports(l, lease.Banned, "")
			c.releases(l)
			m.Set(proxy("a", 3))
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: window})
			m.Remove("default/a")
			m.Set(proxy("a", 3))
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: window})
		}},
		{"leases on the old instance count until they end", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			c.gets(anyProxy, "a")
			m.Set(second("a", 2))
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl})
			c.releases(l)
			c.gets(anyProxy, "a")
		}},
		{"a removed proxy that comes back is the same", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			m.Remove("default/a")
			m.Set(proxy("a", 1))
			c.renews(l, 0)
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl})
			c.releases(l)
			c.gets(anyProxy, "a")
		}},
		{"a late report finds a proxy that comes back", func(c crawler, m *lease.Memory) {
			l := c.gets(forShop, "a")
			c.releases(l)
			m.Remove("default/a")
			m.Set(proxy("a", 2))
			c.reports(l, lease.Banned, "")
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: window})
		}},
		{"a lease shows its proxy as it was granted", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			moved := proxy("a", 2)
			moved.Endpoint.Host = "elsewhere.test"
			m.Set(moved)
			if got := c.renews(l, 0).Proxy.Host; got != "a.test" {
				c.Errorf("the old lease is at %s", got)
			}
			if got := c.gets(anyProxy, "a").Proxy.Host; got != "elsewhere.test" {
				c.Errorf("a new lease is at %s", got)
			}
		}},
		{"attributes belong to the store once they are set", func(c crawler, m *lease.Memory) {
			mine := map[string]string{"country": "nl"}
			changed := proxy("a", 2)
			changed.Attributes = mine
			m.Set(changed)
			mine["country"] = "de"
			l := c.gets(lease.Request{Selector: map[string]string{"country": "nl"}}, "a")
			if got := l.Proxy.Attributes["country"]; got != "nl" {
				c.Errorf("the lease says %q", got)
			}
		}},
		{"a lowered capacity ends no lease and grants none", func(c crawler, m *lease.Memory) {
			l := c.gets(anyProxy, "a")
			c.gets(anyProxy, "a")
			m.Set(proxy("a", 1))
			c.renews(l, 0)
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, AtCapacity: 1})
			c.releases(l)
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl})
			m.Set(proxy("a", 0))
			c.getsNone(anyProxy, lease.NoMatch{Considered: 1, AtCapacity: 1})
		}},
		{"a proxy at capacity that cools down too comes free when both are over", func(c crawler, m *lease.Memory) {
			m.Set(proxy("a", 1))
			c.reports(c.gets(forShop, "a"), lease.Banned, "")
			c.getsNone(forShop, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: window})
			c.getsNone(forNews, lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: ttl})
		}},
		{"open leases are counted by the clock", func(c crawler, m *lease.Memory) {
			m.Set(proxy("b", 1))
			c.releases(c.gets(anyProxy, "a"))
			c.gets(anyProxy, "a")
			c.gets(lease.Request{TTL: time.Minute}, "b")
			c.gets(anyProxy, "a")
			m.Remove("default/a")
			counted(c, m, map[string]int{"default/a": 2, "default/b": 1})
			time.Sleep(time.Minute)
			counted(c, m, map[string]int{"default/a": 2})
			time.Sleep(ttl)
			counted(c, m, map[string]int{})
		}},
	} {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t, lease.Config{}, proxy("a", 2))
				promise.keep(crawler{t, m}, m)
			})
		})
	}
}

// second is another instance of the same name.
func second(name string, maxLeases int) lease.Candidate {
	c := proxy(name, maxLeases)
	c.Incarnation = "second"
	return c
}

func countedOnce(c crawler, m *lease.Memory) {
	full := proxy("full", 1)
	full.Attributes = map[string]string{"name": "full"}
	m.Set(full)
	c.reports(c.gets(lease.Request{Target: "shop", Selector: full.Attributes}, "full"), lease.Banned, "")
	c.reports(c.gets(forShop, "a"), lease.Banned, "")
	sick := proxy("sick", 0)
	sick.Healthy = false
	m.Set(sick)
	c.getsNone(forShop, lease.NoMatch{Considered: 3, Unhealthy: 1, AtCapacity: 1, InCooldown: 1, RetryAfter: window})
}

// lostProxy checks what a lease can still do whose proxy is gone.
func lostProxy(c crawler, l lease.Lease) {
	c.Helper()
	_, err := c.store.Renew(c.Context(), l.ID, 0)
	c.failsWith(lease.ErrProxyGone, err)
	for _, o := range []lease.Outcome{lease.OK, lease.Banned, lease.RateLimited, lease.Failed} {
		c.reports(l, o, "")
	}
	c.releases(l)
}

func counted(c crawler, m *lease.Memory, want map[string]int) {
	c.Helper()
	if d := cmp.Diff(want, m.Counts()); d != "" {
		c.Errorf("counts differ (-want +got):\n%s", d)
	}
	for _, key := range []string{"default/a", "default/b", "never set"} {
		if got := m.Active(key); got != want[key] {
			c.Errorf("Active(%s) = %d, want %d", key, got, want[key])
		}
	}
}

// TestOrder shows in which order proxies are offered.
func TestOrder(t *testing.T) {
	candidate := func(name string, latency time.Duration) lease.Candidate {
		c := proxy(name, 2)
		c.Latency = latency
		return c
	}
	proxies := []lease.Candidate{
		candidate("slow", 300*time.Millisecond), candidate("fast", 50*time.Millisecond),
		candidate("even-b", 100*time.Millisecond), candidate("even-a", 100*time.Millisecond),
	}
	for _, row := range []struct {
		name   string
		policy lease.Policy
		want   string
	}{
		{"default: fewest leases, latency, key", nil, "fast even-a even-b slow fast even-a even-b slow"},
		{"spread: fewest leases, longest ago, key", lease.Spread{}, "even-a even-b fast slow even-a even-b fast slow"},
		{"fastest: until it is full", lease.Fastest{}, "fast fast even-a even-b even-a even-b slow slow"},
		{"by latency alone", fastest{}, "fast fast even-a even-a even-b even-b slow slow"},
		{"all the same: by key", indifferent{}, "even-a even-a even-b even-b fast fast slow slow"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMemory(t, lease.Config{Policy: row.policy}, proxies...)
			var got []string
			for range 2 * len(proxies) {
				g, err := m.Acquire(t.Context(), anyProxy)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, g.Leases[0].Proxy.Name)
			}
			if d := cmp.Diff(strings.Fields(row.want), got); d != "" {
				t.Errorf("order differs (-want +got):\n%s", d)
			}
		})
	}
	t.Run("a changed latency changes the order", func(t *testing.T) {
		m := newMemory(t, lease.Config{}, proxies...)
		m.Set(candidate("slow", 1))
		crawler{t, m}.gets(anyProxy, "slow")
	})
}

// One polite client that holds one lease at a time goes through the whole fleet, in turn.
func TestSpreadUsesTheWholeFleet(t *testing.T) {
	m := newMemory(t, lease.Config{Policy: lease.Spread{}}, proxy("a", 1), proxy("b", 1), proxy("c", 1))
	c := crawler{t, m}
	for range 3 {
		for _, name := range []string{"a", "b", "c"} {
			c.releases(c.gets(anyProxy, name))
		}
	}
	m.Set(proxy("d", 1)) // it was never granted
	c.releases(c.gets(anyProxy, "d"))
	c.releases(c.gets(anyProxy, "a"))
}

// Every proxy is as likely as every other, whether leases are given back at once or not, and whatever was granted before;
// one that joins late is no likelier.
func TestRandomIsFair(t *testing.T) {
	const proxies, grants = 20, 20_000
	for _, held := range []int{0, 5} {
		t.Run(fmt.Sprintf("%d held", held), func(t *testing.T) {
			m := newMemory(t, lease.Config{Policy: lease.Random{}, CooldownWindow: time.Nanosecond})
			c := crawler{t, m}
			for i := range proxies - 1 {
				m.Set(proxy(fmt.Sprintf("p%02d", i), 1))
			}
			seen, repeats, last := map[string]int{}, 0, ""
			var open []lease.Lease
			for i := range grants {
				if i == grants/2 {
					m.Set(proxy("late", 1))
				}
				g, err := m.Acquire(t.Context(), anyProxy)
				if err != nil {
					t.Fatal(err)
				}
				name := g.Leases[0].Proxy.Name
				seen[name]++
				if name == last {
					repeats++
				}
				last = name
				if open = append(open, g.Leases[0]); len(open) > held {
					c.releases(open[0])
					open = open[1:]
				}
			}
			seen["late"] *= 2 // it was there for half of the time
			for name, n := range seen {
				if want := grants / proxies; n < want*3/4 || n > want*5/4 {
					t.Errorf("%s was granted %d times of %d, want about %d", name, n, grants, want)
				}
			}
			if held == 0 && (repeats < grants/proxies*3/4 || repeats > grants/proxies*3/2) {
				t.Errorf("%d grants of %d were of the proxy before, want about one in %d", repeats, grants, proxies)
			}
		})
	}
}

type fastest struct{}

func (fastest) Rank(s lease.Standing) lease.Rank { return lease.Rank{B: uint64(s.Latency)} }

type indifferent struct{}

func (indifferent) Rank(lease.Standing) lease.Rank { return lease.Rank{} }

// TestFailed shows when the owner of the store hears that a proxy failed.
func TestFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		var m *lease.Memory
		m = newMemory(t, lease.Config{Failed: func(key string) {
			m.Active(key) // the store must not be locked
			heard = append(heard, key)
		}}, proxy("a", 5), proxy("b", 5))
		c := crawler{t, m}
		a, b := c.gets(anyProxy, "a"), c.gets(anyProxy, "b")
		fails := func(l lease.Lease, want ...string) {
			t.Helper()
			heard = nil
			c.reports(l, lease.Failed, "shop")
			if !slices.Equal(heard, want) {
				t.Errorf("heard %v, want %v", heard, want)
			}
		}
		fails(a, "default/a")
		fails(a)
		fails(b, "default/b")
		time.Sleep(5*time.Second - 1)
		fails(a)
		time.Sleep(1)
		c.releases(a)
		fails(a, "default/a")
		time.Sleep(5 * time.Second)
		m.Remove("default/a")
		fails(a)
		c.reports(b, lease.Banned, "")
		if len(heard) != 0 {
			t.Errorf("a ban was taken for a failure of %v", heard)
		}
	})
}

// notes writes down what a recorder is told.
type notes []string

func (n *notes) LeaseGranted()              { *n = append(*n, "granted") }
func (n *notes) LeaseRefused(reason string) { *n = append(*n, "refused "+reason) }
func (n *notes) LeaseEnded(how string)      { *n = append(*n, "ended "+how) }
func (n *notes) LeaseWaited(time.Duration)  { *n = append(*n, "waited") }

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard notes
		m := newMemory(t, lease.Config{Recorder: &heard})
		hears := func(what string, want ...string) {
			t.Helper()
			if d := cmp.Diff(notes(want), heard); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
			heard = nil
		}
		tries := func(r lease.Request) lease.Lease {
			g, err := m.Acquire(t.Context(), r)
			if err != nil {
				return lease.Lease{}
			}
			return g.Leases[0]
		}
		tries(anyProxy)
		hears("no proxy at all", "refused no_proxy")
		m.Set(proxy("a", 2))
		l := tries(lease.Request{ID: "once"})
		hears("a grant", "granted")
		tries(lease.Request{ID: "once"})
		hears("a retry")
		_ = m.Report(t.Context(), l.ID, lease.Report{Outcome: lease.Banned})
		tries(anyProxy)
		hears("cooling", "refused in_cooldown")
		_ = m.Release(t.Context(), l.ID)
		_ = m.Release(t.Context(), l.ID)
		hears("released twice", "ended released")
		m.Set(proxy("b", 0))
		m.Set(proxy("c", 0))
		tries(anyProxy)
		hears("most are at capacity", "refused at_capacity")
		m.Set(second("a", 1))
		tries(anyProxy)
		time.Sleep(ttl)
		m.Counts()
		hears("a grant that expired", "granted", "ended expired")
		for _, name := range []string{"a", "b", "c"} {
			sick := proxy(name, 1)
			sick.Healthy = false
			m.Set(sick)
		}
		tries(anyProxy)
		hears("all are unhealthy", "refused unhealthy")
	})
}

func TestConfig(t *testing.T) {
	for _, row := range []struct {
		name   string
		config lease.Config
		want   []string // what the error must name; nothing: no error
	}{
		{"zero value", lease.Config{}, nil},
		{"own values", lease.Config{DefaultTTL: time.Minute, MaxTTL: time.Minute, CooldownWindow: 1}, nil},
		{"maximum below the usual default", lease.Config{MaxTTL: time.Minute}, nil},
		{"default above the maximum", lease.Config{DefaultTTL: 2 * time.Hour}, []string{"DefaultTTL 2h0m0s is above MaxTTL 1h0m0s"}},
		{
			"everything is wrong", lease.Config{DefaultTTL: -1, MaxTTL: -2, CooldownWindow: -3},
			[]string{"MaxTTL is negative: -2ns", "DefaultTTL is negative: -1ns", "CooldownWindow is negative: -3ns"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := lease.NewMemory(row.config)
			if (err != nil) != (len(row.want) > 0) {
				t.Fatalf("error is %v, want %q", err, row.want)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want it to name %q", err, want)
				}
			}
		})
	}
	t.Run("a low maximum lowers the default", func(t *testing.T) {
		l := crawler{t, newMemory(t, lease.Config{MaxTTL: time.Minute}, proxy("a", 1))}.gets(anyProxy, "a")
		if l.TTL != time.Minute {
			t.Errorf("TTL is %v, want 1m", l.TTL)
		}
	})
}

// TestConcurrency uses one store from many goroutines, under a fed fleet. It is for the race detector, and counts what is
// on loan at the crawlers: never more of one proxy than it bears.
func TestConcurrency(t *testing.T) {
	const crawlers, rounds, capacity = 8, 300, 3
	m := newMemory(t, lease.Config{Failed: func(string) {}}, proxy("a", capacity), proxy("b", capacity), proxy("c", capacity))
	var mu sync.Mutex
	lent := map[string]int{}
	lend := func(name string, n int) {
		mu.Lock()
		defer mu.Unlock()
		lent[name] += n
		if lent[name] > capacity {
			t.Errorf("%d leases of %s at once", lent[name], name)
		}
	}
	var crawl, feed sync.WaitGroup
	for range crawlers {
		crawl.Go(func() {
			for round := range rounds {
				crawlOnce(t, m, round, lend)
			}
		})
	}
	done, stop := context.WithCancel(t.Context())
	feed.Go(func() {
		for n := 0; done.Err() == nil; n++ {
			c := proxy([]string{"a", "b", "c"}[n%3], capacity)
			c.Latency = time.Duration(n % 7)
			c.Healthy = n%5 > 0
			m.Set(c)
			m.Counts()
		}
	})
	crawl.Wait()
	stop()
	feed.Wait()
	if got := m.Counts(); len(got) > 0 {
		t.Errorf("leases are left: %v", got)
	}
}

func crawlOnce(t *testing.T, s lease.Store, round int, lend func(string, int)) {
	g, err := s.Acquire(t.Context(), anyProxy)
	if _, none := errors.AsType[*lease.NoMatch](err); none {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	l := g.Leases[0]
	lend(l.Proxy.Name, 1)
	if _, err := s.Renew(t.Context(), l.ID, 0); err != nil {
		t.Error(err)
	}
	outcome := []lease.Outcome{lease.OK, lease.Banned, lease.Failed}[round%3]
	if err := s.Report(t.Context(), l.ID, lease.Report{Outcome: outcome, Target: "shop"}); err != nil {
		t.Error(err)
	}
	lend(l.Proxy.Name, -1)
	if err := s.Release(t.Context(), l.ID); err != nil {
		t.Error(err)
	}
}
