package lease

import (
	"fmt"
	"slices"
	"time"
)

// Remembered is the number of things that the store keeps: proxies, leases, request IDs and cooldowns.
func (m *Memory) Remembered() int {
	m.mu.Lock()
	defer m.unlock()
	m.advance()
	n := len(m.members) + len(m.index.all.entries) + m.index.entries - len(m.index.lanes)*emptyLane + len(m.index.cooling) + len(m.expiry.lists) + m.shelf.kept() + len(m.requests) +
		m.changing.Len() + len(m.sessions) + m.waiting.count + len(m.waiting.queues) + len(m.waiting.byID)
	for _, p := range m.members {
		n += p.open.Len() + len(p.cooldowns)
	}
	for _, s := range m.index.sharing {
		n += len(s.members)
	}
	return n
}

// kept is the number of leases on the shelf.
func (s *shelf) kept() (n int) {
	n = len(s.blocks) * slotsPerBlock
	for t := s.free; t != nil; t = t.after {
		n--
	}
	return n
}

// Bound bounds the lanes more than usual.
func (m *Memory) Bound(perProxy, fewest, idle int) { m.index.bounds = bounds{perProxy, fewest, idle} }

// Lanes is the number of lanes beside the one of all proxies, and of their entries.
func (m *Memory) Lanes() (lanes, entries int) {
	m.mu.Lock()
	defer m.unlock()
	for _, l := range m.index.lanes {
		entries += len(l.entries)
	}
	return len(m.index.lanes), entries
}

// Flaw says what is wrong with the lanes: each has those proxies that it must have, all of them are as they must be, and
// there is one place for each thing.
func (m *Memory) Flaw() error {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	entries := 0
	for key, l := range m.index.lanes {
		if key != l.key || string(appendKey(nil, l.selector, l.target)) != key || m.index.sharing[l.shared] == nil {
			return fmt.Errorf("lane %q is filed under %q", l.key, key)
		}
		if _, ok := m.index.sharing[l.shared].lanes[l]; !ok {
			return fmt.Errorf("lane %q shares nothing", l.key)
		}
		if err := m.flaw(l, now); err != nil {
			return err
		}
		entries += len(l.entries) + emptyLane
	}
	if entries != m.index.entries || m.index.order.Len() != len(m.index.lanes) {
		return fmt.Errorf("%d entries and %d lanes are counted, there are %d and %d", m.index.entries, m.index.order.Len(), entries, len(m.index.lanes))
	}
	return m.flaw(m.index.all, now)
}

func (m *Memory) flaw(l *lane, now time.Time) error {
	members, ready := 0, 0
	for _, p := range m.members {
		if !p.known || !p.matches(l.selector) {
			continue
		}
		members++
		e := &p.own
		if l != m.index.all {
			at := slices.IndexFunc(p.entries, func(e *entry) bool { return e.lane == l })
			if at < 0 || p.entries[at].mine != at {
				return fmt.Errorf("%s does not know that it is in lane %q", p.candidate.Key, l.key)
			}
			e = p.entries[at]
		}
		o, free := p.obstacle(l.target, now)
		at := int(l.at[e.index])
		switch {
		case l.entries[e.index] != e, e.proxy != p, o != e.obstacle, (at > 0) != (o == none), (e.slot > 0) != !free.IsZero():
			return fmt.Errorf("lane %q has a false entry of %s: %+v", l.key, p.candidate.Key, e)
		case e.slot > 0 && !e.free.Equal(free):
			return fmt.Errorf("%s is free at %v, not at %v", p.candidate.Key, free, e.free)
		case at > 0 && l.ready[at-1] != place{p.rank, int32(e.index)}:
			return fmt.Errorf("lane %q has %+v in the place of %s", l.key, l.ready[at-1], p.candidate.Key)
		case at > 1 && l.before(l.ready[at-1], l.ready[(at-2)/4]):
			return fmt.Errorf("%s is in disorder in lane %q", p.candidate.Key, l.key)
		case at > 0:
			ready++
		}
	}
	if members != len(l.entries) || ready != len(l.ready) {
		return fmt.Errorf("lane %q has %d proxies, %d of them ready, and must have %d and %d", l.key, len(l.entries), len(l.ready), members, ready)
	}
	return nil
}
