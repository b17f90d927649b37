package lease

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
	for _, block := range s.blocks {
		n += len(block)
	}
	for t := s.free; t != nil; t = t.after {
		n--
	}
	return n
}
