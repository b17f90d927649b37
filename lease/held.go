package lease

import (
	"maps"
	"time"
)

// held is an open lease.
type held struct {
	*slot
	proxy   *member
	ttl     time.Duration
	since   time.Time // when it was granted; zero where an earlier process did
	expires time.Time
	request *answered // what got it, if that has an ID
	session *session  // of the request, if it has one

	at            int       // its place among the open leases of its proxy
	list          *expiring // with those that have its TTL
	before, later *held     // there
}

func (h *held) due() time.Time { return h.expires }
func (h *held) place() *int    { return &h.at }

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
func (r *Request) same(other *Request) bool {
	return r.Target == other.Target && r.TTL == other.TTL && r.Session == other.Session && r.count() == other.count() &&
		maps.Equal(r.Selector, other.Selector)
}

func (r *Request) count() int { return max(r.Count, 1) }
