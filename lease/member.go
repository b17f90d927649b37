package lease

import "time"

// failedPause is how long Config.Failed is left alone about a proxy once it was called.
const failedPause = 5 * time.Second

// member is a proxy within the store. One that was removed stays for as long as it has open leases or cooldowns, so that
// it is the same proxy still should it come back.
type member struct {
	candidate *Candidate // never changed, only replaced
	known     bool       // false once it was removed
	rank      Rank
	open      timeline[*held]
	cooldowns map[string]*cooldown // by target
	hurried   time.Time            // when Config.Failed was last called

	slot int // its place in the timeline of proxies by their next expiry
}

func (p *member) due() time.Time { return p.open.things[0].expires }
func (p *member) place() *int    { return &p.slot }

func (p *member) standing() Standing {
	return Standing{Candidate: *p.candidate, Active: p.open.Len()}
}

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

// vacancy returns when a proxy at capacity comes free by itself, given until when cooldowns block it.
func (p *member) vacancy(blocked time.Time) time.Time {
	if p.candidate.MaxLeases < 1 || p.open.Len() > p.candidate.MaxLeases {
		return time.Time{} // one lease less is not enough
	}
	return later(blocked, p.due())
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
