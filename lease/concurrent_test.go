package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

// TestCrowd has many crawlers and an owner use a store at once, and holds it to what can be said whatever the order of calls
// was. Time moves only when all of them sleep or wait, so most calls are made at the same instants.
func TestCrowd(t *testing.T) {
	const crawlers = 24
	steps := max(500, times(t, "WALK", 500)*5)
	synctest.Test(t, func(t *testing.T) {
		var heard counts
		m := newMemory(t, lease.Config{CooldownFactor: 1, CooldownWindow: crowdWindow, Recorder: &heard, Policy: lease.Spread{}})
		w := &crowd{T: t, store: m, proxies: map[string]*crowdProxy{}, served: map[string][]service{}, pairs: map[pair]*crowdPair{}}
		for i := range 12 {
			p := proxy(fmt.Sprintf("proxy-%02d", i), 1+i%3)
			p.Attributes = map[string]string{"half": fmt.Sprint(i % 2)}
			w.proxies[p.Key] = &crowdProxy{Candidate: p}
			m.Set(p)
		}
		var all sync.WaitGroup
		for i := range crawlers {
			all.Go(func() {
				c := &crowdCrawler{crowd: w, Rand: rand.New(rand.NewPCG(5, uint64(i))), session: fmt.Sprint("session ", i)}
				for range steps {
					if c.step(); t.Failed() {
						break
					}
				}
				c.goHome()
			})
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		w.flip(done)
		if n := m.Counts(); len(n) > 0 {
			t.Errorf("leases that nobody has: %v", n)
		}
		if heard.granted != heard.ended || heard.granted < steps || heard.waited.Load() < int64(steps)/10 {
			t.Errorf("%d leases were granted, %d ended, %d requests waited", heard.granted, heard.ended, heard.waited.Load())
		}
		for key := range w.proxies {
			m.Remove(key)
		}
		time.Sleep(2 * time.Hour)
		if n := m.Remembered(); n > 0 {
			t.Errorf("the store remembers %d things", n)
		}
	})
}

const (
	crowdWindow = 30 * time.Second
	longestWait = 20 * time.Second
)

var crowdTargets = []string{"", "shop", "news"}

// counts is a recorder that counts.
type counts struct {
	granted, ended int
	waited         atomic.Int64 // without the lock of the store
}

func (c *counts) LeaseGranted()       { c.granted++ }
func (c *counts) LeaseRefused(string) {}
func (c *counts) LeaseEnded(string)   { c.ended++ }
func (c *counts) LeaseWaited(time.Duration) {
	c.waited.Add(1)
}

// crowd is what is known for certain: what had returned before a call began, and was not undone before it returned.
type crowd struct {
	*testing.T
	store *lease.Memory

	mu      sync.Mutex
	proxies map[string]*crowdProxy
	pairs   map[pair]*crowdPair
	bans    int
	served  map[string][]service // by what was asked for
}

type crowdProxy struct {
	lease.Candidate
	open   []lease.Lease // that were granted, and that nobody has begun to release
	sick   bool          // for certain
	change int           // counts the changes of health
}

// crowdPair is a proxy and a target since a ban was reported.
type crowdPair struct {
	ban   int // its number
	until time.Time
	trial *lease.Lease // that was granted when the window was over, if nobody has begun to end it
}

// service is when a request that was granted began and ended.
type service struct{ began, ended time.Time }

type crowdCrawler struct {
	*crowd
	*rand.Rand
	mine    []lease.Lease
	session string
	proxy   string // that the session has
	last    time.Time
}

// seen is what was certain when a request began.
type seen struct {
	began   time.Time
	changes map[string]int // of the proxies that were sick
	bans    map[string]int // of those that cooled for the target until later
}

func (c *crowdCrawler) step() {
	switch n := c.IntN(10); {
	case n < 5:
		c.acquire()
	case n < 7 && len(c.mine) > 0:
		c.release(c.IntN(len(c.mine)))
	case n == 7:
		c.ban()
	case n == 8 && len(c.mine) > 0:
		c.renew(c.IntN(len(c.mine)))
	default:
		time.Sleep(time.Duration(c.IntN(4)) * time.Second)
	}
}

func (c *crowdCrawler) request() lease.Request {
	r := lease.Request{Target: crowdTargets[c.IntN(3)], TTL: time.Duration(5+c.IntN(60)) * time.Second}
	if c.IntN(3) == 0 {
		r.Selector = map[string]string{"half": fmt.Sprint(c.IntN(2))}
	}
	if c.IntN(4) == 0 {
		r.Session = c.session
	}
	if c.IntN(5) == 0 {
		r.Count = 1 + c.IntN(3)
	}
	if c.IntN(2) == 0 {
		r.Wait = time.Duration(1+c.IntN(20)) * time.Second // up to longestWait
	}
	return r
}

func (c *crowdCrawler) acquire() {
	r := c.request()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.IntN(6) == 0 { // it is gone in the middle of its wait
		r.Target = "elsewhere" // where nothing is tried: nobody knows whether it was granted anything
		defer time.AfterFunc(time.Duration(c.IntN(6))*time.Second, cancel).Stop()
	}
	before := c.before(r.Target)
	g, err := c.send(ctx, r)
	c.inTurn(r, before.began, err == nil)
	if err == nil {
		c.granted(r, g, before)
		return
	}
	_, none := errors.AsType[*lease.NoMatch](err)
	if !none && !errors.Is(err, context.Canceled) || none && time.Since(before.began) != r.Wait {
		c.Errorf("after %v of %v: %v", time.Since(before.began), r.Wait, err)
	}
}

// send sends a request, now and then several times at once with one ID. All attempts that are granted anything get the same.
func (c *crowdCrawler) send(ctx context.Context, r lease.Request) (lease.Grant, error) {
	if c.IntN(6) > 0 {
		return c.store.Acquire(ctx, r)
	}
	r.ID = fmt.Sprint(c.session, " ", c.Uint64())
	attempts := make([]attempt, 2+c.IntN(4))
	var all sync.WaitGroup
	for i := range attempts {
		all.Go(func() { attempts[i].grant, attempts[i].err = c.store.Acquire(ctx, r) })
	}
	all.Wait()
	best := attempts[0]
	for _, a := range attempts {
		switch {
		case a.err != nil:
		case best.err != nil:
			best = a
		default:
			if d := cmp.Diff(best.grant, a.grant); d != "" {
				c.Errorf("two attempts got different leases:\n%s", d)
			}
		}
	}
	return best.grant, best.err
}

// attempt is what came of a request.
type attempt struct {
	grant lease.Grant
	err   error
}

// before is what is certain now.
func (c *crowd) before(target string) seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := seen{began: time.Now(), changes: map[string]int{}, bans: map[string]int{}}
	for key, p := range c.proxies {
		if p.sick {
			s.changes[key] = p.change
		}
		if of := c.pairs[pair{key, target}]; of != nil {
			s.bans[key] = of.ban
		}
	}
	return s
}

