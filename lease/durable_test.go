package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/boltlog"
)

// ledger is a log in memory, which remembers how it came to be what it is.
type ledger struct {
	sync  func(ctx context.Context, n uint64) error // nil: all is durable at once
	pause time.Duration                             // how long Append takes

	mu    sync.Mutex
	from  map[name]lease.Record // what it begins with
	calls [][]lease.Record
	n     uint64
}

// name is what a record is about.
type name struct{ lease, session, key, target string }

func nameOf(r lease.Record) name {
	switch {
	case r.Lease != "":
		return name{lease: r.Lease}
	case r.Session != "":
		return name{session: r.Session}
	}
	return name{key: r.Key, target: r.Target}
}

func (l *ledger) Load(fn func(lease.Record) error) error {
	for _, r := range l.after(-1) {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) Append(records ...lease.Record) uint64 {
	if l.pause > 0 {
		time.Sleep(l.pause)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, append([]lease.Record(nil), records...))
	l.n += uint64(len(records))
	return l.n
}

func (l *ledger) Sync(ctx context.Context, n uint64) error {
	if l.sync != nil {
		return l.sync(ctx, n)
	}
	return nil
}

// after returns what is remembered after so many calls of Append; -1 stands for all of them.
func (l *ledger) after(calls int) map[name]lease.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if calls < 0 {
		calls = len(l.calls)
	}
	all := maps.Clone(l.from)
	if all == nil {
		all = map[name]lease.Record{}
	}
	for _, call := range l.calls[:calls] {
		for _, r := range call {
			if all[nameOf(r)] = r; r.Gone {
				delete(all, nameOf(r))
			}
		}
	}
	return all
}

// restarts is a walker whose store ends now and then, and is followed by another one over the same log.
type restarts struct {
	*walker
	config lease.Config
	reopen func() lease.Log
}

func (w *restarts) restart() {
	w.Helper()
	w.config.Log = w.reopen()
	w.store = newMemory(w.T, w.config)
	w.model.tick()
	for _, l := range w.model.leases {
		l.bare = true
	}
	for _, p := range w.model.proxies { // in any order
		if p.known {
			w.store.Set(p.Candidate)
		}
	}
}

// TestRestarts: a store that takes over a log answers as the one would that has left it. The walk is the usual one, with
// restarts between its steps, and the model, which knows of none, must agree with every answer.
func TestRestarts(t *testing.T) {
	walks, steps := 16, 1500
	if testing.Short() {
		walks = 4
	}
	for n := range walks {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "leases.db")
			synctest.Test(t, func(t *testing.T) {
				policy := []lease.Policy{leastBusy{}, fastest{}}[n%2]
				w := &restarts{config: lease.Config{Policy: policy}, reopen: reopener(t, path, n%4 == 0)}
				w.walker = &walker{small, t, rand.New(rand.NewPCG(2, uint64(n))), nil, newModel(policy), []string{"never granted"}, map[string]int{}}
				w.restart()
				for i := range steps {
					if w.step(); w.IntN(30) == 0 {
						w.restart()
						w.viewed()
					}
					if t.Failed() {
						t.Fatalf("step %d", i)
					}
				}
				w.forgetsAll()
				if left := remembered(t, w.reopen()); len(left) != 0 {
					t.Errorf("the log still remembers %v", left)
				}
			})
		})
	}
}

// reopener returns what gives each store its log: one in memory, or a file.
func reopener(t *testing.T, path string, file bool) func() lease.Log {
	if !file {
		kept := &ledger{}
		return func() lease.Log { return kept }
	}
	var last *boltlog.Log
	t.Cleanup(func() { _ = last.Close() })
	return func() lease.Log {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if last, err = boltlog.Open(boltlog.Config{Path: path}); err != nil {
			t.Fatal(err)
		}
		return last
	}
}

