package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// TestNoTrace makes sure that what was granted to a caller who had gone by then changes nothing for others. Each row begins
// with a fresh store of two proxies with room for one lease each; vain makes a request whose caller goes while it is granted.
func TestNoTrace(t *testing.T) {
	inSession := lease.Request{Target: "shop", Session: "x"}
	for _, test := range []struct {
		name string
		run  func(c crawler, m *lease.Memory, vain func(lease.Request))
	}{
		{"its room is free", func(c crawler, m *lease.Memory, vain func(lease.Request)) {
			vain(lease.Request{Count: 2})
			counted(c, m, map[string]int{})
			c.gets(anyProxy, "a")
			c.gets(anyProxy, "b")
		}},
		{"a session keeps the proxy that it had", func(c crawler, _ *lease.Memory, vain func(lease.Request)) {
			a := c.gets(inSession, "a")
			vain(inSession) // b
			c.releases(a)
			g, err := c.store.Acquire(c.Context(), inSession)
			if err != nil || g.Moved || g.Leases[0].Proxy.Name != "a" {
				c.Errorf("%+v, %v; want a, not moved", g, err)
			}
		}},
		{"a session that is not known of has none", func(c crawler, _ *lease.Memory, vain func(lease.Request)) {
			vain(inSession) // a
			c.gets(forNews, "a")
			g, err := c.store.Acquire(c.Context(), inSession)
			if err != nil || g.Moved || g.Leases[0].Proxy.Name != "b" {
				c.Errorf("%+v, %v; want b, not moved", g, err)
			}
		}},
		{"a trial is still to be made", func(c crawler, m *lease.Memory, vain func(lease.Request)) {
			m.Remove("default/b")
			m.Set(proxy("a", 3))
			a := c.gets(forShop, "a")
			c.reports(a, lease.Banned, "")
			c.releases(a)
			time.Sleep(window)
			vain(forShop)
			c.gets(forShop, "a")
			c.getsNone(forShop, lease.NoMatch{Considered: 1, InCooldown: 1, RetryAfter: ttl})
			c.gets(forNews, "a")
		}},
		{"a trial that nobody makes is forgotten in time", func(c crawler, m *lease.Memory, vain func(lease.Request)) {
			m.Remove("default/b")
			m.Set(proxy("a", 3))
			a := c.gets(forShop, "a")
			c.reports(a, lease.Banned, "")
			c.releases(a)
			time.Sleep(window + time.Minute)
			vain(forShop)
			time.Sleep(window)
			c.gets(forShop, "a")
			c.gets(forShop, "a")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := func() {}
				log := &ledger{sync: func(context.Context, uint64) error { gone(); return nil }}
				m := newMemory(t, lease.Config{Log: log}, proxy("a", 1), proxy("b", 1))
				c := crawler{t, m}
				test.run(c, m, func(r lease.Request) {
					ctx, cancel := context.WithCancel(t.Context())
					gone = cancel // before the grant is durable
					defer func() { gone = func() {} }()
					if g, err := m.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
						t.Fatalf("%+v, %v", g, err)
					}
				})
			})
		})
	}
}
