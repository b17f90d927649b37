package lease_test

import (
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// BenchmarkAcquireRelease acquires a lease and releases the oldest one, with as many open leases as there are proxies, and
// compares that with the least that any such store must do. The cooldown window is one second, so that leases are
// forgotten at the rate at which they end.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			m := newMemory(b, lease.Config{CooldownWindow: time.Second, MaxTTL: 10 * time.Hour})
			for i := range n {
				c := proxy(fmt.Sprintf("proxy-%05d", i), 10)
				c.Latency = time.Duration(i*7919%n) * time.Millisecond
				m.Set(c)
			}
			step := storeStep(b, m, n)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.StopTimer()
			perStep := b.Elapsed() / time.Duration(b.N)
			floor := timeOf(floorStep(n), b.N)
			b.ReportMetric(float64(floor.Nanoseconds()), "floor-ns/op")
			b.ReportMetric(float64(perStep)/float64(floor), "×floor")
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

// timeOf returns how long one of many steps takes.
func timeOf(step func(), steps int) time.Duration {
	begun := time.Now()
	for range steps {
		step()
	}
	return time.Since(begun) / time.Duration(steps)
}
