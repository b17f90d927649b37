package lease_test

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// BenchmarkAcquireRelease acquires a lease and releases the oldest one, with as many open leases as there are proxies, and
// compares that with the least that any such store must do, done in turns. The cooldown window is one second, so that leases are
// forgotten at the rate at which they end.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, policy := range []lease.Policy{lease.FewestActive{}, lease.Spread{}} {
		for _, n := range []int{100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%T/proxies=%d", policy, n), func(b *testing.B) {
				m := benchMemory(b, lease.Config{Policy: policy}, n, func(*lease.Candidate, int) {})
				compare(b, stepOf(b, m, n, forTarget), floorStep(n))
			})
		}
	}
}

// BenchmarkHalfCooling does the same while half of the fleet cools for the target. No lease is forgotten meanwhile.
func BenchmarkHalfCooling(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		m := benchMemory(b, lease.Config{CooldownWindow: hours}, n, func(*lease.Candidate, int) {})
		g := acquire(b, m, lease.Request{Target: "shop", TTL: hours, Count: n / 2})
		for _, l := range g.Leases {
			if err := m.Report(b.Context(), l.ID, lease.Report{Outcome: lease.Banned}); err != nil {
				b.Fatal(err)
			}
			release(b, m, l.ID)
		}
		compare(b, stepOf(b, m, n, forTarget), floorStep(n))
	})
}

// BenchmarkAtCapacity does the same while nine proxies of ten have as many leases as they can bear.
func BenchmarkAtCapacity(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		m := benchMemory(b, lease.Config{}, n, func(p *lease.Candidate, i int) {
			p.MaxLeases = 20
			if i%10 > 0 {
				p.MaxLeases = 1
				p.Attributes = map[string]string{"busy": "yes"}
			}
		})
		acquire(b, m, lease.Request{Selector: map[string]string{"busy": "yes"}, TTL: hours, Count: n - n/10})
		compare(b, stepOf(b, m, n/10, forTarget), floorStep(n))
	})
}

// BenchmarkSelectors does the same with a thousand selectors by turns: disjoint ones, each of which matches a thousandth of the
// fleet, and overlapping ones, each of which matches a quarter of it.
func BenchmarkSelectors(b *testing.B) {
	const selectors, attributes = 1000, 46
	kinds := map[string]struct {
		attributes func(i int) map[string]string
		selector   func(i int) map[string]string
	}{
		"disjoint": {
			func(i int) map[string]string { return map[string]string{"client": fmt.Sprint(i % selectors)} },
			func(i int) map[string]string { return map[string]string{"client": fmt.Sprint(i % selectors)} },
		},
		"overlapping": {
			func(i int) map[string]string {
				all := map[string]string{}
				for a := range attributes {
					all[fmt.Sprint(a)] = fmt.Sprint(mrand.New(mrand.NewPCG(uint64(i), uint64(a))).IntN(2))
				}
				return all
			},
			func(i int) map[string]string { // 1,035 pairs
				i %= attributes * (attributes - 1) / 2
				for first := 0; ; first++ {
					if i < attributes-1-first {
						return map[string]string{fmt.Sprint(first): "1", fmt.Sprint(first + 1 + i): "1"}
					}
					i -= attributes - 1 - first
				}
			},
		},
	}
	for name, kind := range kinds {
		b.Run(name, func(b *testing.B) {
			eachSize(b, func(b *testing.B, n int) {
				m := benchMemory(b, lease.Config{}, n, func(p *lease.Candidate, i int) { p.Attributes, p.MaxLeases = kind.attributes(i), 20 })
				requests := make([]lease.Request, selectors)
				for i := range requests {
					requests[i] = lease.Request{Target: "shop", TTL: hours, Selector: kind.selector(i)}
				}
				step := stepOf(b, m, n, func(i int) lease.Request { return requests[i%selectors] })
				for range 5 * selectors {
					step() // until each has what it needs
				}
				compare(b, step, floorStep(n))
			})
		})
	}
}

