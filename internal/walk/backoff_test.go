package walk

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// What never lasts must not burn money: each status write wakes the machine, and still it asks seldom. An edit is tried at
// once, and an instance that lasts ends the series.
func TestBackoff(t *testing.T) {
	const ticks = 2000
	refuse := func(class provider.Class) error {
		return &provider.Error{Op: "create", Class: class, Reason: "Refused"}
	}
	hasher := fleet.NewHasher(fleetID)
	for _, c := range []struct {
		name   string
		nature nature
		most   int
	}{
		{"crash loop", nature{crash: 1}, ticks/20 + 6},
		{"failed creates", nature{fail: 1, class: provider.ErrTransient}, ticks/20 + 6},
		{"failed creates, quota", nature{fail: 1, class: provider.ErrQuotaExceeded}, ticks/20 + 1},
		{"failed creates, permanent", nature{fail: 1, class: provider.ErrPermanent}, ticks/36 + 1},
		{"failed creates, answers lag", nature{fail: 1, lag: 3}, ticks/20 + 6},
		{"refused", nature{refuse: errors.New("refused")}, ticks/20 + 6},
		{"refused, quota", nature{refuse: refuse(provider.ErrQuotaExceeded)}, ticks/20 + 1},
		{"refused, permanent", nature{refuse: refuse(provider.ErrPermanent)}, ticks/36 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := begin(1, base(func(s *setting) { s.nature = c.nature }), hasher)
				spec := proxy.Spec{Provider: "a", Placement: proxy.Placement{Zone: "z", MachineType: "small"}}
				h.declare(h.keys[0], spec)
				h.settle(ticks)
				if n := h.world.asked; n > c.most || n < c.most/2 {
					t.Errorf("%d creates in %d ticks, at most %d", n, ticks, c.most)
				}
				before := h.world.asked
				h.world.nature = nature{}
				spec.Placement.MachineType = "big"
				h.declare(h.keys[0], spec)
				h.settle(15) // time for an instance of the old type to go
				if h.world.asked == before {
					t.Error("the edit waited for the backoff")
				}
				h.settle(100)
				if p := h.store.now(h.keys[0]); p.Status.Phase != proxy.Ready || p.Status.Instance.Attempt != 0 {
					t.Errorf("not well: %+v", p.Status)
				}
			})
		})
	}
}
