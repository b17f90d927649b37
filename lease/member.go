package lease

import (
	"math/rand/v2"
	"time"
)

// failedPause is how long Config.Failed is left alone about a proxy once it was called.
const failedPause = 5 * time.Second

// member is a proxy within the store. One that was removed stays for as long as it has open leases or cooldowns, so that
// it is the same proxy still should it come back.
type member struct {
	candidate *Candidate // never changed, only replaced
	known     bool       // false once it was removed
	open      timeline[*held]
	few       [2]*held             // where the first of them are
	cooldowns map[string]*cooldown // by target
	hurried   time.Time            // when Config.Failed was last called

	rank    Rank
	granted uint64
	front   Rank
	random  float64

	own        entry       // in the lane of all proxies
	entries    []*entry    // in the other lanes
	attributes []attribute // under which the index has it
	stirred    bool        // it may have come free since those who wait were asked
}

// dropEntry forgets that the proxy is in a lane other than that of all.
func (p *member) dropEntry(e *entry) {
	last := p.entries[len(p.entries)-1]
	p.entries[e.mine], last.mine = last, e.mine
	p.entries[len(p.entries)-1] = nil
	p.entries = p.entries[:len(p.entries)-1]
}

// standing is what the policy ranks the proxy by.
func (p *member) standing() Standing {
	return Standing{Candidate: p.candidate, Active: p.open.Len(), Granted: p.granted, Front: p.front, Random: p.random}
}

// draw notes where the order has come to.
func (p *member) draw(front Rank) {
	p.front, p.random = front, rand.Float64()
}

// matches says whether the proxy has all attributes of a selector.
func (p *member) matches(selector map[string]string) bool {
	for k, want := range selector {
		if has, ok := p.candidate.Attributes[k]; !ok || has != want {
			return false
		}
	}
	return true
}

// concerning returns the cooldowns that a lease for a target has to do with: the one of the target and the one of the
// proxy as a whole. Either may be nil, and for the empty target they are one and the same.
func (p *member) concerning(target string) [2]*cooldown {
	if len(p.cooldowns) == 0 {
		return [2]*cooldown{}
	}
	return [2]*cooldown{p.cooldowns[target], p.cooldowns[""]}
}

// hurry says whether Config.Failed is due for the proxy, and if so takes note that it was called.
func (p *member) hurry(now time.Time) bool {
	if !p.hurried.IsZero() && now.Sub(p.hurried) < failedPause {
		return false
	}
	p.hurried = now
	return true
}

// obstacle is what keeps a proxy from being granted.
type obstacle int

const (
	none obstacle = iota
	unhealthy
	atCapacity
	inCooldown
	obstacles // how many there are
)

// obstacle returns the first thing that keeps the proxy from a lease for a target, and the moment at which the proxy
// comes free by itself, which is zero where nobody knows.
func (p *member) obstacle(target string, now time.Time) (obstacle, time.Time) {
	if !p.candidate.Healthy {
		return unhealthy, time.Time{}
	}
	var blocked time.Time
	for _, c := range p.concerning(target) {
		if c != nil {
			blocked = later(blocked, c.blockedUntil(now))
		}
	}
	if p.open.Len() >= p.candidate.MaxLeases {
		return atCapacity, p.vacancy(blocked)
	}
	if !blocked.IsZero() {
		return inCooldown, blocked
	}
	return none, time.Time{}
}

// isFree says whether nothing keeps the proxy from a lease for a target.
func (p *member) isFree(target string, now time.Time) bool {
	o, _ := p.obstacle(target, now)
	return o == none
}

// vacancy returns when a proxy at capacity comes free by itself, given until when cooldowns block it.
func (p *member) vacancy(blocked time.Time) time.Time {
	if p.candidate.MaxLeases < 1 || p.open.Len() > p.candidate.MaxLeases {
		return time.Time{} // one lease less is not enough
	}
	return later(blocked, p.open.things[0].expires)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
