package lease_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

// model is the memory store as a child would write it: lists, no order that is kept, every question answered by looking
// at everything. The store must agree with it on every answer.
type model struct {
	policy    lease.Policy
	proxies   map[string]*modelProxy
	leases    map[string]*modelLease
	cooldowns map[pair]*modelCooldown
	sessions  map[string]*modelSession
	grants    uint64
}

type modelProxy struct {
	lease.Candidate
	known   bool
	granted uint64
}

type modelSession struct {
	key, incarnation string
	last             time.Time // grant or renewal
}

type modelLease struct {
	lease.Lease
	key, incarnation string
	request          lease.Request
	siblings         []string // of the same grant, itself included
	moved            bool
	session          *modelSession // of the first lease of a grant
	ended            time.Time
	bare             bool // granted by an earlier process, and not asked for since: the store knows no endpoint
}

type pair struct{ key, target string }

type modelCooldown struct {
	window       time.Duration
	until, quiet time.Time // quiet is since when nothing has happened
	trial        string
	opened       bool
	bans         map[string]bool
}

func newModel(p lease.Policy) *model {
	return &model{p, map[string]*modelProxy{}, map[string]*modelLease{}, map[pair]*modelCooldown{}, map[string]*modelSession{}, 0}
}

// tick brings the model to the present moment.
func (m *model) tick() time.Time {
	now := time.Now()
	for _, l := range m.leases {
		if l.ended.IsZero() && !now.Before(l.Expires) {
			m.end(l, l.Expires)
		}
	}
	maps.DeleteFunc(m.leases, func(_ string, l *modelLease) bool {
		return !l.ended.IsZero() && !now.Before(l.ended.Add(window))
	})
	maps.DeleteFunc(m.cooldowns, func(_ pair, c *modelCooldown) bool {
		return c.trial == "" && !now.Before(c.quiet.Add(c.window))
	})
	maps.DeleteFunc(m.sessions, func(_ string, s *modelSession) bool { return !now.Before(s.last.Add(time.Hour)) })
	return now
}

func (m *model) end(l *modelLease, at time.Time) {
	l.ended = at
	for _, c := range m.cooldowns {
		if c.trial == l.ID {
			c.trial, c.opened, c.quiet = "", true, at
		}
	}
}

// open returns the open leases of a key, those that expire first in front.
func (m *model) open(key string) (open []*modelLease) {
	for _, l := range m.leases {
		if l.key == key && l.ended.IsZero() {
			open = append(open, l)
		}
	}
	slices.SortFunc(open, func(a, b *modelLease) int { return a.Expires.Compare(b.Expires) })
	return open
}

func (m *model) rank(p *modelProxy) lease.Rank {
	return m.policy.Rank(lease.Standing{Candidate: &p.Candidate, Active: len(m.open(p.Key)), Granted: p.granted})
}

func (m *model) matching(selector map[string]string) (found []*modelProxy) {
	for _, p := range m.proxies {
		matches := p.known
		for k, v := range selector {
			matches = matches && p.Attributes[k] == v
		}
		if matches {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *modelProxy) int {
		x, y := m.rank(a), m.rank(b)
		return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B), cmp.Compare(a.Key, b.Key))
	})
	return found
}

// blocked returns how long cooldowns keep a proxy from a target.
func (m *model) blocked(key, target string, now time.Time) (wait time.Duration) {
	for _, c := range []*modelCooldown{m.cooldowns[pair{key, target}], m.cooldowns[pair{key, ""}]} {
		switch {
		case c == nil:
		case now.Before(c.until):
			wait = max(wait, c.until.Sub(now))
		case c.trial != "":
			wait = max(wait, m.leases[c.trial].Expires.Sub(now))
		}
	}
	return wait
}

