package lease

import (
	"fmt"
	"slices"
	"time"
)

// log hands records to the log, if there is one.
func (m *Memory) log(records ...Record) (logged uint64) {
	if m.config.Log == nil {
		return 0
	}
	return m.config.Log.Append(records...)
}

// sync waits until what was logged is durable. If that fails, memory is ahead of what a crash would leave, and nothing that
// the store says may be relied on any more.
func (m *Memory) sync(logged uint64) error {
	if m.config.Log == nil || logged == 0 {
		return nil
	}
	if err := m.config.Log.Sync(logged); err != nil {
		m.stop()
		return fmt.Errorf("%w: its log failed: %w", ErrNotReady, err)
	}
	return nil
}

// stop ends all service.
func (m *Memory) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = ErrNotReady
	for _, q := range m.waiting.queues {
		for q.waiters.Len() > 0 {
			m.give(q.head(), answer{err: ErrNotReady})
		}
	}
}

// recordOf is what the log is to remember of a lease.
func (m *Memory) recordOf(h *held) Record {
	if m.config.Log == nil {
		return Record{}
	}
	r := Record{Lease: h.id, Key: h.granted.Key, Incarnation: h.granted.Incarnation, Target: h.target, Expires: h.expires, TTL: h.ttl}
	if h.open() {
		if h.request != nil {
			request := h.request.Request
			r.Request, r.Moved, r.Place = &request, h.request.moved, slices.Index(h.request.leases, h)
		} else if h.session != nil {
			r.Request = &Request{Session: h.session.name}
		}
	} else {
		r.Ended = h.forget.Add(-m.config.CooldownWindow)
	}
	return r
}

// restore takes over what the log remembers. What is over by now is forgotten by the first call of the store.
func (m *Memory) restore() error {
	if m.config.Log == nil {
		return nil
	}
	var leases, cooldowns []Record
	err := m.config.Log.Load(func(r Record) error {
		if r.Lease != "" {
			leases = append(leases, r)
		} else {
			cooldowns = append(cooldowns, r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lease: the log cannot be read: %w", err)
	}
	now := time.Now()
	m.restoreLeases(leases, now)
	for _, r := range cooldowns {
		m.restoreCooldown(r, now)
	}
	return nil
}

// restoreLeases takes leases over in the order in which they expire or have ended.
func (m *Memory) restoreLeases(records []Record, now time.Time) {
	for i := range records {
		records[i].Expires = onThisClock(records[i].Expires, now, records[i].TTL)
	}
	slices.SortFunc(records, func(a, b Record) int { return a.over().Compare(b.over()) })
	for _, r := range records {
		h := &held{id: r.Lease, granted: &Candidate{Key: r.Key, Incarnation: r.Incarnation}, bare: true,
			target: r.Target, ttl: r.TTL, expires: r.Expires}
		m.leases[h.id] = h
		p := m.member(r.Key, r.Incarnation)
		if over := r.over(); !r.Ended.IsZero() || !over.After(now) {
			h.forget = over.Add(m.config.CooldownWindow)
			m.past.push(h)
			m.tidy(p)
			continue
		}
		m.expiry.add(h)
		p.open.put(h)
		m.restoreRequest(h, r, now)
	}
}

// over is when the lease of a record has ended or will end.
func (r *Record) over() time.Time {
	if r.Ended.IsZero() {
		return r.Expires
	}
	return r.Ended
}

// restoreRequest makes a lease an answer again to the request that got it.
func (m *Memory) restoreRequest(h *held, r Record, now time.Time) {
	if r.Request == nil {
		return
	}
	if r.Request.Session != "" && r.Place == 0 {
		m.join(r.Request.Session, h, now)
	}
	if r.Request.ID == "" {
		return
	}
	a := m.requests[r.Request.ID]
	if a == nil {
		a = &answered{Request: *r.Request, leases: make([]*held, r.Request.count()), moved: r.Moved, takers: 1}
		m.requests[r.Request.ID] = a
	}
	if r.Place < len(a.leases) {
		a.leases[r.Place] = h
		h.request = a
	}
}

func (m *Memory) restoreCooldown(r Record, now time.Time) {
	c := m.newCooldown(m.member(r.Key, r.Incarnation), r.Target)
	c.window, c.steps, c.bans, c.opened = r.Window, r.Steps, r.Bans, r.Opened
	c.until = onThisClock(r.Until, now, r.Window)
	c.change = onThisClock(r.Change, now, 2*r.Window)
	if trial := m.leases[r.Trial]; trial != nil && trial.open() {
		c.trial = trial
		return
	}
	if c.opened = c.opened || r.Trial != ""; c.opened {
		m.closed--
	}
	m.changing.put(c)
}

// member returns the proxy of a record, which nobody has set yet.
func (m *Memory) member(key, incarnation string) *member {
	p := m.members[key]
	if p == nil {
		p = m.newMember(key)
		p.candidate.Incarnation = incarnation
	}
	return p
}

// onThisClock is a moment of another process's clock on this one's, but no later than a time from now: a clock that was set
// back in between does not make anything last longer than it was to.
func onThisClock(t, now time.Time, longest time.Duration) time.Time {
	return now.Add(min(t.Sub(now), longest)) // on the monotonic clock
}
