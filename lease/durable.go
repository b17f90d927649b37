package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What an operation changes is noted record by record, and handed to the log in one piece before the lock is let go of and
// before anybody who waits is answered: after a crash each operation is there as a whole, or not at all with all that came
// after it. An answer is given when everything that was handed over by then is durable, whoever changed it, because it may
// rest on any of it: a release that is repeated must not be answered before the first one is durable. Only [NoMatch] does
// not wait; nobody keeps it.

// backlog is how many records may wait for the disk before whoever wants to add more waits first, without the lock. So a
// disk that hangs costs a bounded amount of memory.
const backlog = 1 << 16

// unlock hands what was noted to the log, and unlocks.
func (m *Memory) unlock() {
	m.flush()
	m.mu.Unlock()
}

// flush hands what was noted to the log.
func (m *Memory) flush() {
	if len(m.noted) == 0 {
		return
	}
	m.logged.Store(m.config.Log.Append(m.noted...))
	clear(m.noted)
	m.noted = m.noted[:0]
	if cap(m.noted) > backlog {
		m.noted = nil
	}
}

// sync waits until all that was handed to the log is durable, but for the last few. If that fails, memory is ahead of what a
// crash would leave, and nothing that the store says may be relied on any more.
func (m *Memory) sync(ctx context.Context, few uint64) error {
	n := m.logged.Load()
	if n <= few { // without a log it is 0
		return nil
	}
	err := m.config.Log.Sync(ctx, n-few)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	}
	m.stop()
	return fmt.Errorf("%w: its log failed: %w", ErrNotReady, err)
}

// stop ends all service.
func (m *Memory) stop() {
	m.mu.Lock()
	defer m.unlock()
	m.dead = ErrNotReady
	for _, q := range m.waiting.queues {
		for q.waiters.Len() > 0 {
			m.give(q.head(), answer{err: ErrNotReady})
		}
	}
}

func (m *Memory) note(r Record) {
	if m.config.Log != nil {
		m.noted = append(m.noted, r)
	}
}

func (m *Memory) noteLease(h *held) {
	if m.config.Log == nil {
		return
	}
	r := recordOf(h.slot)
	switch {
	case h.request != nil:
		request := h.request.Request
		r.Request, r.Moved, r.Place = &request, h.request.moved, slices.Index(h.request.leases, h)
	case h.session != nil:
		r.Request = &Request{Session: h.session.name}
	}
	r.Expires, r.TTL = h.expires, h.ttl
	m.note(r)
}

func (m *Memory) noteEnd(h *held, at time.Time) {
	if m.config.Log == nil {
		return
	}
	r := recordOf(h.slot)
	r.Ended = at
	m.note(r)
}

// recordOf is the part of a record that open leases and ended ones have in common.
func recordOf(t *slot) Record {
	return Record{Lease: t.id, Key: t.granted.Key, Incarnation: t.granted.Incarnation, Target: t.target}
}

func (m *Memory) noteSession(s *session) {
	m.note(Record{Session: s.name, Key: s.key, Incarnation: s.incarnation, Until: s.forget})
}

func (m *Memory) noteCooldown(c *cooldown) {
	if m.config.Log == nil {
		return
	}
	r := Record{Key: c.proxy.candidate.Key, Incarnation: c.proxy.candidate.Incarnation, Target: c.target,
		Until: c.until, Window: c.window, Steps: c.steps, Opened: c.opened, Change: c.change, Bans: slices.Clone(c.bans)}
	if c.trial != nil {
		r.Trial = c.trial.id
	}
	m.note(r)
}

// restore takes over what the log remembers. What is over by now is so for the first call of the store.
func (m *Memory) restore() error {
	if m.config.Log == nil {
		return nil
	}
	now := time.Now()
	var leases, cooldowns []Record // which are named by others
	err := m.config.Log.Load(func(r Record) error {
		switch {
		case r.Lease != "":
			leases = append(leases, r)
		case r.Session != "":
			m.restoreSession(r, now)
		default:
			cooldowns = append(cooldowns, r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lease: the log cannot be read: %w", err)
	}
	if err := m.restoreLeases(leases, now); err != nil {
		return err
	}
	for _, r := range cooldowns {
		m.restoreCooldown(r, now)
	}
	return nil
}

func (m *Memory) restoreSession(r Record, now time.Time) {
	s := &session{name: r.Session, key: r.Key, incarnation: r.Incarnation, forget: onThisClock(r.Until, now, m.config.MaxTTL)}
	m.sessions[s.name] = s
	m.resting.put(s)
}

// restoreLeases takes leases over in the order in which they expire or have ended.
func (m *Memory) restoreLeases(records []Record, now time.Time) error {
	for i := range records {
		r := &records[i]
		if r.Ended.IsZero() {
			r.Expires = onThisClock(r.Expires, now, r.TTL)
		} else {
			r.Ended = onThisClock(r.Ended, now, 0)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return later(a.Expires, a.Ended).Compare(later(b.Expires, b.Ended)) })
	for _, r := range records {
		t, ok := m.shelf.claim(r.Lease)
		if !ok {
			return errors.New("lease: the log has two leases in one place, or an ID that no store gave")
		}
		t.granted, t.bare, t.target = &Candidate{Key: r.Key, Incarnation: r.Incarnation}, true, r.Target
		if !r.Ended.IsZero() {
			m.shelf.keep(t, r.Ended.Add(m.config.CooldownWindow))
			continue
		}
		h := m.shelf.hold(t, m.restored(r))
		h.ttl, h.expires = r.TTL, r.Expires
		m.expiry.add(h)
		h.proxy.open.put(h)
		m.restoreRequest(h, r)
	}
	m.shelf.ready()
	for _, a := range m.requests {
		m.dropIncomplete(a)
	}
	return nil
}

// dropIncomplete forgets an answer of which not all leases are there. No store leaves such a log.
func (m *Memory) dropIncomplete(a *answered) {
	if !slices.Contains(a.leases, nil) {
		return
	}
	delete(m.requests, a.ID)
	for _, h := range a.leases {
		if h != nil {
			h.request = nil
		}
	}
}

// restoreRequest makes a lease an answer again to the request that got it.
func (m *Memory) restoreRequest(h *held, r Record) {
	if r.Request == nil {
		return
	}
	if r.Place == 0 {
		h.session = m.sessions[r.Request.Session]
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
	p := m.restored(r)
	p.candidate.Incarnation = r.Incarnation // its cooldowns are of the newest one, its leases may be of earlier ones
	c := m.newCooldown(p, r.Target)
	c.window, c.steps, c.bans, c.opened = r.Window, r.Steps, r.Bans, r.Opened
	if r.Change.Equal(r.Until) {
		c.until = onThisClock(r.Until, now, r.Window)
		c.change = c.until
	} else { // the window was over
		c.until = onThisClock(r.Until, now, 0)
		c.change = onThisClock(r.Change, now, r.Window)
	}
	if c.opened {
		m.closed--
	}
	if c.trial = m.shelf.findOpen(r.Trial); c.trial == nil {
		m.changing.put(c)
	}
}

// restored returns the proxy of a record, which nobody has set yet.
func (m *Memory) restored(r Record) *member {
	if p := m.members[r.Key]; p != nil {
		return p
	}
	return m.newMember(r.Key)
}

// onThisClock is a moment of another process's clock on this one's, but no later than a time from now: a clock that was set
// back in between does not make anything last longer than it was to.
func onThisClock(t, now time.Time, longest time.Duration) time.Time {
	return now.Add(min(t.Sub(now), longest)) // on the monotonic clock
}