// choose returns the proxies that must be granted, or the numbers that must be told.
func (m *model) choose(r lease.Request, now time.Time) (best []*modelProxy, refusal lease.NoMatch) {
	var waits []time.Duration
	for _, p := range m.matching(r.Selector) {
		open, blocked := m.open(p.Key), m.blocked(p.Key, r.Target, now)
		refusal.Considered++
		switch {
		case !p.Healthy:
			refusal.Unhealthy++
		case len(open) >= p.MaxLeases:
			refusal.AtCapacity++
			if len(open) > 0 && len(open) == p.MaxLeases {
				waits = append(waits, max(blocked, open[0].Expires.Sub(now)))
			}
		case blocked > 0:
			refusal.InCooldown++
			waits = append(waits, blocked)
		default:
			refusal.Eligible++
			if s := m.sessions[r.Session]; s != nil && s.key == p.Key && s.incarnation == p.Incarnation {
				best = slices.Insert(best, 0, p)
			} else {
				best = append(best, p)
			}
		}
	}
	if n := max(1, r.Count); len(best) >= n {
		return best[:n], lease.NoMatch{}
	}
	if len(waits) > 0 {
		refusal.RetryAfter = slices.Min(waits)
	}
	return nil, refusal
}

// moved says whether a session has another proxy than it is about to get.
func (m *model) moved(r lease.Request, p *modelProxy) bool {
	s := m.sessions[r.Session]
	return s != nil && (s.key != p.Key || s.incarnation != p.Incarnation)
}

// granted writes down what the store has granted.
func (m *model) granted(g lease.Grant, proxies []*modelProxy, r lease.Request, now time.Time) {
	var siblings []string
	for _, l := range g.Leases {
		siblings = append(siblings, l.ID)
	}
	for i, l := range g.Leases {
		p := proxies[i]
		m.leases[l.ID] = &modelLease{Lease: l, key: p.Key, incarnation: p.Incarnation, request: r, siblings: siblings, moved: g.Moved}
		m.grants++
		p.granted = m.grants
		for _, target := range []string{r.Target, ""} {
			if c := m.cooldowns[pair{p.Key, target}]; c != nil && !c.opened && c.trial == "" {
				c.trial = l.ID
			}
		}
	}
	if r.Session != "" {
		s := m.sessions[r.Session]
		if s == nil {
			s = new(modelSession)
			m.sessions[r.Session] = s
		}
		*s = modelSession{proxies[0].Key, proxies[0].Incarnation, now}
		m.leases[siblings[0]].session = s
	}
}

// retried returns the grant that belongs to a request's ID, if all of its leases are open.
func (m *model) retried(r lease.Request) (*modelLease, lease.Grant) {
	for _, l := range m.leases {
		if r.ID == "" || l.request.ID != r.ID {
			continue
		}
		g := lease.Grant{Moved: l.moved}
		for _, id := range l.siblings {
			if sibling := m.leases[id]; sibling != nil && sibling.ended.IsZero() {
				g.Leases = append(g.Leases, sibling.Lease)
			}
		}
		if len(g.Leases) == len(l.siblings) {
			return l, g
		}
	}
	return nil, lease.Grant{}
}

// instance says whether the proxy of a lease is still the one that was leased.
func (m *model) instance(l *modelLease) bool {
	p := m.proxies[l.key]
	return p.known && p.Incarnation == l.incarnation
}

// knows notes that the store has found the proxy of a lease, and says whether it knows it now.
func (m *model) knows(l *modelLease) bool {
	if l.bare && m.instance(l) {
		l.Proxy, l.bare = m.proxies[l.key].Endpoint, false
		l.Proxy.Attributes = m.proxies[l.key].Attributes
	}
	return !l.bare
}

func (m *model) report(l *modelLease, r lease.Report, now time.Time) {
	target := cmp.Or(r.Target, l.Target)
	c := m.cooldowns[pair{l.key, target}]
	switch r.Outcome {
	case lease.OK:
		for _, of := range []pair{{l.key, target}, {l.key, ""}} {
			if c := m.cooldowns[of]; c != nil && (c.trial == l.ID || c.opened) {
				delete(m.cooldowns, of)
			}
		}
	case lease.Banned, lease.RateLimited:
		if c == nil {
			c = &modelCooldown{bans: map[string]bool{}}
			m.cooldowns[pair{l.key, target}] = c
		}
		if !now.Before(c.until) && !c.bans[l.ID] {
			c.window = min(max(window, 2*c.window), 6*time.Hour)
			c.until, c.trial, c.opened, c.bans[l.ID] = now.Add(c.window), "", false, true
			c.quiet = c.until
		}
	}
}