func remembered(t *testing.T, l lease.Log) (all []lease.Record) {
	t.Helper()
	err := l.Load(func(r lease.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// cuts is a store, and what it has told its callers by which call of its log.
type cuts struct {
	*testing.T
	*rand.Rand
	kept    *ledger
	store   *lease.Memory
	proxies []lease.Candidate
	leases  []*told
	waiting []*waiting
}

// told is what a caller knows of a lease. Its target is its own.
type told struct {
	lease.Lease
	granted          int // calls of the log when the grant was answered
	releasing, ended int // when its release was asked for, and when that was answered; 0 before
	banned           int // when a ban was confirmed
}

func (w *cuts) calls() int { return len(w.kept.calls) }

func (w *cuts) step() {
	switch w.IntN(6) {
	case 0, 1, 2:
		r := lease.Request{Target: fmt.Sprint("t", len(w.leases), "/", len(w.waiting)), Count: 1 + w.IntN(2), Wait: time.Hour, ID: fmt.Sprint("r", w.calls(), "/", len(w.waiting))}
		w.waiting = append(w.waiting, crawler{w.T, w.store}.waits(w.Context(), r))
	case 3, 4:
		if l := w.pick(); l != nil {
			l.releasing = w.calls() + 1
			crawler{w.T, w.store}.releases(l.Lease)
			l.ended = w.calls()
		}
	case 5:
		if l := w.pick(); l != nil {
			crawler{w.T, w.store}.reports(l.Lease, lease.Banned, "")
			l.banned = w.calls()
		}
	}
	synctest.Wait()
	for i := 0; i < len(w.waiting); i++ {
		select {
		case <-w.waiting[i].done:
		default:
			continue
		}
		if w.waiting[i].err != nil {
			w.Fatal(w.waiting[i].err)
		}
		for _, l := range w.waiting[i].grant.Leases {
			w.leases = append(w.leases, &told{Lease: l, granted: w.calls()})
		}
		w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
		i--
	}
}

// pick returns a lease that is open.
func (w *cuts) pick() *told {
	var open []*told
	for _, l := range w.leases {
		if l.releasing == 0 {
			open = append(open, l)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[w.IntN(len(open))]
}

// judge looks at the store that follows one whose process ended after so many calls of its log.
func (w *cuts) judge(calls int) {
	next := newMemory(w.T, lease.Config{Log: &ledger{from: w.kept.after(calls)}}, w.proxies...)
	for _, p := range w.proxies {
		if n := next.Active(p.Key); n > p.MaxLeases {
			w.Errorf("after %d calls %s has %d leases of %d", calls, p.Key, n, p.MaxLeases)
		}
	}
	for _, l := range w.leases {
		v := next.View(l.Proxy.Namespace + "/" + l.Proxy.Name)
		open, cooling := false, false
		for _, o := range v.Leases {
			open = open || o.Target == l.Target && o.Expires.Equal(l.Expires)
		}
		for _, c := range v.Cooldowns {
			cooling = cooling || c.Target == l.Target
		}
		switch {
		case l.granted <= calls && (l.releasing == 0 || l.releasing > calls) && !open:
			w.Errorf("after %d calls the lease is lost: %+v", calls, l)
		case l.ended > 0 && l.ended <= calls && open:
			w.Errorf("after %d calls the lease is back: %+v", calls, l)
		case l.banned > 0 && l.banned <= calls && !cooling:
			w.Errorf("after %d calls the cooldown is lost: %+v", calls, l)
		}
	}
}

// TestCuts: wherever a log ends, the next store knows all that was told to anybody by then, and no proxy has more leases than
// it can bear, however releases are handed on to those who wait.
func TestCuts(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &cuts{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), kept: &ledger{}, proxies: []lease.Candidate{proxy("a", 1), proxy("b", 2), proxy("c", 3)}}
				w.store = newMemory(t, lease.Config{Log: w.kept}, w.proxies...)
				for range 150 {
					w.step()
				}
				for calls := range w.calls() + 1 {
					w.judge(calls)
				}
				if len(w.leases) < 30 {
					t.Errorf("only %d leases were granted", len(w.leases))
				}
				time.Sleep(2 * time.Hour) // whoever waits gives up
			})
		})
	}
}

// gate makes a log durable when it is told to.
type gate struct {
	ledger
	durable uint64
	failure error
	changed chan struct{}
}