// inTurn checks that nobody who came at a later instant was served at an earlier one.
func (c *crowd) inTurn(r lease.Request, began time.Time, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	key := fmt.Sprint(r.Selector, r.Target, max(1, r.Count))
	for _, s := range c.served[key] {
		if s.began.After(began) && s.ended.Before(now) {
			c.Errorf("who asked for %s from %v to %v was passed by who did from %v to %v", key, began, now, s.began, s.ended)
		}
	}
	if granted {
		c.served[key] = append(c.served[key], service{began, now})
	}
	c.served[key] = slices.DeleteFunc(c.served[key], func(s service) bool { return now.Sub(s.ended) > longestWait })
}

// granted checks what was granted, and notes it.
func (c *crowdCrawler) granted(r lease.Request, g lease.Grant, before seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(g.Leases) != max(1, r.Count) {
		c.Errorf("%d leases for a count of %d", len(g.Leases), r.Count)
	}
	different := map[string]bool{}
	for _, l := range g.Leases {
		key := "default/" + l.Proxy.Name
		p := c.proxies[key]
		different[key] = true
		c.fits(p, r, before, now)
		p.open = slices.DeleteFunc(p.open, func(l lease.Lease) bool { return !l.Expires.After(now) })
		if p.open = append(p.open, l); len(p.open) > p.MaxLeases {
			c.Errorf("%s has %d leases and can bear %d", key, len(p.open), p.MaxLeases)
		}
		c.tries(pair{key, r.Target}, l, now)
	}
	if len(different) != len(g.Leases) {
		c.Errorf("%d proxies in %d leases", len(different), len(g.Leases))
	}
	c.mine = append(c.mine, g.Leases...)
	if r.Session != "" {
		first := g.Leases[0].Proxy.Name
		if moved := c.proxy != "" && c.proxy != first; moved != g.Moved && now.Sub(c.last) < time.Hour {
			c.Errorf("moved is %v, from %s to %s", g.Moved, c.proxy, first)
		}
		c.proxy, c.last = first, now
	}
}

