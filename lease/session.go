package lease

import "time"

// session is a series of requests that should go through one proxy. It is remembered until the longest TTL has passed
// since its last grant or renewal, so that no session ends while one of its leases is open.
type session struct {
	name        string
	key         string // of the proxy that it has
	incarnation string
	last        string // the ID of the lease of its last grant
	forget      time.Time
	slot        int
}

func (s *session) due() time.Time { return s.forget }
func (s *session) place() *int    { return &s.slot }

// proxyOf returns the proxy that a session has, or nil if that very instance is gone or there is no session.
func (m *Memory) proxyOf(s *session) *member {
	if s == nil {
		return nil
	}
	return m.instance(s.key, s.incarnation)
}

// before returns a session as it is now.
func (m *Memory) before(name string) *session {
	if s := m.sessions[name]; s != nil {
		was := *s
		return &was
	}
	return &session{name: name}
}

// undoJoin makes a session again what it was before a lease became part of it, unless there was another grant since.
func (m *Memory) undoJoin(was *session, id string) {
	s := m.sessions[was.name]
	switch {
	case s == nil || s.last != id:
	case was.key == "":
		m.resting.drop(s)
		delete(m.sessions, s.name)
		m.note(Record{Session: s.name, Gone: true})
	default:
		s.key, s.incarnation, s.last = was.key, was.incarnation, was.last
		m.noteSession(s)
	}
}

// join makes a lease part of a session, which has its proxy from now on.
func (m *Memory) join(name string, h *held, now time.Time) {
	s := m.sessions[name]
	if s == nil {
		s = &session{name: name}
		m.sessions[name] = s
	}
	s.key, s.incarnation, s.last = h.granted.Key, h.granted.Incarnation, h.id
	h.session = s
	m.prolong(s, now)
}

func (m *Memory) prolong(s *session, now time.Time) {
	s.forget = now.Add(m.config.MaxTTL)
	m.resting.put(s)
	m.noteSession(s)
}