// BenchmarkNoMatch asks a fleet in vain whose proxies are all at capacity, and compares that with a grant and its release in one
// that has room.
func BenchmarkNoMatch(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			full := benchMemory(b, lease.Config{}, n, func(p *lease.Candidate, i int) { p.MaxLeases = 1 })
			acquire(b, full, lease.Request{TTL: hours, Count: n})
			m := benchMemory(b, lease.Config{}, n, func(*lease.Candidate, int) {})
			compare(b, func() {
				if _, err := full.Acquire(b.Context(), forTarget(0)); !isNoMatch(err) {
					b.Fatal(err)
				}
			}, stepOf(b, m, n, forTarget))
		})
	}
}

// BenchmarkScan is a store that looks at every proxy, for comparison.
func BenchmarkScan(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) { compare(b, scanStep(n), floorStep(n)) })
	}
}

// BenchmarkParallel has goroutines do the same at once, each with leases of its own.
func BenchmarkParallel(b *testing.B) {
	const n = 10_000
	for _, goroutines := range []int{2, 16} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			m := benchMemory(b, lease.Config{}, n, func(*lease.Candidate, int) {})
			f := &floor{leases: map[[16]byte]record{}}
			var store, least []func()
			for range goroutines {
				store = append(store, stepOf(b, m, n/goroutines, forTarget))
				least = append(least, f.step(n/goroutines))
			}
			compare(b, together(store), together(least))
		})
	}
}

// together returns a step that is one step of each, done at once, as often as pays for starting them.
func together(steps []func()) func() {
	return func() {
		var all sync.WaitGroup
		for _, step := range steps {
			all.Go(func() {
				for range 64 / len(steps) {
					step()
				}
			})
		}
		all.Wait()
	}
}

// BenchmarkMemory measures what a proxy with two attributes takes, and a lease while it is open and after it has ended.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		before := heap()
		m := benchMemory(b, lease.Config{}, n, func(p *lease.Candidate, i int) {
			p.Attributes = map[string]string{"country": "nl", "provider": "example"}
		})
		proxies := heap()
		var ids []string
		for range 10 * n {
			ids = append(ids, acquire(b, m, forTarget(0)).Leases[0].ID)
		}
		open := heap()
		for _, id := range ids {
			release(b, m, id)
		}
		ended := heap()
		b.ReportMetric(float64(proxies-before)/n, "B/proxy")
		b.ReportMetric(float64(open-proxies)/(10*n), "B/open-lease")
		b.ReportMetric(float64(ended-proxies)/(10*n), "B/ended-lease")
		if len(m.Counts()) > 0 {
			b.Fatal("some are open still")
		}
	}
}

const hours = 5 * time.Hour

func forTarget(int) lease.Request { return lease.Request{Target: "shop", TTL: hours} }

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) { run(b, n) })
	}
}

func benchMemory(b *testing.B, c lease.Config, n int, change func(p *lease.Candidate, i int)) *lease.Memory {
	c.CooldownWindow, c.MaxTTL = cmp.Or(c.CooldownWindow, time.Second), 2*hours
	m := newMemory(b, c)
	for i := range n {
		p := proxy(fmt.Sprintf("proxy-%06d", i), 10)
		p.Latency = time.Duration(i*7919%n) * time.Millisecond
		change(&p, i)
		m.Set(p)
	}
	return m
}

