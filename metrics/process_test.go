package metrics_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// A process that no longer keeps the fleet exports nothing of it, so that two of them together show it once. What it has
// answered stays; the next fleet begins at zero.
func TestFleetOfATerm(t *testing.T) {
	process, err := metrics.NewProcess(alone(metrics.Config{Providers: []string{"cloud"}}))
	if err != nil {
		t.Fatal(err)
	}
	handler := process.Handler()
	process.Requested("GET /v1/proxies", http.StatusOK, time.Second)
	before := scrape(t, handler)
	for line := range strings.SplitSeq(before, "\n") {
		if strings.HasPrefix(line, "proxyfleet_") && !strings.HasPrefix(line, "proxyfleet_api_") && !strings.HasPrefix(line, "proxyfleet_build_info") {
			t.Errorf("a process without a fleet exports %s", line)
		}
	}
	for range 2 {
		m, err := process.NewFleet()
		if err != nil {
			t.Fatal(err)
		}
		read(t, m, metrics.Sources{
			Proxies: func(context.Context) ([]*proxy.Proxy, error) { return []*proxy.Proxy{{}}, nil },
			Leases:  func() map[string]int { return map[string]int{"default/a": 1} }, Cooldowns: func() int { return 1 },
			Queued: func() map[string]int { return map[string]int{"cloud": 1} },
			Checks: func() []monitor.Result {
				return []monitor.Result{{Provider: "cloud", Targets: []monitor.Target{{TargetStatus: provider.TargetStatus{Target: "x", Ready: true}}}}}
			},
		})
		m.LeaseGranted()
		m.Held("cloud", 3)
		m.Probed("default/a", health.Result{OK: true, Latency: time.Second})
		during := scrape(t, handler)
		for series, want := range map[string]string{`proxyfleet_leases_active`: "1", `proxyfleet_proxies{phase="Pending"}`: "1",
			`proxyfleet_lease_requests_total{outcome="granted"}`: "1", `proxyfleet_gc_held_instances{provider="cloud"}`: "3",
			`proxyfleet_api_requests_total{code="200",route="GET /v1/proxies"}`: "1"} {
			if got := value(during, series); got != want {
				t.Errorf("%s is %q, want %s", series, got, want)
			}
		}
		m.Forget()
		if diff := cmp.Diff(before, scrape(t, handler)); diff != "" {
			t.Errorf("after the term (-want +got):\n%s", diff)
		}
	}
}
