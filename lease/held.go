package lease

import (
	"cmp"
	"maps"
	"time"
)

// held is a lease as the store keeps it: while it is open, and then for one cooldown window more, because a report may
// come late.
type held struct {
	id      string
	granted *Candidate // as it was when the lease was granted
	bare    bool       // granted is from the log, and has no more than the names
	target  string
	ttl     time.Duration
	since   time.Time // when it was granted; zero where an earlier process did
	expires time.Time
	request *answered // what got it, if that has an ID and the lease is open
	session *session  // of the request, if it has one

	slot          int       // its place among the open leases of its proxy
	list          *expiring // with those that have its TTL, while it is open
	before, after *held     // there; once it has ended, after is the one that ended next
	forget        time.Time // when to forget it; zero while it is open
}

func (h *held) due() time.Time { return h.expires }
func (h *held) place() *int    { return &h.slot }
func (h *held) open() bool     { return h.forget.IsZero() }

func (h *held) lease() Lease {
	return Lease{ID: h.id, Proxy: h.granted.Endpoint, Target: h.target, Expires: h.expires, TTL: h.ttl}
}

// answered is a request with an ID whose leases are all open, and what it got.
type answered struct {
	Request
	leases []*held
	moved  bool
	takers int // callers that were given the answer and have not given it back
}

func (a *answered) grant() Grant { return grantOf(a.leases, a.moved) }

func grantOf(leases []*held, moved bool) Grant {
	g := Grant{Leases: make([]Lease, len(leases)), Moved: moved}
	for i, h := range leases {
		g.Leases[i] = h.lease()
	}
	return g
}

// same says whether two requests ask for the same. How long they are ready to wait is no part of it: of a request that is
// repeated some of that time has passed.
func (r Request) same(other Request) bool {
	return r.Target == other.Target && r.TTL == other.TTL && r.Session == other.Session && r.count() == other.count() &&
		maps.Equal(r.Selector, other.Selector)
}

func (r Request) count() int { return cmp.Or(r.Count, 1) }

// past is the leases that have ended, in that order, which is the order in which they are forgotten.
type past struct{ first, last *held }

func (p *past) push(h *held) {
	if p.first == nil {
		p.first = h
	} else {
		p.last.after = h
	}
	p.last = h
}

// pop takes out the first lease that is to be forgotten by now, or returns nil.
func (p *past) pop(now time.Time) *held {
	h := p.first
	if h == nil || h.forget.After(now) {
		return nil
	}
	p.first, h.after = h.after, nil
	return h
}
