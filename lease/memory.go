package lease

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] within this process. With a [Log] it remembers leases and cooldowns beyond it.
//
// It has no goroutines, and a timer only while somebody waits. Every method first brings the store to the present moment,
// so that what a caller sees depends on the clock and never on when somebody cleaned up; then it does its own work. No
// method but Acquire waits for anything but the log, and a lease can be released by whoever has given up on everything
// else. Moments are taken from the monotonic clock.
//
// What a grant, a release or a change of health costs grows with the logarithm of the number of proxies at most, however many of
// them are unhealthy, at capacity or cooling for the target that is asked for, and so does a refusal. Selectors, and targets
// that cool, that are asked for again and again have an order of their own: the reader of one pays nothing for the others, and
// whoever changes a proxy pays for each that the proxy is in. The first request of its kind may look at every proxy that has
// the rarest of its attributes. What is kept for selectors and targets is bounded, whatever is asked for; beyond that, requests
// pay with time.
type Memory struct {
	config Config

	mu       sync.Mutex
	dead     error              // why nothing is served any more
	members  map[string]*member // by key, those that were removed included
	index    index              // of those that are known
	front    Rank               // of the proxy that was granted last
	grants   uint64
	shelf    shelf  // of leases, open and ended
	expiry   expiry // of the open ones
	requests map[string]*answered
	changing timeline[*cooldown] // those that change by themselves
	closed   int                 // how many cooldowns are not open again
	sessions map[string]*session
	resting  timeline[*session] // by when they are forgotten
	waiting  waiting
	noted    []Record  // what the operation under way has changed, for the log
	chosen   []*member // by choose, to be used again
	granted  []*held   // by grant
	border   border    // of choose

	logged atomic.Uint64 // the number of the last record that the log was given
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store without proxies, which knows what its log remembers. The error names everything that is wrong
// with the configuration, or is the log's.
func NewMemory(c Config) (*Memory, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Memory{
		config:   c,
		members:  map[string]*member{},
		index:    newIndex(),
		shelf:    newShelf(),
		expiry:   expiry{lists: map[time.Duration]*expiring{}},
		requests: map[string]*answered{},
		sessions: map[string]*session{},
		waiting:  waiting{queues: map[string]*queue{}, byID: map[string][]*waiter{}},
	}
	if err := m.restore(); err != nil {
		return nil, err
	}
	return m, nil
}

// Set tells the store of a proxy, or that something about it has changed. Its open leases stay as they were granted.
func (m *Memory) Set(c Candidate) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	p := m.members[c.Key]
	if p == nil {
		p = m.newMember(c.Key)
	}
	moves := !p.known || !maps.Equal(p.candidate.Attributes, c.Attributes)
	if moves {
		c.Attributes = maps.Clone(c.Attributes)
	} else {
		c.Attributes = p.candidate.Attributes
	}
	c.Endpoint.Attributes = c.Attributes
	if !p.known {
		p.draw(m.front)
	}
	p.known = true
	if p.candidate.Incarnation != c.Incarnation {
		m.forgetCooldowns(p)
	}
	p.candidate = &c
	p.rank = m.config.Policy.Rank(p.standing())
	if moves {
		m.index.place(p, now)
	} else {
		m.index.update(p, now)
	}
	m.freed(p)
	m.serve(now)
}

// Remove tells the store that a proxy is no more. Its open leases cannot be renewed; they still count, should a proxy of
// the same key be set before they have ended. One that has the same incarnation is then the same proxy again, with its
// leases and cooldowns.
func (m *Memory) Remove(key string) {
	m.mu.Lock()
	defer m.unlock()
	m.advance()
	p := m.members[key]
	if p == nil || !p.known {
		return
	}
	m.index.displace(p)
	p.known = false
	m.tidy(p)
}

// Active returns how many leases of a proxy are open.
func (m *Memory) Active(key string) int {
	m.mu.Lock()
	defer m.unlock()
	m.advance()
	if p := m.members[key]; p != nil {
		return p.open.Len()
	}
	return 0
}

