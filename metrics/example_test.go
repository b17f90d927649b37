package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/metrics"
)

// A crawler that leases in its own process shows its leases with its other series.
func Example() {
	m, err := metrics.New(metrics.Config{Registry: prometheus.NewRegistry()})
	if err != nil {
		log.Fatal(err)
	}
	leases, err := lease.NewMemory(lease.Config{Recorder: m})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Read(metrics.Sources{Leases: leases.Counts}); err != nil {
		log.Fatal(err)
	}

	leases.Set(lease.Candidate{Key: "default/a", Healthy: true, MaxLeases: 1})
	for range 2 {
		_, err = leases.Acquire(context.Background(), lease.Request{Target: "shop.example"})
	}
	fmt.Println(err)

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "proxyfleet_lease") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// lease: no proxy is free: of 1 that match, 0 not ready, 1 at capacity, 0 in cooldown, 0 eligible
	// proxyfleet_lease_requests_total{outcome="at_capacity"} 1
	// proxyfleet_lease_requests_total{outcome="granted"} 1
	// proxyfleet_leases_active 1
}