// fits checks that a proxy could be granted at some instant since a request began.
func (c *crowd) fits(p *crowdProxy, r lease.Request, before seen, now time.Time) {
	if half, ok := r.Selector["half"]; ok && p.Attributes["half"] != half {
		c.Errorf("%s does not match", p.Key)
	}
	if change, sick := before.changes[p.Key]; sick && p.change == change {
		c.Errorf("%s was granted though it was unhealthy", p.Key)
	}
	of := c.pairs[pair{p.Key, r.Target}]
	if of != nil && before.bans[p.Key] == of.ban && now.Before(of.until) {
		c.Errorf("%s was granted for %q though it was banned until %v", p.Key, r.Target, of.until)
	}
}

// tries notes a lease that tries a pair, and checks that it is the only one. It was granted at this very instant.
func (c *crowd) tries(of pair, l lease.Lease, now time.Time) {
	p := c.pairs[of]
	switch {
	case p == nil || now.Before(p.until):
	case p.trial != nil && p.trial.Expires.After(now):
		c.Errorf("%s has two trials for %q", of.key, of.target)
	case p.trial == nil && now.Before(p.until.Add(crowdWindow)):
		p.trial = &l
	default:
		delete(c.pairs, of) // it is open, or was left alone for long enough
	}
}

// ends notes that somebody is about to end a lease.
func (c *crowd) ends(l lease.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := pair{"default/" + l.Proxy.Name, l.Target}
	if p := c.pairs[of]; p != nil && p.trial != nil && p.trial.ID == l.ID {
		delete(c.pairs, of) // it opens
	}
	p := c.proxies[of.key]
	p.open = slices.DeleteFunc(p.open, func(open lease.Lease) bool { return open.ID == l.ID })
}

func (c *crowdCrawler) release(i int) {
	l := c.mine[i]
	c.mine = slices.Delete(c.mine, i, i+1)
	c.ends(l)
	if err := c.store.Release(context.Background(), l.ID); err != nil {
		c.Error(err)
	}
}

// renew renews a lease. Nobody but its crawler can have ended it before its time.
func (c *crowdCrawler) renew(i int) {
	l := c.mine[i]
	c.ends(l) // from here on it is certain no more until when
	_, err := c.store.Renew(context.Background(), l.ID, time.Minute)
	if over := !l.Expires.After(time.Now()); over != errors.Is(err, lease.ErrUnknown) || err != nil && !over {
		c.Errorf("renewing what expires at %v: %v at %v", l.Expires, err, time.Now())
	}
	c.release(i)
}

// ban gets a lease and reports a ban. Nothing but time ends the cooldown, for nobody reports a success.
func (c *crowdCrawler) ban() {
	target := crowdTargets[1+c.IntN(2)]
	g, err := c.store.Acquire(context.Background(), lease.Request{Target: target, TTL: time.Minute})
	if err != nil {
		return
	}
	l := g.Leases[0]
	if err := c.store.Report(context.Background(), l.ID, lease.Report{Outcome: lease.Banned}); err != nil {
		c.Error(err)
	}
	c.banned(pair{"default/" + l.Proxy.Name, target})
	if err := c.store.Release(context.Background(), l.ID); err != nil {
		c.Error(err)
	}
}

func (c *crowd) banned(of pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if p := c.pairs[of]; p == nil || !p.until.After(now) { // else it cooled, and cools no longer for this
		c.bans++
		c.pairs[of] = &crowdPair{ban: c.bans, until: now.Add(crowdWindow)}
	}
}

func (c *crowdCrawler) goHome() {
	for len(c.mine) > 0 {
		c.release(0)
	}
}

// flip makes proxies sick and well again until all crawlers have gone.
func (c *crowd) flip(done chan struct{}) {
	r := rand.New(rand.NewPCG(6, 6))
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(r.IntN(3000)) * time.Millisecond):
		}
		c.mu.Lock()
		p := c.proxies[fmt.Sprintf("default/proxy-%02d", r.IntN(len(c.proxies)))]
		p.Healthy = !p.Healthy
		p.change++
		p.sick = false
		set := p.Candidate
		c.mu.Unlock()
		c.store.Set(set)
		c.mu.Lock()
		p.sick = !set.Healthy
		c.mu.Unlock()
	}
}
