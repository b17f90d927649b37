package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"
)

// Memory is a [Store] within this process. Everything that it knows ends with it. It does not wait, keeps no sessions and
// grants leases one by one: a request that asks for any of that gets [ErrNotSupported].
//
// It has no goroutines and no timers. Every method first brings the store to the present moment, so that what a caller
// sees depends on the clock and never on when somebody cleaned up; then it does its own work. No method blocks, and only
// Acquire looks at its context: a lease can be released by whoever has given up on everything else. Moments are taken
// from the monotonic clock.
type Memory struct {
	config Config

	mu       sync.Mutex
	members  map[string]*member // by key, those that were removed included
	ranking  ranking            // those that are known
	expiring timeline[*member]  // those with open leases
	leases   map[string]*held   // by ID, open and ended
	requests map[string]*held   // by request ID, open
	ended    queue
	fading   timeline[*cooldown] // the cooldowns that have no trial
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store without proxies. The error names everything that is wrong with the configuration.
func NewMemory(c Config) (*Memory, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Memory{
		config:   c,
		members:  map[string]*member{},
		leases:   map[string]*held{},
		requests: map[string]*held{},
	}, nil
}

// Set tells the store of a proxy, or that something about it has changed. Its open leases stay as they were granted.
func (m *Memory) Set(c Candidate) {
	c.Attributes = maps.Clone(c.Attributes)
	c.Endpoint.Attributes = c.Attributes
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	p := m.members[c.Key]
	switch {
	case p == nil:
		p = &member{candidate: &c, cooldowns: map[string]*cooldown{}}
		m.members[c.Key] = p
	case p.candidate.Incarnation != c.Incarnation:
		for _, old := range p.cooldowns {
			m.fading.drop(old)
		}
		clear(p.cooldowns)
	}
	if p.known {
		m.ranking.remove(p)
	}
	p.candidate, p.known = &c, true
	m.rank(p)
}

// Remove tells the store that a proxy is no more. Its open leases cannot be renewed; they still count, should a proxy of
// the same key be set before they have ended. One that has the same incarnation is then the same proxy again, with its
// leases and cooldowns.
func (m *Memory) Remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	p := m.members[key]
	if p == nil || !p.known {
		return
	}
	m.ranking.remove(p)
	p.known = false
	m.tidy(p)
}

// Active returns how many leases of a proxy are open.
func (m *Memory) Active(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	if p := m.members[key]; p != nil {
		return p.open.Len()
	}
	return 0
}

// Counts returns how many leases are open of every proxy that has any, by key.
func (m *Memory) Counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	counts := make(map[string]int, m.expiring.Len())
	for _, p := range m.expiring.things {
		counts[p.candidate.Key] = p.open.Len()
	}
	return counts
}

// Acquire grants a lease of the first proxy, in the order of the policy, that matches and is free.
func (m *Memory) Acquire(ctx context.Context, r Request) (Grant, error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, err
	}
	if r.Count > 1 || r.Wait > 0 || r.Session != "" {
		return Grant{}, ErrNotSupported
	}
	var err error
	if r.TTL, err = m.config.ttl(r.TTL, m.config.DefaultTTL); err != nil {
		return Grant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	h := m.requests[r.ID] // no request is filed under the empty ID
	switch {
	case h == nil:
		if h, err = m.choose(r, now); err != nil {
			return Grant{}, err
		}
	case !h.request.same(r):
		return Grant{}, ErrRequestMismatch
	}
	return Grant{Leases: []Lease{h.lease()}}, nil
}