func (m *model) set(c lease.Candidate) {
	if p := m.proxies[c.Key]; p != nil && p.Incarnation != c.Incarnation {
		maps.DeleteFunc(m.cooldowns, func(of pair, _ *modelCooldown) bool { return of.key == c.Key })
	}
	p := m.proxies[c.Key]
	if p == nil || !p.known && !m.remembered(c.Key) {
		p = &modelProxy{}
		m.proxies[c.Key] = p
	}
	p.Candidate, p.known = c, true
}

// remembered says whether a proxy that was removed is the same one when it comes back.
func (m *model) remembered(key string) bool {
	for of := range m.cooldowns {
		if of.key == key {
			return true
		}
	}
	return len(m.open(key)) > 0
}

// world is what a walk may come across.
type world struct {
	names, targets, sessions []string
	attributes               []choice // of proxies
	recent                   int      // of so many leases one is taken up again
}

// choice is the values that an attribute may have. No proxy has the last one.
type choice struct {
	key    string
	values []string
}

var small = world{
	names:      []string{"a", "b", "c", "d"},
	targets:    []string{"", "shop", "news"},
	sessions:   []string{"x", "y"},
	attributes: []choice{{"country", []string{"nl", "de", "fr"}}},
	recent:     12,
}

// walker does random things to a store and the model alike.
type walker struct {
	world
	*testing.T
	*rand.Rand
	store *lease.Memory
	model *model
	ids   []string       // of all leases ever granted
	seen  map[string]int // what happened how often
}

func TestRandomWalk(t *testing.T) {
	walks, steps := 60, 1500
	if testing.Short() {
		walks = 6
	}
	seen := map[string]int{}
	for n := range walks {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := []lease.Policy{leastBusy{}, fastest{}, lease.Spread{}, lease.Fastest{}}[n%4]
				config := lease.Config{Policy: policy}
				if n%4 == 0 {
					config.Policy = nil // the default, which the model has to know
				}
				w := &walker{small, t, rand.New(rand.NewPCG(1, uint64(n))), newMemory(t, config), newModel(policy), []string{"never granted"}, seen}
				for range steps {
					w.step()
					if t.Failed() {
						return
					}
				}
				w.forgetsAll()
			})
		})
	}
	for _, what := range []string{
		"granted", "retried", "mismatch", "unhealthy", "at capacity", "in cooldown", "nothing matches", "trial out",
		"renewed", "renewed gone", "renewed unknown", "reported", "reported gone", "reported late", "reported unknown",
		"granted several", "moved",
	} {
		if seen[what] < walks {
			t.Errorf("%q was seen %d times in %d walks: the walk does not go there", what, seen[what], walks)
		}
	}
}

// leastBusy is the default policy, written anew.
type leastBusy struct{}

func (leastBusy) Rank(s lease.Standing) lease.Rank {
	return lease.Rank{A: uint64(s.Active), B: uint64(s.Latency)}
}

func (w *walker) step() {
	w.Helper()
	switch w.IntN(12) {
	case 0, 1, 2, 3:
		w.acquire()
	case 4:
		w.renew()
	case 5:
		w.release()
	case 6, 7:
		w.report()
	case 8:
		w.set()
	case 9:
		if w.IntN(3) == 0 {
			w.remove()
		}
	default: // now and then long enough for everything to be over, and often exactly as long as something takes
		time.Sleep([]time.Duration{1, time.Second, time.Minute, ttl, window, time.Duration(w.Int64N(int64(time.Hour)))}[w.IntN(6)])
	}
	w.model.tick()
	want := map[string]int{}
	for key := range w.model.proxies {
		if n := len(w.model.open(key)); n > 0 {
			want[key] = n
		}
	}
	if d := gocmp.Diff(want, w.store.Counts()); d != "" {
		w.Fatalf("counts differ (-model +store):\n%s", d)
	}
	if w.IntN(10) == 0 {
		w.viewed()
	}
}

