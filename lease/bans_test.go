package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// TestBansOfForgottenLeases makes sure that a pair which is banned for ever remembers no lease that can report no more.
func TestBansOfForgottenLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &ledger{}
		m := newMemory(t, lease.Config{Log: log, CooldownFactor: 1}, proxy("a", 2))
		c := crawler{t, m}
		long := c.gets(lease.Request{Target: "shop", TTL: time.Hour}, "a")
		c.reports(long, lease.Banned, "")
		for range 20 {
			long = c.renews(long, time.Hour)
			time.Sleep(window)
			l := c.gets(forShop, "a")
			c.reports(l, lease.Banned, "")
			c.releases(l)
			c.reports(long, lease.Banned, "") // it has said so before
		}
		for _, r := range log.after(-1) {
			if r.Lease == "" && r.Session == "" && (len(r.Bans) > 3 || r.Bans[0] != long.ID) {
				t.Errorf("bans by %d leases are remembered, want those of two or three, the open one among them", len(r.Bans))
			}
		}
		time.Sleep(window)
		c.reports(long, lease.Banned, "") // would start a window if it were forgotten
		c.gets(forShop, "a")
	})
}