// Offered says whether a proxy is known and healthy, so that a lease of it may be granted now or when it comes free.
func (m *Memory) Offered(key string) bool {
	m.mu.Lock()
	defer m.unlock()
	p := m.members[key]
	return p != nil && p.known && p.candidate.Healthy
}

// Counts returns how many leases are open of every proxy that has any, by key.
func (m *Memory) Counts() map[string]int {
	m.mu.Lock()
	defer m.unlock()
	m.advance()
	counts := map[string]int{}
	for _, l := range m.expiry.lists {
		for h := l.first; h != nil; h = h.later {
			counts[h.granted.Key]++
		}
	}
	return counts
}

// Acquire grants leases of the first proxies, in the order of the policy, that match and are free.
func (m *Memory) Acquire(ctx context.Context, r Request) (Grant, error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, err
	}
	var err error
	if r.TTL, err = m.config.ttl(r.TTL, m.config.DefaultTTL); err != nil {
		return Grant{}, err
	}
	if err := m.sync(ctx, backlog); err != nil {
		return Grant{}, err
	}
	a, w := m.ask(&r)
	if w != nil {
		a = m.await(ctx, w)
	}
	if a.err != nil {
		return Grant{}, a.err
	}
	return m.confirm(ctx, a)
}

// ask answers a request, or has it wait.
func (m *Memory) ask(r *Request) (answer, *waiter) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	a, refusal := m.acquire(r, now)
	switch {
	case refusal == nil:
		m.answerOthers(r.ID, now)
		return a, nil
	case r.Wait > 0:
		w := m.enqueue(*r, now)
		m.setAlarm(now)
		return answer{}, w
	}
	m.config.Recorder.LeaseRefused(refusal.reason())
	return answer{err: refusal}, nil
}

// confirm waits until what was granted is durable. A caller that has gone meanwhile gives it back.
func (m *Memory) confirm(ctx context.Context, a answer) (Grant, error) {
	err := m.sync(ctx, 0)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return a.grant, nil
	}
	m.giveBack(a)
	return Grant{}, err
}

// giveBack ends the leases of a grant whose caller has gone, unless the same request, sent again, was given them too. They
// leave no trace: a session has the proxy that it had, and a trial that nobody made is still to be made.
func (m *Memory) giveBack(a answer) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	for i, l := range a.grant.Leases {
		h := m.shelf.findOpen(l.ID)
		if h == nil {
			continue
		}
		if r := h.request; r != nil {
			if r.takers--; r.takers > 0 {
				return
			}
		}
		if i == 0 && a.was != nil {
			m.undoJoin(a.was, l.ID)
		}
		m.undoTrial(h, now)
		m.end(h, now, "released")
	}
	m.serve(now)
}

// undoTrial makes the pairs that a lease tries half open again.
func (m *Memory) undoTrial(h *held, now time.Time) {
	for _, c := range h.proxy.concerning(h.target) {
		if c != nil && c.trial == h {
			c.trial = nil
			c.rest(now)
			m.changing.put(c)
			m.noteCooldown(c)
			m.freed(h.proxy)
		}
	}
}

// Renew lets an open lease last for ttl from now on.
func (m *Memory) Renew(ctx context.Context, id string, ttl time.Duration) (Lease, error) {
	ttl, err := m.config.ttl(ttl, 0)
	if err != nil {
		return Lease{}, err
	}
	if err := m.sync(ctx, backlog); err != nil {
		return Lease{}, err
	}
	l, err := m.renew(id, ttl)
	if err := m.sync(ctx, 0); err != nil {
		return Lease{}, err
	}
	return l, err
}

func (m *Memory) renew(id string, ttl time.Duration) (Lease, error) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	h := m.shelf.findOpen(id)
	switch {
	case m.dead != nil:
		return Lease{}, m.dead
	case h == nil:
		return Lease{}, ErrUnknown
	}
	p := m.leased(h.slot)
	if p == nil {
		return Lease{}, ErrProxyGone
	}
	m.expiry.drop(h)
	h.ttl = cmp.Or(ttl, h.ttl)
	h.expires = now.Add(h.ttl)
	m.expiry.add(h)
	p.open.put(h)
	m.noteLease(h)
	if h.session != nil && m.sessions[h.session.name] == h.session {
		m.prolong(h.session, now)
	}
	m.index.update(p, now) // when it comes free has changed
	m.serve(now)
	return h.lease(), nil
}