func (w *walker) target() string { return w.one(w.targets) }

func (w *walker) one(of []string) string { return of[w.IntN(len(of))] }

// some returns the ID of a lease, mostly a recent one.
func (w *walker) some() string { return w.ids[len(w.ids)-1-w.IntN(min(len(w.ids), w.recent))] }

func (w *walker) request() lease.Request {
	r := lease.Request{Target: w.target(), TTL: []time.Duration{0, time.Second, time.Minute, time.Hour}[w.IntN(4)]}
	if w.IntN(3) == 0 {
		r.Selector = map[string]string{}
		for len(r.Selector) == 0 || len(r.Selector) < len(w.attributes) && w.IntN(3) == 0 {
			c := w.attributes[w.IntN(len(w.attributes))]
			r.Selector[c.key] = w.one(c.values)
		}
	}
	if w.IntN(4) == 0 {
		r.Session = w.one(w.sessions)
	}
	if w.IntN(5) == 0 {
		r.Count = w.IntN(4)
	}
	if w.IntN(3) == 0 {
		r = lease.Request{Count: w.IntN(3), ID: fmt.Sprint(w.IntN(4)), TTL: []time.Duration{0, time.Hour}[w.IntN(2)]}
	}
	return r
}

func (w *walker) acquire() {
	w.Helper()
	r := w.request()
	g, err := w.store.Acquire(w.Context(), r)
	now := w.model.tick()
	r.TTL = cmp.Or(r.TTL, ttl)
	if l, _ := w.model.retried(r); l != nil {
		w.acquireAgain(r, l, g, err)
		return
	}
	best, refusal := w.model.choose(r, now)
	if best == nil || refusal.Considered > 0 {
		w.refused(r, refusal, err)
		return
	}
	if err != nil {
		w.Fatalf("Acquire(%+v): %v, want %s", r, err, best[0].Key)
	}
	want := lease.Grant{Moved: w.model.moved(r, best[0])}
	for i, p := range best {
		l := lease.Lease{Proxy: p.Endpoint, Target: r.Target, Expires: now.Add(r.TTL), TTL: r.TTL}
		l.Proxy.Attributes = p.Attributes
		if i < len(g.Leases) {
			l.ID = g.Leases[i].ID
		}
		want.Leases = append(want.Leases, l)
	}
	if d := gocmp.Diff(want, g); d != "" {
		w.Fatalf("Acquire(%+v) differs (-model +store):\n%s", r, d)
	}
	w.model.granted(g, best, r, now)
	for _, l := range g.Leases {
		w.ids = append(w.ids, l.ID)
	}
	w.seen["granted"]++
	w.seen["granted several"] += min(len(g.Leases)-1, 1)
	if g.Moved {
		w.seen["moved"]++
	}
}

func (w *walker) acquireAgain(r lease.Request, l *modelLease, g lease.Grant, err error) {
	w.Helper()
	if r.TTL != l.request.TTL || max(1, r.Count) != max(1, l.request.Count) || r.Target != l.request.Target || !maps.Equal(r.Selector, l.request.Selector) {
		w.wants(lease.ErrRequestMismatch, err)
		w.seen["mismatch"]++
		return
	}
	for _, id := range l.siblings {
		if !w.model.knows(w.model.leases[id]) {
			w.wants(lease.ErrNotReady, err)
			return
		}
	}
	w.wants(nil, err)
	_, want := w.model.retried(r)
	if d := gocmp.Diff(want, g); d != "" {
		w.Fatalf("the retried lease differs (-model +store):\n%s", d)
	}
	w.seen["retried"]++
}

