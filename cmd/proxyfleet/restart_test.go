package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

// A fleet that was killed goes on as if nothing had been: the same instances at the same addresses, and Ready from the first
// answer on, until the probes of the new process have taken over.
func TestKilledFleetGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	documents := []string{p.configuration(), login("a")}
	for n := range 3 {
		documents = append(documents, declared{name: fmt.Sprintf("p%d", n)}.String())
	}
	p.write("fleet.yaml", documents...)
	s := p.start()
	before := s.await(3, "Ready")
	instances := p.incarnations()
	if _, err := s.client.Acquire(t.Context(), lease.Request{}); err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		s.kill()
		probes := map[string]int{}
		for _, q := range before {
			probes[q.Host] = p.target.probed(q.Host)
		}
		s = p.start()
		eventually(t, func() string {
			now := s.list()
			// What moves is when and how fast the last probe was, and the leases of a process end with it.
			if diff := cmp.Diff(before, now, cmpopts.IgnoreFields(client.Proxy{}, "LatencyMillis", "LastHealthCheckTime", "ActiveLeases")); diff != "" {
				t.Fatalf("in life %d the fleet is another one (-before +now):\n%s", life, diff)
			}
			for _, q := range now {
				if p.target.probed(q.Host) < probes[q.Host]+2 {
					return q.Name + " is not probed"
				}
			}
			return ""
		})
		if diff := cmp.Diff(instances, p.incarnations()); diff != "" {
			t.Errorf("instances (-before +now):\n%s", diff)
		}
		granted, err := s.client.Acquire(t.Context(), lease.Request{})
		if err != nil {
			t.Fatal(err)
		}
		p.target.crawl(t, granted.Leases[0].Proxy.RevealURL())
	}
}