func newGate() *gate {
	g := &gate{changed: make(chan struct{})}
	g.sync = func(ctx context.Context, n uint64) error {
		for {
			g.mu.Lock()
			durable, failure, changed := g.durable, g.failure, g.changed
			g.mu.Unlock()
			switch {
			case n <= durable:
				return nil
			case failure != nil:
				return failure
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return g
}

// open makes all that was appended durable.
func (g *gate) open() { g.change(nil) }

func (g *gate) change(failure error) {
	g.mu.Lock()
	if g.failure = failure; failure == nil {
		g.durable = g.n
	}
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	synctest.Wait()
}

// call is a call of a store on its way.
type call struct {
	name string
	done chan error
}

func begin(name string, do func() error) *call {
	c := &call{name, make(chan error, 1)}
	go func() { c.done <- do() }()
	synctest.Wait()
	return c
}

func (c *call) waits(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.done:
		t.Errorf("%s is answered before it is durable: %v", c.name, err)
	default:
	}
}

func (c *call) ends(t *testing.T, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-c.done:
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", c.name, err, want)
		}
	default:
		t.Errorf("%s is not answered", c.name)
	}
}

// TestAnswersAreDurable: no answer comes before what it rests on is durable, also where another call has brought that about.
func TestAnswersAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g}, proxy("a", 1))
		leases := make(chan lease.Lease, 10)
		ask := func(r lease.Request) func() error {
			return func() error {
				granted, err := m.Acquire(t.Context(), r)
				if err == nil {
					leases <- granted.Leases[0]
				}
				return err
			}
		}
		both := func(name string, want error, do func() error) {
			t.Helper()
			first, again := begin(name, do), begin(name+" again", do)
			first.waits(t)
			again.waits(t)
			g.open()
			first.ends(t, want)
			again.ends(t, want)
			begin(name+" once more", do).ends(t, want)
		}
		both("Acquire", nil, ask(lease.Request{ID: "r"}))
		l := <-leases
		if one, two := <-leases, <-leases; one.ID != l.ID || two.ID != l.ID {
			t.Errorf("the request got %s, %s and %s", l.ID, one.ID, two.ID)
		}
		renewed := begin("Renew", func() error { _, err := m.Renew(t.Context(), l.ID, time.Minute); return err })
		renewed.waits(t)
		g.open()
		renewed.ends(t, nil)
		both("Report", nil, func() error { return m.Report(t.Context(), l.ID, lease.Report{Outcome: lease.Banned, Target: "shop"}) })

		// Whoever waits gets what is not durable yet, and a release is not known to anybody before it is.
		waits := begin("Acquire after a release", ask(lease.Request{Wait: time.Minute}))
		release := func() error { return m.Release(t.Context(), l.ID) }
		first, again := begin("Release", release), begin("Release again", release)
		gone := begin("Renew after a release", func() error { _, err := m.Renew(t.Context(), l.ID, 0); return err })
		for _, c := range []*call{first, again, gone, waits} {
			c.waits(t)
		}
		g.open()
		first.ends(t, nil)
		again.ends(t, nil)
		gone.ends(t, lease.ErrUnknown)
		waits.ends(t, nil)
		begin("Release of nothing", func() error { return m.Release(t.Context(), "nothing") }).ends(t, nil)

		// Only what nobody keeps does not wait.
		l = <-leases
		began := begin("Release", func() error { return m.Release(t.Context(), l.ID) })
		var none *lease.NoMatch
		if _, err := m.Acquire(t.Context(), lease.Request{Target: "shop"}); !errors.As(err, &none) {
			t.Errorf("Acquire: %v, want a NoMatch", err)
		}
		began.waits(t)
		g.open()
		began.ends(t, nil)
	})
}

// TestHandedOnLeases: whoever waits does not get a lease before the log has it, however long that takes.
func TestHandedOnLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g}, proxy("a", 1))
		var l lease.Lease
		first := begin("Acquire", func() error {
			granted, err := m.Acquire(t.Context(), lease.Request{})
			if err == nil {
				l = granted.Leases[0]
			}
			return err
		})
		g.open()
		first.ends(t, nil)
		waits := begin("Acquire", func() error { _, err := m.Acquire(t.Context(), lease.Request{Wait: time.Hour}); return err })
		g.pause = time.Second
		release := begin("Release", func() error { return m.Release(t.Context(), l.ID) })
		waits.waits(t)
		time.Sleep(time.Minute)
		waits.waits(t)
		g.open()
		waits.ends(t, nil)
		release.ends(t, nil)
	})
}

