package main

import (
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// One polite crawler that holds one lease at a time goes through the whole fleet, where it is told to spread.
func TestLeasePolicy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration(), login("pw"), declared{name: "a"}.String(), declared{name: "b"}.String(), declared{name: "c"}.String())
	s := p.start("--lease-policy", "spread")
	s.await(3, "Ready")
	all, err := s.client.Acquire(t.Context(), lease.Request{Count: 3, Wait: 30 * time.Second}) // the store hears of them a moment later
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if err := s.client.Release(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for range 6 {
		granted, err := s.client.Acquire(t.Context(), lease.Request{})
		if err != nil {
			t.Fatal(err)
		}
		seen[granted.Leases[0].Proxy.Name]++
		if err := s.client.Release(t.Context(), granted.Leases[0].ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if seen[name] != 2 {
			t.Errorf("%s was leased %d times of 6, want 2: %v", name, seen[name], seen)
		}
	}
}