func (w *walker) refused(r lease.Request, want lease.NoMatch, err error) {
	w.Helper()
	got, ok := errors.AsType[*lease.NoMatch](err)
	if !ok {
		w.Fatalf("Acquire(%+v): error is %v, want a NoMatch", r, err)
	}
	if d := gocmp.Diff(want, *got); d != "" {
		w.Fatalf("Acquire(%+v): numbers differ (-model +store):\n%s", r, d)
	}
	if got.Considered != got.Unhealthy+got.AtCapacity+got.InCooldown+got.Eligible {
		w.Fatalf("numbers do not add up: %+v", *got)
	}
	for what, n := range map[string]int{"unhealthy": got.Unhealthy, "at capacity": got.AtCapacity, "in cooldown": got.InCooldown} {
		w.seen[what] += min(n, 1)
	}
	if got.Considered == 0 {
		w.seen["nothing matches"]++
	}
	for _, c := range w.model.cooldowns {
		if c.trial != "" && got.InCooldown > 0 {
			w.seen["trial out"]++
		}
	}
}

func (w *walker) renew() {
	w.Helper()
	id, d := w.some(), []time.Duration{0, time.Second, time.Hour}[w.IntN(3)]
	got, err := w.store.Renew(w.Context(), id, d)
	now := w.model.tick()
	l := w.model.leases[id]
	switch {
	case l == nil || !l.ended.IsZero():
		w.wants(lease.ErrUnknown, err)
		w.seen["renewed unknown"]++
	case !w.model.instance(l):
		w.wants(lease.ErrProxyGone, err)
		w.seen["renewed gone"]++
	default:
		w.wants(nil, err)
		w.model.knows(l)
		l.TTL = cmp.Or(d, l.TTL)
		l.Expires = now.Add(l.TTL)
		if s := l.session; s != nil && w.model.sessions[l.request.Session] == s {
			s.last = now
		}
		if diff := gocmp.Diff(l.Lease, got); diff != "" {
			w.Fatalf("the renewed lease differs (-model +store):\n%s", diff)
		}
		w.seen["renewed"]++
	}
}

func (w *walker) release() {
	w.Helper()
	id := w.some()
	w.wants(nil, w.store.Release(w.Context(), id))
	now := w.model.tick()
	if l := w.model.leases[id]; l != nil && l.ended.IsZero() {
		w.model.end(l, now)
	}
}

func (w *walker) report() {
	w.Helper()
	id := w.some()
	r := lease.Report{Target: w.target(), Outcome: []lease.Outcome{lease.OK, lease.Banned, lease.RateLimited, lease.Failed}[w.IntN(4)]}
	err := w.store.Report(w.Context(), id, r)
	now := w.model.tick()
	l := w.model.leases[id]
	switch {
	case l == nil:
		w.wants(lease.ErrUnknown, err)
		w.seen["reported unknown"]++
	case !w.model.instance(l):
		w.wants(nil, err)
		w.seen["reported gone"]++
	default:
		w.wants(nil, err)
		w.model.knows(l)
		w.model.report(l, r, now)
		w.seen["reported"]++
		if !l.ended.IsZero() {
			w.seen["reported late"]++
		}
	}
}

func (w *walker) name() string { return w.one(w.names) }

func (w *walker) set() {
	c := proxy(w.name(), w.IntN(4))
	c.Healthy = w.IntN(4) > 0
	c.Latency = time.Duration(w.IntN(3)) * time.Millisecond
	c.Attributes = map[string]string{}
	for _, a := range w.attributes {
		c.Attributes[a.key] = w.one(a.values[:len(a.values)-1])
	}
	if w.IntN(4) == 0 {
		c.Incarnation = "second"
	}
	w.store.Set(c)
	w.model.tick()
	w.model.set(c)
}

func (w *walker) remove() {
	key := "default/" + w.name()
	w.store.Remove(key)
	w.model.tick()
	if p := w.model.proxies[key]; p != nil {
		p.known = false
	}
}

func (w *walker) wants(want, err error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("error is %v, want %v", err, want)
	}
}

// forgetsAll checks that nothing stays behind once everything is over.
func (w *walker) forgetsAll() {
	w.Helper()
	for key := range w.model.proxies {
		w.store.Remove(key)
	}
	time.Sleep(time.Hour + 2*window)
	if n := w.store.Remembered(); n > 0 {
		w.Errorf("the store still remembers %d things", n)
	}
}