// TestOpenPairStaysOpen: a pair whose window is over does not cool again because the clock was set back.
func TestOpenPairStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &ledger{}
		c := crawler{t, newMemory(t, lease.Config{Log: kept}, proxy("a", 5))}
		shop := lease.Request{Target: "shop"}
		c.reports(c.gets(shop, "a"), lease.Banned, "")
		time.Sleep(window)
		c.releases(c.gets(shop, "a"))
		next := &ledger{from: map[name]lease.Record{}}
		for n, r := range kept.after(-1) {
			next.from[n] = shifted(r, time.Hour)
		}
		c.store = newMemory(t, lease.Config{Log: next}, proxy("a", 5))
		c.gets(shop, "a")
		c.gets(shop, "a")
	})
}

// TestCallerGoesWhileTheLogIsWritten: the lease of a caller that has gone is given back, and the log knows; one that another
// caller was given too is not.
func TestCallerGoesWhileTheLogIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g}, proxy("a", 1))
		ask := func(ctx context.Context, r lease.Request) *call {
			return begin("Acquire", func() error { _, err := m.Acquire(ctx, r); return err })
		}
		ctx, cancel := context.WithCancel(t.Context())
		impatient := ask(ctx, lease.Request{})
		impatient.waits(t)
		next := ask(t.Context(), lease.Request{Wait: time.Minute, TTL: time.Second, ID: "r"})
		cancel()
		impatient.ends(t, context.Canceled)
		next.waits(t) // it has the lease that was given back
		if n := m.Active("default/a"); n != 1 {
			t.Errorf("%d leases are open, want 1", n)
		}
		ctx, cancel = context.WithCancel(t.Context())
		again := ask(ctx, lease.Request{ID: "r", TTL: time.Second})
		cancel()
		again.ends(t, context.Canceled)
		g.open()
		next.ends(t, nil)

		after := newMemory(t, lease.Config{Log: &ledger{from: g.after(-1)}}, proxy("a", 1))
		if n := after.Active("default/a"); n != 1 {
			t.Errorf("the log knows %d leases, want 1", n)
		}
	})
}

// TestTrialIsGivenBack: a pair whose trial was given back is half open in the next process too, for as long as in this one.
func TestTrialIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g}, proxy("a", 5))
		c := crawler{t, m}
		g.mu.Lock()
		g.durable = 1 << 40
		g.mu.Unlock()
		c.reports(c.gets(anyProxy, "a"), lease.Banned, "shop")
		time.Sleep(window + time.Minute)
		g.mu.Lock()
		g.durable = 0
		g.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		trial := begin("Acquire", func() error { _, err := m.Acquire(ctx, lease.Request{Target: "shop"}); return err })
		cancel()
		trial.ends(t, context.Canceled)
		next := newMemory(t, lease.Config{Log: &ledger{from: g.after(-1)}}, proxy("a", 5))
		for _, step := range []struct {
			wait time.Duration
			left int
		}{{0, 1}, {window - time.Second, 1}, {time.Second, 0}} {
			time.Sleep(step.wait)
			if one, other := m.Cooldowns(), next.Cooldowns(); one != step.left || other != step.left {
				t.Errorf("%d and %d cooldowns, want %d", one, other, step.left)
			}
		}
	})
}

// TestLogFails: a store whose log has failed answers nothing but that.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g}, proxy("a", 1))
		var l lease.Lease
		granted := begin("Acquire", func() error {
			grant, err := m.Acquire(t.Context(), lease.Request{})
			if err == nil {
				l = grant.Leases[0]
			}
			return err
		})
		g.open()
		granted.ends(t, nil)
		waits := begin("Acquire with a wait", func() error { _, err := m.Acquire(t.Context(), lease.Request{Wait: time.Hour}); return err })
		renews := begin("Renew", func() error { _, err := m.Renew(t.Context(), l.ID, 0); return err })
		full := errors.New("no space left on device")
		g.change(full)
		renews.ends(t, full)
		waits.ends(t, lease.ErrNotReady)
		for name, do := range map[string]func() error{
			"Acquire": func() error { _, err := m.Acquire(t.Context(), lease.Request{}); return err },
			"Renew":   func() error { _, err := m.Renew(t.Context(), l.ID, 0); return err },
			"Release": func() error { return m.Release(t.Context(), l.ID) },
			"Report":  func() error { return m.Report(t.Context(), l.ID, lease.Report{Outcome: lease.OK}) },
		} {
			begin(name, do).ends(t, lease.ErrNotReady)
		}
	})
}

