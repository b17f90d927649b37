package leasehttp_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// watched is a memory store that notes what it is told.
type watched struct {
	*lease.Memory
	mu       sync.Mutex
	granted  []string // names, in order
	targets  []string
	reports  []string // name and outcome, in order
	renewals int
	names    map[string]string // by lease
}

// newStore returns a store that has proxies by name.
func newStore(t *testing.T, proxies map[string]lease.Endpoint) *watched {
	t.Helper()
	m, err := lease.NewMemory(lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &watched{Memory: m, names: map[string]string{}}
	for name, e := range proxies {
		s.set(name, e)
	}
	return s
}

func (s *watched) set(name string, e lease.Endpoint) {
	s.Set(lease.Candidate{Key: "default/" + name, Incarnation: "1", Endpoint: e, MaxLeases: 10, Healthy: true})
}

func (s *watched) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	g, err := s.Memory.Acquire(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, r.Target)
	for _, l := range g.Leases {
		s.names[l.ID] = l.Proxy.Name
		s.granted = append(s.granted, l.Proxy.Name)
	}
	return g, err
}

func (s *watched) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	s.mu.Lock()
	s.renewals++
	s.mu.Unlock()
	return s.Memory.Renew(ctx, id, ttl)
}

func (s *watched) Report(ctx context.Context, id string, r lease.Report) error {
	s.mu.Lock()
	s.reports = append(s.reports, fmt.Sprintf("%s %s", s.names[id], r.Outcome))
	s.mu.Unlock()
	return s.Memory.Report(ctx, id, r)
}

// said returns the reports since the last call.
func (s *watched) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.reports
	s.reports = nil
	return slices.Clone(said)
}

// empty makes sure that every lease was given back.
func (s *watched) empty(t *testing.T) {
	t.Helper()
	if open := s.Counts(); len(open) > 0 {
		t.Errorf("leases are left open: %v", open)
	}
}