func acquire(b *testing.B, s lease.Store, r lease.Request) lease.Grant {
	b.Helper()
	g, err := s.Acquire(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func release(b *testing.B, s lease.Store, id string) {
	b.Helper()
	if err := s.Release(b.Context(), id); err != nil {
		b.Fatal(err)
	}
}

func isNoMatch(err error) bool {
	_, ok := errors.AsType[*lease.NoMatch](err)
	return ok
}

// stepOf returns a function that acquires a lease and releases the oldest of n.
func stepOf(b *testing.B, s lease.Store, n int, request func(i int) lease.Request) func() {
	live := make([]string, n)
	for i := range live {
		live[i] = acquire(b, s, request(i)).Leases[0].ID
	}
	at, ctx := 0, b.Context()
	return func() {
		g, err := s.Acquire(ctx, request(at))
		if err != nil {
			panic(err)
		}
		if err := s.Release(ctx, live[at]); err != nil {
			panic(err)
		}
		live[at] = g.Leases[0].ID
		at = (at + 1) % n
	}
}

// floor does what no store can do without: an ID that cannot be guessed, a lock, and a map of live leases.
type floor struct {
	mu     sync.Mutex
	leases map[[16]byte]record
}

type record struct{ proxy, expires int64 }

func (f *floor) acquire() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases[id] = record{1, 2}
	return id
}

func (f *floor) release(id [16]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, id)
}

func floorStep(n int) func() { return (&floor{leases: map[[16]byte]record{}}).step(n) }

// step returns a function that acquires a lease and releases the oldest of n.
func (f *floor) step(n int) func() {
	live := make([][16]byte, n)
	for i := range live {
		live[i] = f.acquire()
	}
	at := 0
	return func() {
		id := f.acquire()
		f.release(live[at])
		live[at] = id
		at = (at + 1) % n
	}
}

// scanStep is a floor that also looks at each of n proxies for the best one.
func scanStep(n int) func() {
	type candidate struct {
		active, latency int
		healthy         bool
		cooling         map[string]time.Time
		key             string
	}
	f := &floor{leases: map[[16]byte]record{}}
	proxies := map[string]*candidate{}
	for i := range n {
		key := fmt.Sprintf("default/proxy-%06d", i)
		proxies[key] = &candidate{latency: i * 7919 % n, healthy: true, key: key}
	}
	type live struct {
		id [16]byte
		of *candidate
	}
	grant := func() live {
		f.mu.Lock()
		now := time.Now()
		var best *candidate
		for _, p := range proxies {
			if p.healthy && p.active < 10 && !p.cooling["shop"].After(now) && (best == nil ||
				cmp.Or(cmp.Compare(p.active, best.active), cmp.Compare(p.latency, best.latency), cmp.Compare(p.key, best.key)) < 0) {
				best = p
			}
		}
		best.active++
		f.mu.Unlock()
		return live{f.acquire(), best}
	}
	all := make([]live, min(n, 1000)) // more take too long
	for i := range all {
		all[i] = grant()
	}
	at := 0
	return func() {
		l := grant()
		f.release(all[at].id)
		all[at].of.active--
		all[at] = l
		at = (at + 1) % len(all)
	}
}

// compare times a step of a store and another one by turns, and reports both and their ratio.
func compare(b *testing.B, store, other func()) {
	var inStore, inOther []time.Duration
	for b.Loop() {
		inStore, inOther = append(inStore, timeOf(store)), append(inOther, timeOf(other))
	}
	b.ReportMetric(0, "ns/op") // an op is many steps of both, which says nothing
	b.ReportMetric(median(inStore), "store-ns")
	b.ReportMetric(median(inOther), "other-ns")
	b.ReportMetric(median(inStore)/median(inOther), "ratio")
	b.ReportMetric(testing.AllocsPerRun(100, store), "allocs")
}

// stepsAtOnce is how many steps are timed together: enough to make the clock's own time vanish, and so few that most
// batches are done before the machine turns to something else.
const stepsAtOnce = 64

// timeOf returns how long it takes to do so many steps.
func timeOf(step func()) time.Duration {
	begun := time.Now()
	for range stepsAtOnce {
		step()
	}
	return time.Since(begun)
}

// median returns the nanoseconds of one step in the batch that is in the middle.
func median(batches []time.Duration) float64 {
	slices.Sort(batches)
	return float64(batches[len(batches)/2]) / stepsAtOnce
}