// Release ends a lease.
func (m *Memory) Release(ctx context.Context, id string) error {
	if err := m.sync(ctx, backlog); err != nil {
		return err
	}
	m.release(id)
	return m.sync(ctx, 0)
}

func (m *Memory) release(id string) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	if h := m.shelf.findOpen(id); h != nil {
		m.end(h, now, "released")
		m.serve(now)
	}
}

// Report tells what came back from a target.
func (m *Memory) Report(ctx context.Context, id string, r Report) error {
	switch r.Outcome {
	case OK, RateLimited, Banned, Failed:
	default:
		return ErrInvalidResult
	}
	if err := m.sync(ctx, backlog); err != nil {
		return err
	}
	hurry, err := m.report(id, r)
	if hurry != "" {
		m.config.Failed(hurry)
	}
	if err := m.sync(ctx, 0); err != nil {
		return err
	}
	return err
}

// report does the work of Report, and returns the key of the proxy that Config.Failed is to be called with, if any.
func (m *Memory) report(id string, r Report) (hurry string, err error) {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	t := m.shelf.find(id)
	switch {
	case m.dead != nil:
		return "", m.dead
	case t == nil:
		return "", ErrUnknown
	}
	p := m.leased(t)
	if p == nil {
		return "", nil
	}
	target := cmp.Or(r.Target, t.target)
	switch r.Outcome {
	case OK:
		m.succeed(p, t, target, now)
	case RateLimited, Banned:
		m.cool(p, t, target, now)
	case Failed:
		if p.hurry(now) {
			hurry = p.candidate.Key
		}
	}
	m.serve(now)
	return hurry, nil
}

// instance returns a proxy, or nil if that very instance is gone.
func (m *Memory) instance(key, incarnation string) *member {
	p := m.members[key]
	if p == nil || !p.known || p.candidate.Incarnation != incarnation {
		return nil
	}
	return p
}

// leased returns the proxy of a lease, or nil if that very instance is gone.
func (m *Memory) leased(t *slot) *member {
	p := m.instance(t.granted.Key, t.granted.Incarnation)
	if p != nil && t.bare {
		t.granted, t.bare = p.candidate, false
	}
	return p
}

// advance brings the store to the present moment, which it returns.
func (m *Memory) advance() time.Time {
	now := time.Now()
	for h := m.expiry.first(); h != nil && !h.expires.After(now); h = m.expiry.first() {
		m.end(h, h.expires, "expired")
	}
	for id := m.shelf.forget(now); id != ""; id = m.shelf.forget(now) {
		m.note(Record{Lease: id, Gone: true})
	}
	for c, ok := m.changing.first(); ok && !c.change.After(now); c, ok = m.changing.first() {
		m.change(c, now)
	}
	for s, ok := m.resting.first(); ok && !s.forget.After(now); s, ok = m.resting.first() {
		m.resting.drop(s)
		delete(m.sessions, s.name)
		m.note(Record{Session: s.name, Gone: true})
	}
	m.serve(now)
	return now
}

// acquire grants what a request asks for, or says why it cannot. What it logs is not durable yet.
func (m *Memory) acquire(r *Request, now time.Time) (answer, *NoMatch) {
	if m.dead != nil {
		return answer{err: m.dead}, nil
	}
	if earlier := m.requests[r.ID]; earlier != nil { // none is filed under the empty ID
		return m.repeat(earlier, r), nil
	}
	proxies, refusal := m.choose(r, now)
	if refusal != nil {
		return answer{}, refusal
	}
	return m.grant(proxies, r, now), nil
}

// repeat answers a request that was answered before.
func (m *Memory) repeat(earlier *answered, r *Request) answer {
	if !earlier.same(r) {
		return answer{err: ErrRequestMismatch}
	}
	for _, h := range earlier.leases {
		if h.bare && m.leased(h.slot) == nil {
			return answer{err: ErrNotReady} // nobody has set the proxy since the start
		}
	}
	earlier.takers++
	return answer{grant: earlier.grant()}
}

