package boltlog

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// BenchmarkGrants is leases that are granted and released, by several clients at once: without a log, with this one, and,
// as a baseline, the same two writes by the means of bbolt.
func BenchmarkGrants(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("memory/%d", clients), func(b *testing.B) { grants(b, clients, leasing(b, nil)) })
		b.Run(fmt.Sprintf("boltlog/%d", clients), func(b *testing.B) {
			l := openTest(b, newPath(b))
			before := commits(b, l)
			grants(b, clients, leasing(b, l))
			b.ReportMetric(float64(b.N)/float64(commits(b, l)-before), "grants/commit")
		})
		b.Run(fmt.Sprintf("Batch/%d", clients), func(b *testing.B) { grants(b, clients, writing(b, (*bbolt.DB).Batch)) })
		b.Run(fmt.Sprintf("Update/%d", clients), func(b *testing.B) { grants(b, clients, writing(b, (*bbolt.DB).Update)) })
	}
}

// commits returns how many there were on a file.
func commits(b *testing.B, l *Log) (n int) {
	b.Helper()
	err := l.file.db.View(func(tx *bbolt.Tx) error {
		n = tx.ID()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// grants has clients do something b.N times between them.
func grants(b *testing.B, clients int, do func(n int) error) {
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := c; n < b.N; n += clients {
				if err := do(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
}

func leasing(b *testing.B, l lease.Log) func(int) error { return acquireAndRelease(b, newStore(b, l)) }

func newStore(b *testing.B, l lease.Log) *lease.Memory {
	c := lease.Config{}
	if l != nil {
		c.Log = l
	}
	store, err := lease.NewMemory(c)
	if err != nil {
		b.Fatal(err)
	}
	for n := range 1000 {
		store.Set(lease.Candidate{Key: fmt.Sprint("default/", n), Incarnation: "i", MaxLeases: 10, Healthy: true,
			Endpoint: lease.Endpoint{Namespace: "default", Name: fmt.Sprint(n), Scheme: "http", Host: "192.0.2.1", Port: 3128}})
	}
	return store
}

func acquireAndRelease(b *testing.B, store lease.Store) func(int) error {
	ctx := b.Context()
	return func(n int) error {
		g, err := store.Acquire(ctx, lease.Request{ID: fmt.Sprint(n), Target: "example.com"})
		if err != nil {
			return err
		}
		return store.Release(ctx, g.Leases[0].ID)
	}
}

func writing(b *testing.B, write func(*bbolt.DB, func(*bbolt.Tx) error) error) func(int) error {
	f, err := openFile(newPath(b), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.db.Close() })
	return func(n int) error {
		r := lease.Record{Lease: fmt.Sprintf("%026d", n), Key: "default/1", Incarnation: "i", Target: "example.com", Expires: time.Now(), TTL: time.Minute,
			Request: &lease.Request{ID: fmt.Sprint(n), Target: "example.com", TTL: time.Minute}}
		put := func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketRecords)).Put(keyOf(r), encode(nil, r)) }
		if err := write(f.db, put); err != nil {
			return err
		}
		r.Request, r.Ended = nil, time.Now()
		return write(f.db, put)
	}
}

// BenchmarkHTTP is the same over the API, with and without a log: each client has a connection of its own.
func BenchmarkHTTP(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("memory/%d", clients), func(b *testing.B) { overHTTP(b, clients, newStore(b, nil)) })
		b.Run(fmt.Sprintf("boltlog/%d", clients), func(b *testing.B) { overHTTP(b, clients, newStore(b, openTest(b, newPath(b)))) })
	}
}

func overHTTP(b *testing.B, clients int, store lease.Store) {
	api, err := discovery.New(discovery.Config{Leases: store, Proxies: proxy.NewMemory(proxy.MemoryConfig{})})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	crawler, err := client.New(client.Config{BaseURL: server.URL, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}})
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took []time.Duration
	once := acquireAndRelease(b, crawler)
	grants(b, clients, func(n int) error {
		begun := time.Now()
		err := once(n)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(begun))
		return err
	})
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAfterPeak is single grants on a file that was a hundred times as full.
func BenchmarkAfterPeak(b *testing.B) {
	for _, peak := range []int{0, 10_000, 300_000} {
		b.Run(fmt.Sprint(peak), func(b *testing.B) {
			l := openTest(b, newPath(b))
			fill(b, l, peak, false)
			fill(b, l, peak, true)
			grants(b, 1, leasing(b, l))
		})
	}
}

// BenchmarkOpen is a start with as many records.
func BenchmarkOpen(b *testing.B) {
	for _, size := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			path := newPath(b)
			l := openTest(b, path)
			fill(b, l, size, false)
			closed(b, l)
			for b.Loop() {
				l := openTest(b, path)
				n := 0
				if err := l.Load(func(lease.Record) error { n++; return nil }); err != nil || n != size {
					b.Fatal(n, err)
				}
				closed(b, l)
			}
		})
	}
}

// fill makes records, or says that they are gone, some thousands at a time.
func fill(b *testing.B, l *Log, records int, gone bool) {
	b.Helper()
	var n uint64
	for i := range records {
		r := lease.Record{Lease: fmt.Sprintf("%026d", i*7919%1_000_003), Gone: gone}
		if !gone {
			r.Key, r.Incarnation, r.Target, r.Ended = "default/1", "i", "example.com", time.Now()
		}
		if n = l.Append(r); i%5000 == 0 {
			synced(b, l, n)
		}
	}
	synced(b, l, n)
}
