package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

// One Secret of ten proxies is rotated: a few at a time are replaced, and whoever wants a lease gets one that works.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	const fleetSize, atOnce = 10, 2
	p := newPlace(t)
	documents := []string{p.configuration(), login("before")}
	for n := range fleetSize {
		documents = append(documents, declared{name: fmt.Sprintf("p%d", n)}.String())
	}
	p.write("fleet.yaml", documents...)
	s := p.start("--drain-timeout", "1m") // a crawl through one that goes is not cut off
	s.await(fleetSize, "Ready")
	before := p.incarnations()

	documents[1] = login("after")
	p.write("fleet.yaml", documents...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for leases := 0; ; leases++ {
		granted, err := s.client.Acquire(ctx, lease.Request{})
		if err != nil {
			t.Fatalf("no lease after %d: %v", leases, err)
		}
		l := granted.Leases[0]
		p.target.crawl(t, l.Proxy.RevealURL())
		if err := s.client.Release(ctx, l.ID); err != nil {
			t.Fatal(err)
		}
		all, err := s.client.ListProxies(ctx, client.Filter{Healthy: new(false)})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > atOnce {
			t.Fatalf("%d proxies are out at once: %+v", len(all), all)
		}
		if len(all) == 0 && replaced(before, p.incarnations()) == fleetSize {
			break
		}
	}
	for range fleetSize {
		granted, err := s.client.Acquire(ctx, lease.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if password, _ := granted.Leases[0].Proxy.RevealURL().User.Password(); password != planted+"after" {
			t.Errorf("the password is %q", password)
		}
	}
}

// replaced counts the proxies that have another instance.
func replaced(before, now map[string]string) int {
	n := 0
	for uid, incarnation := range now {
		if before[uid] != "" && before[uid] != incarnation {
			n++
		}
	}
	return n
}