// choose returns the proxies that a request gets: the one of its session, then the first ones of the order. They are good
// until the next call.
func (m *Memory) choose(r *Request, now time.Time) ([]*member, *NoMatch) {
	m.chosen = m.chosen[:0]
	if r.Session != "" {
		if mine := m.proxyOf(m.sessions[r.Session]); mine != nil && mine.matches(r.Selector) && mine.isFree(r.Target, now) {
			m.chosen = append(m.chosen, mine)
		}
	}
	l, exact := m.index.find(r)
	switch {
	case exact:
		m.pick(r, l, true, 0, now)
	case m.index.having(m.index.narrowest(r.Selector)) == 0:
		return nil, &NoMatch{} // no proxy has an attribute that is asked for
	default:
		l = m.pickOver(r, l, now)
	}
	if len(m.chosen) < r.count() {
		return nil, l.refusal(now)
	}
	return m.chosen, nil
}

// pickOver chooses more proxies, from a lane that has others too, or from the request's own, which is made if that pays. It
// returns the one that the last of them are from.
func (m *Memory) pickOver(r *Request, l *lane, now time.Time) *lane {
	making := m.index.having(m.index.narrowest(r.Selector))
	passed := m.pick(r, l, false, making, now)
	if len(m.chosen) == r.count() && !pays(passed, making) {
		return l
	}
	l = m.index.make(r.Selector, m.index.special(r.Target), now)
	m.pick(r, l, true, 0, now)
	return l
}

// pick chooses more proxies, from a lane that is exact or in which so many may be passed over. It returns how many were.
func (m *Memory) pick(r *Request, l *lane, exact bool, most int, now time.Time) (passed int) {
	m.border.begin(l)
	for len(m.chosen) < r.count() && passed <= most {
		switch p := m.border.next(); {
		case p == nil:
			return passed
		case !exact && !(p.matches(r.Selector) && p.isFree(r.Target, now)):
			passed++
		case !slices.Contains(m.chosen, p): // as that of the session is
			m.chosen = append(m.chosen, p)
		}
	}
	return passed
}

// grant grants a lease of each proxy.
func (m *Memory) grant(proxies []*member, r *Request, now time.Time) answer {
	s := m.sessions[r.Session] // none has the empty name
	moved := s != nil && m.proxyOf(s) != proxies[0]
	leases := m.granted[:0]
	for _, p := range proxies {
		leases = append(leases, m.grantOne(p, r, now))
	}
	m.granted = leases
	var was *session
	if r.Session != "" {
		was = m.before(r.Session)
		m.join(r.Session, leases[0], now)
	}
	if r.ID != "" {
		m.file(&answered{Request: *r, leases: slices.Clone(leases), moved: moved, takers: 1})
	}
	for _, h := range leases {
		m.noteLease(h)
	}
	return answer{grant: grantOf(leases, moved), was: was}
}

func (m *Memory) grantOne(p *member, r *Request, now time.Time) *held {
	h := m.shelf.open(p)
	h.target, h.ttl, h.since, h.expires = r.Target, r.TTL, now, now.Add(r.TTL)
	m.expiry.add(h)
	for _, c := range p.concerning(r.Target) {
		if c != nil && c.wantsTrial() {
			c.trial = h
			m.changing.drop(c)
			m.noteCooldown(c)
		}
	}
	p.open.put(h)
	m.grants++
	m.front, p.granted = p.rank, m.grants
	m.stir(p, now)
	m.config.Recorder.LeaseGranted()
	return h
}

// file keeps an answer for as long as its leases are open.
func (m *Memory) file(a *answered) {
	a.Selector = maps.Clone(a.Selector) // the caller may change its own
	m.requests[a.ID] = a
	for _, h := range a.leases {
		h.request = a
	}
}

// unfile forgets the answer that a lease is part of: it is none any more once one of its leases has ended.
func (m *Memory) unfile(h *held) {
	a := h.request
	if a == nil {
		return
	}
	delete(m.requests, a.ID)
	for _, sibling := range a.leases {
		sibling.request = nil
		if sibling != h {
			m.noteLease(sibling)
		}
	}
}

