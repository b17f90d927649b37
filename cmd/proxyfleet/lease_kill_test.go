package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

// A fleet is killed at random moments while crawlers lease from it. Whatever a crawler was told holds in the next life:
// each lease is there with the expiry that it had, none that was released is back, no ban is forgotten, no proxy has more
// leases than it can bear, and a request that is sent again has what it got before.
//
// KILLS is how often it is killed, SEED repeats the decisions of an earlier run as far as they decide.
func TestKilledWhileItLeases(t *testing.T) {
	t.Parallel()
	seed := number("SEED", int(time.Now().UnixNano()%1e9))
	t.Logf("SEED=%d", seed)
	p := newPlace(t)
	documents := []string{p.configuration(), login("a")}
	for n := range proxies {
		documents = append(documents, declared{name: fmt.Sprint("p", n), port: 3128, more: fmt.Sprintf("maxLeases: %d", mostLeases)}.String())
	}
	p.write("fleet.yaml", documents...)
	w := &crawl{t: t, leases: map[string]*leased{}, bans: map[string]time.Time{}}
	s := p.start()
	s.await(proxies, "Ready")
	ready(s)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	for life := range number("KILLS", 15) {
		w.life = life
		w.crawl(s, random)
		s = p.start()
		ready(s)
		w.judge(s)
		w.repeat(s)
		if t.Failed() {
			t.Fatalf("life %d", life)
		}
	}
	t.Logf("%d leases were confirmed, %d released, %d requests unanswered, %d pairs banned", w.granted, w.released, w.unanswered, len(w.bans))
	if w.granted == 0 || w.released == 0 || w.unanswered == 0 || len(w.bans) == 0 {
		t.Error("the test has not tried everything")
	}
}

const (
	proxies    = 3
	mostLeases = 3
)

// ready waits until a fleet says that it is ready.
func ready(s *server) {
	s.t.Helper()
	eventually(s.t, func() string {
		r, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return r.Status
		}
		return ""
	})
}

// crawl is crawlers, and what they were told.
type crawl struct {
	t    *testing.T
	life int

	mu                            sync.Mutex
	leases                        map[string]*leased   // by target: each lease has its own
	bans                          map[string]time.Time // when they were confirmed, by target
	granted, released, unanswered int
}

// leased is a lease as a crawler knows it.
type leased struct {
	lease.Lease
	request  lease.Request
	asked    bool // for it, without an answer
	changing bool // asked for its release or renewal, without an answer
	renewing bool
	over     bool // its release was confirmed
}

// crawl lets crawlers work until the fleet is killed under them.
func (w *crawl) crawl(s *server, random *rand.Rand) {
	var crawlers sync.WaitGroup
	for n := range 6 {
		own := rand.New(rand.NewPCG(random.Uint64(), 2))
		crawlers.Go(func() {
			for i := 0; w.step(s.client, own, fmt.Sprintf("%d-%d-%d", w.life, n, i)); i++ {
			}
		})
	}
	<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
	s.kill()
	crawlers.Wait()
}

// step does one thing, and says whether the fleet has answered.
func (w *crawl) step(fleet *client.Client, random *rand.Rand, name string) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	l := w.pick(random)
	if l == nil || random.IntN(3) == 0 {
		return w.acquire(ctx, fleet, lease.Request{ID: name, Target: name, TTL: time.Hour})
	}
	switch random.IntN(4) {
	case 0:
		renewed, err := fleet.Renew(ctx, l.ID, time.Hour)
		return w.changed(l, err, func() { l.Lease, l.renewing = renewed, false })
	case 1:
		err := fleet.Report(ctx, l.ID, lease.Report{Outcome: lease.Banned, Target: "ban-" + name})
		return w.changed(l, err, func() { w.bans["ban-"+name], l.renewing = time.Now(), false })
	}
	w.mu.Lock()
	l.renewing = false
	w.mu.Unlock()
	err := fleet.Release(ctx, l.ID)
	return w.changed(l, err, func() {
		l.over = true
		w.released++
	})
}

