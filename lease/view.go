package lease

import (
	"cmp"
	"slices"
	"time"
)

// View is what a [Memory] knows of one proxy, for people to look at. No ID of a lease is in it: who knows one may end the
// lease.
type View struct {
	// Leases are the open ones, the one that ends first in front.
	Leases []Open
	// Cooldowns are what keeps the proxy from leases, by target. The one of the proxy as a whole has no target, and stands
	// first. A pair that is open again after its trial is not among them.
	Cooldowns []Cooldown
}

// Open is a lease that is open.
type Open struct {
	// Target is what it is for; empty where its request named none.
	Target string
	// Granted is when it was granted, zero where an earlier process did; Expires is when it ends unless it is renewed.
	Granted, Expires time.Time
}

// Cooldown is a target that a proxy is kept from.
type Cooldown struct {
	// Target is the target; empty for all of them.
	Target string
	// Until is when the window ends, or ended.
	Until time.Time
	// HalfOpen says that the window has ended: one lease at a time may try, and what it reports decides.
	HalfOpen bool
}

// View returns what is known of a proxy. Of one that is not known it is empty.
func (m *Memory) View(key string) View {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	p := m.members[key]
	if p == nil {
		return View{}
	}
	var v View
	for _, h := range p.open.things {
		v.Leases = append(v.Leases, Open{h.target, h.since, h.expires})
	}
	for _, c := range p.cooldowns {
		if !c.opened {
			v.Cooldowns = append(v.Cooldowns, Cooldown{c.target, c.until, !now.Before(c.until)})
		}
	}
	slices.SortFunc(v.Leases, func(a, b Open) int {
		return cmp.Or(a.Expires.Compare(b.Expires), a.Granted.Compare(b.Granted), cmp.Compare(a.Target, b.Target))
	})
	slices.SortFunc(v.Cooldowns, func(a, b Cooldown) int { return cmp.Compare(a.Target, b.Target) })
	return v
}

// Cooldowns returns how many pairs of proxy and target are cooling or half open.
func (m *Memory) Cooldowns() int {
	m.mu.Lock()
	defer m.unlock()
	m.advance()
	return m.closed
}
