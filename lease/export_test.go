package lease

// Remembered is the number of things that the store keeps: proxies, leases, request IDs and cooldowns.
func (m *Memory) Remembered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	n := len(m.members) + len(m.ranking.runs) + m.expiring.Len() + len(m.leases) + len(m.requests) + m.fading.Len()
	for _, p := range m.members {
		n += p.open.Len() + len(p.cooldowns)
	}
	for h := m.ended.head; h != nil; h = h.next {
		n++
	}
	return n
}
