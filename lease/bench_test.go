package lease_test

import (
	"crypto/rand"
	"fmt"
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
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			m := newMemory(b, lease.Config{CooldownWindow: time.Second, MaxTTL: 10 * time.Hour})
			for i := range n {
				c := proxy(fmt.Sprintf("proxy-%05d", i), 10)
				c.Latency = time.Duration(i*7919%n) * time.Millisecond
				m.Set(c)
			}
			store, floor := storeStep(b, m, n), floorStep(n)
			var inStore, inFloor []time.Duration
			for b.Loop() {
				inStore, inFloor = append(inStore, timeOf(store)), append(inFloor, timeOf(floor))
			}
			b.ReportMetric(0, "ns/op") // an op is many steps of both, which says nothing
			b.ReportMetric(median(inStore), "store-ns")
			b.ReportMetric(median(inFloor), "floor-ns")
			b.ReportMetric(median(inStore)/median(inFloor), "×floor")
		})
	}
}

// storeStep returns a function that acquires a lease and releases the oldest of n.
func storeStep(b *testing.B, s lease.Store, n int) func() {
	acquire := func() string {
		g, err := s.Acquire(b.Context(), lease.Request{Target: "shop", TTL: 5 * time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		return g.Leases[0].ID
	}
	live := make([]string, n)
	for i := range live {
		live[i] = acquire()
	}
	at := 0
	return func() {
		id := acquire()
		if err := s.Release(b.Context(), live[at]); err != nil {
			b.Fatal(err)
		}
		live[at] = id
		at = (at + 1) % n
	}
}

// floorStep does what no store can do without: an ID that cannot be guessed, a lock, and a map of n live leases.
func floorStep(n int) func() {
	type record struct{ proxy, expires int64 }
	var mu sync.Mutex
	leases := map[[16]byte]record{}
	acquire := func() (id [16]byte) {
		_, _ = rand.Read(id[:]) // never fails
		mu.Lock()
		defer mu.Unlock()
		leases[id] = record{1, 2}
		return id
	}
	release := func(id [16]byte) {
		mu.Lock()
		defer mu.Unlock()
		delete(leases, id)
	}
	live := make([][16]byte, n)
	for i := range live {
		live[i] = acquire()
	}
	at := 0
	return func() {
		id := acquire()
		release(live[at])
		live[at] = id
		at = (at + 1) % n
	}
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