// Renew lets an open lease last for ttl from now on.
func (m *Memory) Renew(_ context.Context, id string, ttl time.Duration) (Lease, error) {
	ttl, err := m.config.ttl(ttl, 0)
	if err != nil {
		return Lease{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	h := m.leases[id]
	if h == nil || !h.open() {
		return Lease{}, ErrUnknown
	}
	p := m.leased(h)
	if p == nil {
		return Lease{}, ErrProxyGone
	}
	h.ttl = cmp.Or(ttl, h.ttl)
	h.expires = now.Add(h.ttl)
	p.open.put(h)
	m.expiring.put(p)
	return h.lease(), nil
}

// Release ends a lease.
func (m *Memory) Release(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	if h := m.leases[id]; h != nil && h.open() {
		m.end(h, now, "released")
	}
	return nil
}

// Report tells what came back from a target.
func (m *Memory) Report(_ context.Context, id string, r Report) error {
	switch r.Outcome {
	case OK, RateLimited, Banned, Failed:
	default:
		return ErrInvalidResult
	}
	hurry, err := m.report(id, r)
	if hurry != "" {
		m.config.Failed(hurry)
	}
	return err
}

// report does the work of Report, and returns the key of the proxy that Config.Failed is to be called with, if any.
func (m *Memory) report(id string, r Report) (hurry string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	h := m.leases[id]
	if h == nil {
		return "", ErrUnknown
	}
	p := m.leased(h)
	if p == nil {
		return "", nil
	}
	target := cmp.Or(r.Target, h.target)
	switch r.Outcome {
	case OK:
		m.reopen(p, h, target)
	case RateLimited, Banned:
		m.cool(p, h, target, now)
	case Failed:
		if p.hurry(now) {
			hurry = p.candidate.Key
		}
	}
	return hurry, nil
}

// leased returns the proxy of a lease, or nil if that very instance is gone.
func (m *Memory) leased(h *held) *member {
	p := m.members[h.granted.Key]
	if p == nil || !p.known || p.candidate.Incarnation != h.granted.Incarnation {
		return nil
	}
	return p
}

// advance brings the store to the present moment, which it returns.
func (m *Memory) advance() time.Time {
	now := time.Now()
	for p, ok := m.expiring.first(); ok && !p.due().After(now); p, ok = m.expiring.first() {
		h, _ := p.open.first()
		m.end(h, h.expires, "expired")
	}
	for h := m.ended.pop(now); h != nil; h = m.ended.pop(now) {
		delete(m.leases, h.id)
	}
	for c, ok := m.fading.first(); ok && !c.due().After(now); c, ok = m.fading.first() {
		m.drop(c)
	}
	return now
}

// choose grants the first proxy that matches and is free.
func (m *Memory) choose(r Request, now time.Time) (*held, error) {
	var refusal NoMatch
	for p := range m.ranking.all() {
		if !p.matches(r.Selector) {
			continue
		}
		o, free := p.obstacle(r.Target, now)
		if o == none {
			return m.grant(p, r, now), nil
		}
		refusal.count(o, free.Sub(now)) // a moment that is not known lies before now
	}
	m.config.Recorder.LeaseRefused(refusal.reason())
	return nil, &refusal
}

func (m *Memory) grant(p *member, r Request, now time.Time) *held {
	h := &held{id: rand.Text(), granted: p.candidate, target: r.Target, ttl: r.TTL, expires: now.Add(r.TTL)}
	m.leases[h.id] = h
	if r.ID != "" {
		request := r
		request.Selector = maps.Clone(r.Selector) // the caller may change its own
		h.request = &request
		m.requests[r.ID] = h
	}
	for _, c := range p.concerning(r.Target) {
		if c != nil {
			c.trial = h
			m.fading.drop(c)
		}
	}
	p.open.put(h)
	m.settle(p)
	m.config.Recorder.LeaseGranted()
	return h
}

// end ends an open lease at a moment that may have passed.
func (m *Memory) end(h *held, at time.Time, how string) {
	p := m.members[h.granted.Key]
	p.open.drop(h)
	for _, c := range p.concerning(h.target) {
		if c != nil && c.trial == h {
			m.drop(c)
		}
	}
	if h.request != nil {
		delete(m.requests, h.request.ID)
		h.request = nil
	}
	h.forget = at.Add(m.config.CooldownWindow)
	m.ended.push(h)
	m.settle(p)
	m.config.Recorder.LeaseEnded(how)
}

// cool starts a cooldown for a ban that a lease reports.
func (m *Memory) cool(p *member, by *held, target string, now time.Time) {
	c := p.cooldowns[target]
	if c == nil {
		c = &cooldown{proxy: p, target: target}
		p.cooldowns[target] = c
	}
	if c.start(by.id, now, m.config.CooldownWindow) {
		m.fading.put(c)
	}
}

// reopen ends the trials that a success at a target decides: the one of that target, and the one of the proxy as a whole,
// because whoever is served at one target is not refused everywhere.
func (m *Memory) reopen(p *member, by *held, target string) {
	for _, c := range p.concerning(target) {
		if c != nil && c.trial == by {
			m.drop(c)
		}
	}
}

// drop forgets a cooldown.
func (m *Memory) drop(c *cooldown) {
	m.fading.drop(c)
	delete(c.proxy.cooldowns, c.target)
	m.tidy(c.proxy)
}

// settle restores what follows from the open leases of a proxy: its rank, and its place among those that expire.
func (m *Memory) settle(p *member) {
	if p.open.Len() > 0 {
		m.expiring.put(p)
	} else {
		m.expiring.drop(p)
	}
	if p.known {
		m.ranking.remove(p)
		m.rank(p)
	}
	m.tidy(p)
}

// rank gives a proxy that is in no place of the ranking its place.
func (m *Memory) rank(p *member) {
	p.rank = m.config.Policy.Rank(p.standing())
	m.ranking.insert(p)
}

// tidy forgets a proxy that was removed once nothing depends on it any more.
func (m *Memory) tidy(p *member) {
	if !p.known && p.open.Len() == 0 && len(p.cooldowns) == 0 {
		delete(m.members, p.candidate.Key)
	}
}
