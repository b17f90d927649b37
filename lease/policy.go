package lease

import "math"

// Policy decides the order in which proxies are offered, and nothing else: which of them may be granted at all follows
// from capacity, health and cooldowns, and is the store's to say. [FewestActive], [Spread], [Fastest] and [Random] are
// policies; another one is an ordinary value too.
//
// Rank places a proxy. It is called when the proxy is set and when one of its leases is granted or ends, and the result is
// kept until the next of these, so it must depend on nothing but the standing. It is called by one goroutine at a time and
// with the store locked: it must return at once and must not call the store.
type Policy interface {
	Rank(s Standing) Rank
}

// Standing is all that a policy may know about a proxy. Nothing in it depends on a target, a session or an instant.
type Standing struct {
	// Candidate is the proxy. Do not change it.
	*Candidate
	// Active is the number of open leases.
	Active int
	// Granted is the number of the last grant that the proxy got, counting those of all proxies from 1; 0 is never.
	Granted uint64
	// Front is where the order had come to when the proxy was first set, or when the last of its leases was granted or
	// ended: the rank of the proxy that was granted last by then.
	Front Rank
	// Random is a number from 0 up to 1, drawn anew whenever Front changes.
	Random float64
}

// Rank is a place in the order. The proxy with the least A is offered first; among equals the one with the least B, and
// among those that are equal in both the one whose key sorts first.
type Rank struct{ A, B uint64 }

// FewestActive offers the proxy with the fewest open leases, among equals the one with the least latency. It is the
// default: crawlers that work at the same time share the fleet evenly and fast. A single crawler that holds one lease at a
// time always gets the fastest proxy, and burns it.
type FewestActive struct{}

// Rank implements [Policy].
func (FewestActive) Rank(s Standing) Rank {
	return Rank{A: uint64(s.Active), B: latencyOf(s)}
}

// Spread offers the proxy with the fewest open leases, among equals the one that was granted longest ago. Choose it where a
// crawler holds few leases at a time: its requests then go through the whole fleet in turn, so that each proxy has the
// longest rest from a target that the fleet allows, at the price of using slow proxies as often as fast ones.
type Spread struct{}

// Rank implements [Policy].
func (Spread) Rank(s Standing) Rank {
	return Rank{A: uint64(s.Active), B: s.Granted}
}

// Fastest offers the proxy with the least latency, until it is at capacity. Choose it where latency is all that counts.
type Fastest struct{}

// Rank implements [Policy].
func (Fastest) Rank(s Standing) Rank {
	return Rank{A: latencyOf(s), B: uint64(s.Active)}
}

// Random offers any proxy, each as likely as every other. Choose it where no pattern in time must show.
type Random struct{}

// randomStep is the mean distance from the front of the order to the place of a proxy: fine enough for chance, and short
// enough for 2⁴⁴ grants.
const randomStep = 1 << 20

// Rank implements [Policy]. A proxy waits for its next turn as radioactive atoms do: from any moment on, every one of those
// that wait is the next one with the same chance.
func (Random) Rank(s Standing) Rank {
	return Rank{A: s.Front.A + uint64(-math.Log1p(-s.Random)*randomStep)}
}

func latencyOf(s Standing) uint64 { return uint64(max(s.Latency, 0)) }
