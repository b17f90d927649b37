package storetest

import (
	"fmt"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
)

// Benchmark measures a store that holds nothing yet: one write of a status, one Get and one List of 10,000 records.
func Benchmark(b *testing.B, s Store) {
	b.Helper()
	const records = 10_000
	ctx := b.Context()
	var p *proxy.Proxy
	for i := range records {
		var err error
		if p, err = s.Put(ctx, key(fmt.Sprintf("p-%05d", i)), declaration(), source); err != nil {
			b.Fatal(err)
		}
	}
	p.Status = status()
	b.Run("UpdateStatus", func(b *testing.B) {
		for b.Loop() {
			p.Status.LatencyMillis++
			q, err := s.UpdateStatus(ctx, p)
			if err != nil {
				b.Fatal(err)
			}
			p = q
		}
	})
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Get(ctx, p.Key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("List", func(b *testing.B) {
		for b.Loop() {
			if all, err := s.List(ctx); err != nil || len(all) != records {
				b.Fatal(len(all), err)
			}
		}
	})
}