// end ends an open lease at a moment that may have passed.
func (m *Memory) end(h *held, at time.Time, how string) {
	p := h.proxy
	if p.open.Len() >= p.candidate.MaxLeases {
		m.freed(p)
	}
	m.expiry.drop(h)
	p.open.drop(h)
	for _, c := range p.concerning(h.target) {
		if c != nil && c.trial == h {
			c.trial, c.opened = nil, true
			m.closed--
			c.rest(at)
			m.changing.put(c)
			m.noteCooldown(c)
			m.freed(p)
		}
	}
	m.unfile(h)
	m.noteEnd(h, at)
	m.shelf.end(h, at.Add(m.config.CooldownWindow))
	m.stir(p, at)
	m.tidy(p)
	m.config.Recorder.LeaseEnded(how)
}

// stir restores what follows from the open leases of a proxy.
func (m *Memory) stir(p *member, now time.Time) {
	if !p.known {
		return
	}
	p.draw(m.front)
	p.rank = m.config.Policy.Rank(p.standing())
	m.index.update(p, now)
}

// cool starts a cooldown for a ban that a lease reports.
func (m *Memory) cool(p *member, by *slot, target string, now time.Time) {
	c := p.cooldowns[target]
	if c == nil {
		c = m.newCooldown(p, target)
	}
	c.bans = slices.DeleteFunc(c.bans, func(id string) bool { return m.shelf.find(id) == nil }) // it reports no more
	wasOpen := c.opened
	if !c.start(by.id, now, m.config) {
		return
	}
	if wasOpen {
		m.closed++
	}
	m.changing.put(c)
	m.index.update(p, now)
	m.noteCooldown(c)
}

func (m *Memory) newCooldown(p *member, target string) *cooldown {
	c := &cooldown{proxy: p, target: target}
	if p.cooldowns == nil {
		p.cooldowns = map[string]*cooldown{}
	}
	p.cooldowns[target] = c
	m.closed++
	if target != "" {
		m.index.cooling[target]++
	}
	return c
}

// succeed forgets the cooldowns that a success at a target refutes: the one of that target, and the one of the proxy as a
// whole, because whoever is served at one target is not refused everywhere. While a pair cools, or another lease tries it, a
// success says nothing: it may be older than the ban.
func (m *Memory) succeed(p *member, by *slot, target string, now time.Time) {
	for _, c := range p.concerning(target) {
		if c != nil && (c.opened || c.trial != nil && c.trial.slot == by) {
			m.drop(c)
		}
	}
	m.index.update(p, now)
	m.freed(p)
}

// change does what is due for a cooldown: its window is over, or it is forgotten.
func (m *Memory) change(c *cooldown, now time.Time) {
	if c.change.Equal(c.until) {
		c.rest(c.until)
		m.changing.put(c)
	} else {
		m.drop(c)
	}
	m.index.update(c.proxy, now)
	m.freed(c.proxy)
}

// drop forgets a cooldown.
func (m *Memory) drop(c *cooldown) {
	m.changing.drop(c)
	if !c.opened && c.proxy.cooldowns[c.target] == c { // it may be dropped twice
		m.closed--
	}
	delete(c.proxy.cooldowns, c.target)
	if c.target != "" {
		if m.index.cooling[c.target]--; m.index.cooling[c.target] == 0 {
			delete(m.index.cooling, c.target)
		}
	}
	m.tidy(c.proxy)
	m.note(Record{Key: c.proxy.candidate.Key, Target: c.target, Gone: true})
}

func (m *Memory) forgetCooldowns(p *member) {
	for _, c := range p.cooldowns {
		m.drop(c)
	}
}

func (m *Memory) newMember(key string) *member {
	p := &member{candidate: &Candidate{Key: key}}
	p.open.things = p.few[:0]
	m.members[key] = p
	return p
}

// tidy forgets a proxy that was removed once nothing depends on it any more.
func (m *Memory) tidy(p *member) {
	if !p.known && p.open.Len() == 0 && len(p.cooldowns) == 0 {
		delete(m.members, p.candidate.Key)
	}
}
