package lease

import (
	"maps"
	"time"
)

// held is a lease as the store keeps it: while it is open, and then for one cooldown window more, because a report may
// come late.
type held struct {
	id      string
	granted *Candidate // as it was when the lease was granted
	target  string
	ttl     time.Duration
	expires time.Time
	request *Request // what got it, if that has an ID and the lease is open

	slot   int       // its place among the open leases of its proxy
	forget time.Time // when to forget it; zero while it is open
	next   *held     // the one that ended after it
}

func (h *held) due() time.Time { return h.expires }
func (h *held) place() *int    { return &h.slot }
func (h *held) open() bool     { return h.forget.IsZero() }

func (h *held) lease() Lease {
	return Lease{ID: h.id, Proxy: h.granted.Endpoint, Target: h.target, Expires: h.expires, TTL: h.ttl}
}

// same says whether two requests ask for the same. How long they are ready to wait is no part of it: of a request that is
// repeated some of that time has passed.
func (r Request) same(other Request) bool {
	return r.Target == other.Target && r.TTL == other.TTL && maps.Equal(r.Selector, other.Selector)
}

// queue is the leases that have ended, in that order, which is the order in which they are forgotten.
type queue struct{ head, tail *held }

func (q *queue) push(h *held) {
	if q.head == nil {
		q.head = h
	} else {
		q.tail.next = h
	}
	q.tail = h
}

// pop takes out the first lease that is to be forgotten by now, or returns nil.
func (q *queue) pop(now time.Time) *held {
	h := q.head
	if h == nil || h.forget.After(now) {
		return nil
	}
	q.head = h.next
	return h
}
