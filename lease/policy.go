package lease

import "cmp"

// Policy decides the order in which proxies are offered, and nothing else: which of them may be granted at all follows
// from capacity, health and cooldowns, and is the store's to say.
//
// Rank places a proxy. It is called when the proxy is set and when one of its leases is granted or ends, and the result is
// kept until the next of these, so it must depend on nothing but the standing. It is called by one goroutine at a time and
// with the store locked: it must return at once and must not call the store.
type Policy interface {
	Rank(s Standing) Rank
}

// Standing is all that a policy may know about a proxy.
type Standing struct {
	Candidate
	// Active is the number of open leases.
	Active int
}

// Rank is a place in the order. The proxy with the least A is offered first; among equals the one with the least B, and
// among those that are equal in both the one whose key sorts first.
type Rank struct{ A, B uint64 }

func (r Rank) compare(other Rank) int {
	return cmp.Or(cmp.Compare(r.A, other.A), cmp.Compare(r.B, other.B))
}

// fewestActive is the default policy: fewest open leases, then latency.
type fewestActive struct{}

func (fewestActive) Rank(s Standing) Rank {
	return Rank{A: uint64(s.Active), B: uint64(max(s.Latency, 0))}
}