// pick returns a lease that nobody else does anything to, or nil. Until the caller says otherwise it may be renewed.
func (w *crawl) pick(random *rand.Rand) *leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	var idle []*leased
	for _, l := range w.leases {
		if !l.asked && !l.changing && !l.over {
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	l := idle[random.IntN(len(idle))]
	l.changing, l.renewing = true, true
	return l
}

// changed takes note of an answer, if there is one.
func (w *crawl) changed(l *leased, err error, note func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.mayFail(err)
		return false
	}
	l.changing = false
	note()
	return true
}

// mayFail fails the test if an error is an answer.
func (w *crawl) mayFail(err error) {
	if _, answer := errors.AsType[*client.APIError](err); answer {
		w.t.Errorf("the fleet answers %v", err)
	}
}

func (w *crawl) acquire(ctx context.Context, fleet *client.Client, r lease.Request) bool {
	w.mu.Lock()
	l := &leased{request: r, asked: true}
	w.leases[r.Target] = l
	w.mu.Unlock()
	granted, err := fleet.Acquire(ctx, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, none := errors.AsType[*lease.NoMatch](err); none {
		delete(w.leases, r.Target)
		return true
	}
	if err != nil {
		w.unanswered++
		w.mayFail(err)
		return false
	}
	l.Lease, l.asked = granted.Leases[0], false
	w.granted++
	return true
}

// judge compares what a fleet knows with what the crawlers do.
func (w *crawl) judge(s *server) {
	w.t.Helper()
	found, cooling := map[string]time.Time{}, map[string]bool{}
	for n := range proxies {
		e, err := s.client.Explain(w.t.Context(), "default", fmt.Sprint("p", n))
		if err != nil {
			w.t.Fatal(err)
		}
		if shown := *e.Proxy.ActiveLeases; len(e.Leases) > mostLeases || shown != len(e.Leases) {
			w.t.Errorf("p%d has %d leases, of which it shows %d", n, len(e.Leases), shown)
		}
		for _, l := range e.Leases {
			found[l.Target] = l.ExpiresAt
		}
		for _, c := range e.Cooldowns {
			cooling[c.Target] = true
		}
	}
	for target, l := range w.leases {
		expires, there := found[target]
		delete(found, target)
		if problem := l.compare(there, expires); problem != "" {
			w.t.Errorf("lease %s: %s; the crawler knows %+v", target, problem, l)
		}
		if there && !l.asked {
			l.Expires, l.changing = expires, false
		} else if !l.asked {
			delete(w.leases, target)
		}
	}
	for target := range found {
		w.t.Errorf("nobody ever asked for lease %s", target)
	}
	for target, when := range w.bans {
		if !cooling[target] && time.Since(when) < 10*time.Minute { // the window
			w.t.Errorf("the ban from %s is forgotten", target)
		}
	}
}

// compare says what is wrong with a lease that is there or not.
func (l *leased) compare(there bool, expires time.Time) string {
	switch {
	case l.asked, l.changing && !l.renewing: // both is right
		return ""
	case l.over && there:
		return "it was released, and is back"
	case l.over:
		return ""
	case !there:
		return "it is lost"
	case l.renewing && !expires.Before(l.Expires): // whether it was renewed nobody knows
		return ""
	case !expires.Equal(l.Expires):
		return fmt.Sprintf("it expires at %v", expires)
	}
	return ""
}

// repeat sends again what was not answered, and asks for each lease by its ID.
func (w *crawl) repeat(s *server) {
	w.t.Helper()
	ctx := w.t.Context()
	for target, l := range w.leases {
		if l.asked {
			granted, err := s.client.Acquire(ctx, l.request)
			if _, none := errors.AsType[*lease.NoMatch](err); none {
				delete(w.leases, target)
				continue
			}
			if err != nil {
				w.t.Errorf("lease %s, asked for again: %v", target, err)
				continue
			}
			l.Lease, l.asked = granted.Leases[0], false
		}
		renewed, err := s.client.Renew(ctx, l.ID, time.Hour)
		if err != nil || renewed.Proxy.Name != l.Proxy.Name || renewed.Target != target {
			w.t.Errorf("lease %s, renewed: %+v, %v; it was %+v", target, renewed, err, l.Lease)
			continue
		}
		l.Lease, l.renewing = renewed, false
	}
}
