package lease

import "time"

// expiry is the open leases by when they expire. Those of one TTL expire in the order in which they were granted or
// renewed, so each TTL has a list, and what is done to a lease costs the same however many there are.
type expiry struct {
	lists map[time.Duration]*expiring
	order timeline[*expiring]
}

// expiring is the leases of one TTL. It is never empty.
type expiring struct {
	ttl         time.Duration
	first, last *held
	slot        int
}

func (l *expiring) due() time.Time { return l.first.expires }
func (l *expiring) place() *int    { return &l.slot }

// first returns the lease that expires first, or nil.
func (e *expiry) first() *held {
	if l, ok := e.order.first(); ok {
		return l.first
	}
	return nil
}

// add adds a lease. It expires no earlier than the others of its TTL.
func (e *expiry) add(h *held) {
	l := e.lists[h.ttl]
	if l == nil {
		l = &expiring{ttl: h.ttl, first: h}
		e.lists[h.ttl] = l
	} else {
		h.before, l.last.later = l.last, h
	}
	l.last, h.list = h, l
	if l.first == h {
		e.order.put(l)
	}
}

// drop takes a lease out.
func (e *expiry) drop(h *held) {
	l := h.list
	if h.before == nil {
		l.first = h.later
	} else {
		h.before.later = h.later
	}
	if h.later == nil {
		l.last = h.before
	} else {
		h.later.before = h.before
	}
	wasFirst := h.before == nil
	h.list, h.before, h.later = nil, nil, nil
	switch {
	case l.first == nil:
		delete(e.lists, l.ttl)
		e.order.drop(l)
	case wasFirst:
		e.order.put(l)
	}
}
