package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// alone is a registry without the series of runtime and process, which differ from run to run.
func alone(c metrics.Config) metrics.Config {
	c.Registry = prometheus.NewRegistry()
	return c
}

func newMetrics(t testing.TB, c metrics.Config) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read(t testing.TB, m *metrics.Metrics, s metrics.Sources) {
	t.Helper()
	if err := m.Read(s); err != nil {
		t.Fatal(err)
	}
}

// scrape is what Prometheus would get.
func scrape(t testing.TB, h http.Handler) string {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if r.Code != http.StatusOK {
		t.Fatalf("a scrape is answered with %d: %s", r.Code, r.Body)
	}
	return r.Body.String()
}

// value returns the value of one series in a scrape, as it is written, or "".
func value(scrape, series string) string {
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.+)$`).FindStringSubmatch(scrape)
	if match == nil {
		return ""
	}
	return match[1]
}

// count is how many series of a name a scrape has.
func count(scrape, name string) int {
	return len(regexp.MustCompile(`(?m)^`+name+`(\{| )`).FindAllString(scrape, -1))
}

// history tells m of something of each kind: a small fleet's first minutes.
func history(m *metrics.Metrics) {
	for range 3 {
		m.LeaseGranted()
	}
	m.LeaseRefused("at_capacity")
	m.LeaseRefused("no_proxy")
	m.LeaseEnded("released")
	m.LeaseEnded("expired")
	m.LeaseWaited(2 * time.Second)

	m.Probed("default/a", health.Result{OK: true, Latency: 125 * time.Millisecond})
	m.Probed("default/a", health.Result{OK: true, Latency: 375 * time.Millisecond})
	m.Probed("default/b", health.Result{Party: health.PartyTimeout, Latency: 10 * time.Second})
	m.Probed("default/b", health.Result{Party: health.PartyDial, Latency: time.Second})
	m.Probed("default/b", health.Result{Party: health.PartyTimeout, Latency: 10 * time.Second})
	m.Probed("default/gone", health.Result{Party: health.PartyDial, Latency: time.Second})
	m.Forgotten("default/gone")

	m.Called("cloud", "create", "", 2*time.Second)
	m.Called("cloud", "create", provider.ErrQuotaExceeded, 500*time.Millisecond)
	m.Called("cloud", "get", provider.ErrNotFound, 20*time.Millisecond)

	m.Reconciled("cloud", "ok", 30*time.Millisecond)
	m.Reconciled("cloud", "error", 2*time.Minute)
	m.Reconciled("", "ok", 500*time.Microsecond)
	m.Reconciled("typo", "error", time.Millisecond)
	m.PhaseChanged("cloud", "Pending", "Provisioning")
	m.PhaseChanged("cloud", "Probing", "Ready")
	m.BecameReady("cloud", 42*time.Second)

	m.Swept("cloud", "braked", 1500*time.Millisecond)
	m.Held("cloud", 7)
	m.Collected("cloud", "orphan", "ok")

	m.Requested("GET /v1/proxies", 200, 3*time.Millisecond)
	m.Requested("unmatched", 404, 10*time.Microsecond)
}

// sources are those of the fleet that history tells of.
func sources() metrics.Sources {
	checked := time.Date(2026, 1, 2, 3, 4, 5, 500e6, time.UTC)
	return metrics.Sources{
		Proxies: func(context.Context) ([]*proxy.Proxy, error) {
			return []*proxy.Proxy{inPhase("a", proxy.Ready), inPhase("b", proxy.Unhealthy), inPhase("c", "")}, nil
		},
		Leases:    func() map[string]int { return map[string]int{"default/a": 2, "default/b": 1} },
		Cooldowns: func() int { return 4 },
		Queued:    func() map[string]int { return map[string]int{"": 0, "cloud": 5, "typo": 1, "slip": 2} },
		Checks: func() []monitor.Result {
			up := monitor.Target{TargetStatus: provider.TargetStatus{Target: "host-1", Ready: true}, Checked: checked, Took: 250 * time.Millisecond}
			down := monitor.Target{TargetStatus: provider.TargetStatus{Target: "host-2", Reason: "Timeout"}, Checked: checked, Took: 15 * time.Second}
			return []monitor.Result{{Provider: "cloud", Targets: []monitor.Target{up, down}}, {Provider: "local"}}
		},
	}
}

func inPhase(name string, phase proxy.Phase) *proxy.Proxy {
	p := &proxy.Proxy{Key: proxy.Key{Namespace: "default", Name: name}}
	p.Status.Phase = phase
	return p
}

// lines are the lines of a text with a word.
func lines(text, word string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// names are n names that differ.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("default/proxy-%05d", i)
	}
	return all
}