// TestDiskHangs: callers that give up and try again do not fill the memory with what waits for a disk that hangs.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		m := newMemory(t, lease.Config{Log: g, CooldownWindow: time.Second}, proxy("a", 1))
		try := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, _ = m.Acquire(ctx, lease.Request{})
		}
		for range 40_000 {
			try()
		}
		full := g.n
		for range 1_000 {
			try()
		}
		if g.n > full+10 || full > 80_000 {
			t.Errorf("%d records wait after many tries, and %d after some more", full, g.n)
		}
		g.open()
		begin("Acquire", func() error { _, err := m.Acquire(t.Context(), lease.Request{}); return err }).waits(t)
		g.open()
	})
}

// TestClockJumps: nothing lasts longer than it was to because the clock was set between two processes, and what has ended
// stays ended.
func TestClockJumps(t *testing.T) {
	for _, c := range []struct {
		name string
		jump time.Duration // of the clock, while nothing runs
		left time.Duration // of the lease, 0 if it is over
		cool time.Duration // until the window is over, 0 if it is
	}{
		{"no jump", 0, ttl - time.Minute, window - time.Minute},
		{"forward a bit", 2 * time.Minute, ttl - 3*time.Minute, window - 3*time.Minute},
		{"forward beyond the lease", 6 * time.Minute, 0, window - 7*time.Minute},
		{"forward by years", 50_000 * time.Hour, 0, 0},
		{"back a bit", -30 * time.Second, ttl - 30*time.Second, window - 30*time.Second},
		{"back beyond the grant", -2 * time.Minute, ttl, window},
		{"back by years", -50_000 * time.Hour, ttl, window},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept := &ledger{}
				m := newMemory(t, lease.Config{Log: kept}, proxy("a", 5))
				began := crawler{t, m}
				l := began.gets(lease.Request{Session: "s"}, "a")
				began.reports(l, lease.Banned, "shop")
				ended := began.gets(anyProxy, "a")
				began.releases(ended)
				expired := began.gets(lease.Request{TTL: 30 * time.Second}, "a")
				time.Sleep(time.Minute)
				m.Active("default/a") // somebody has seen that it is over

				next := &ledger{from: map[name]lease.Record{}}
				for n, r := range kept.after(-1) {
					next.from[n] = shifted(r, -c.jump) // as if this clock had jumped
				}
				m = newMemory(t, lease.Config{Log: next}, proxy("a", 5))
				v := m.View("default/a")
				var left, cool time.Duration
				for _, o := range v.Leases {
					left += time.Until(o.Expires)
				}
				for _, of := range v.Cooldowns {
					cool += max(0, time.Until(of.Until))
				}
				if left != c.left || cool != c.cool {
					t.Errorf("%v of the lease and %v of the window are left, want %v and %v", left, cool, c.left, c.cool)
				}
				for _, over := range []lease.Lease{ended, expired} {
					if _, err := m.Renew(t.Context(), over.ID, 0); !errors.Is(err, lease.ErrUnknown) {
						t.Errorf("what had ended is back: %v", err)
					}
				}
				m.Remove("default/a")
				time.Sleep(time.Hour + 2*window) // everything is over by now
				if n := m.Remembered(); n > 0 {
					t.Errorf("%d things are remembered for too long", n)
				}
			})
		})
	}
}

// shifted is a record whose moments lie later.
func shifted(r lease.Record, by time.Duration) lease.Record {
	for _, t := range []*time.Time{&r.Expires, &r.Ended, &r.Until, &r.Change} {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	return r
}

// TestUnreadableLog: a store is not made over a log that cannot be read.
func TestUnreadableLog(t *testing.T) {
	broken := errors.New("record 7 cannot be read")
	if _, err := lease.NewMemory(lease.Config{Log: &unreadable{err: broken}}); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

type unreadable struct {
	ledger
	err error
}

func (u *unreadable) Load(func(lease.Record) error) error { return u.err }
