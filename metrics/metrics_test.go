package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/proxy"
)

// A change is accepted with UPDATE=1 go test ./metrics -run TestScrape.
func TestScrape(t *testing.T) {
	m := newMetrics(t, alone(metrics.Config{Version: "v1.2.3", Providers: []string{"cloud"}}))
	read(t, m, sources())
	history(m)
	got := strings.ReplaceAll(scrape(t, m.Handler()), runtime.Version(), "GOVERSION")

	const golden = "testdata/scrape.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the scrape is not as expected (-want +got):\n%s", diff)
	}
}

func TestPromtoolFindsNothing(t *testing.T) {
	m := newMetrics(t, metrics.Config{Providers: []string{"cloud"}})
	read(t, m, sources())
	history(m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	promtool := exec.CommandContext(ctx, "promtool", "check", "metrics")
	promtool.Stdin = strings.NewReader(scrape(t, m.Handler()))
	if out, err := promtool.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestRuntimeSeries(t *testing.T) {
	text := scrape(t, newMetrics(t, metrics.Config{}).Handler())
	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "proxyfleet_build_info"} {
		if count(text, name) != 1 {
			t.Errorf("the scrape has no %s", name)
		}
	}
	given := scrape(t, newMetrics(t, alone(metrics.Config{})).Handler())
	if strings.Contains(given, "\ngo_") {
		t.Error("a registry that was given has the series of the runtime, which its owner may have registered")
	}
}

func TestSeriesOfAProxyGoWithIt(t *testing.T) {
	m := newMetrics(t, alone(metrics.Config{}))
	h := m.Handler()
	for _, key := range []string{"default/stays", "default/goes"} {
		m.Probed(key, health.Result{OK: true, Latency: time.Second})
		m.Probed(key, health.Result{Party: health.PartyDial, Latency: time.Second})
	}
	if before := lines(scrape(t, h), `"default/goes"`); strings.Count(before, "\n") != 3 {
		t.Fatalf("the proxy has these series:\n%s", before)
	}
	m.Forgotten("default/goes")
	m.Forgotten("default/never-was")
	after := scrape(t, h)
	if left := lines(after, "default/goes"); left != "" {
		t.Errorf("the proxy is gone, and these series of it are left:\n%s", left)
	}
	if strings.Count(lines(after, `"default/stays"`), "\n") != 3 {
		t.Error("another proxy lost its series")
	}
	m.Probed("default/goes", health.Result{OK: true, Latency: time.Second})
	if got := value(scrape(t, h), `proxyfleet_healthcheck_duration_seconds_count{proxy="default/goes"}`); got != "1" {
		t.Errorf("its successor starts with %q probes", got)
	}
}

// Specs name providers as they like, and the history of a fleet is long.
func TestLabelsAreBounded(t *testing.T) {
	m := newMetrics(t, alone(metrics.Config{Providers: []string{"cloud"}}))
	for _, name := range append(names(1000), "cloud", "") {
		m.Called(name, "get", "", time.Second)
		m.Reconciled(name, "ok", time.Second)
		m.PhaseChanged(name, "Probing", "Ready")
		m.BecameReady(name, time.Second)
		m.Swept(name, "ok", time.Second)
		m.Collected(name, "orphan", "ok")
		m.Held(name, 1)
	}
	depths := map[string]int{}
	for _, name := range names(1000) {
		depths[name] = 1
	}
	read(t, m, metrics.Sources{
		Queued: func() map[string]int { return depths },
		Leases: func() map[string]int { return depths },
	})
	text := scrape(t, m.Handler())
	if leaked := lines(text, "proxy-00000"); leaked != "" {
		t.Errorf("what a spec says has become a label:\n%s", leaked)
	}
	if n := strings.Count(text, "\n"); n > 300 {
		t.Errorf("a scrape has %d lines", n)
	}
	for series, want := range map[string]string{
		`proxyfleet_reconciles_total{outcome="ok",provider="(unknown)"}`: "1000",
		`proxyfleet_reconciles_total{outcome="ok",provider="(none)"}`:    "1",
		`proxyfleet_reconciles_total{outcome="ok",provider="cloud"}`:     "1",
		`proxyfleet_reconcile_queue_depth{provider="(unknown)"}`:         "1000",
		`proxyfleet_leases_active`:                                       "1000",
	} {
		if got := value(text, series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
}

func TestEveryPhaseIsShown(t *testing.T) {
	m := newMetrics(t, alone(metrics.Config{}))
	read(t, m, metrics.Sources{Proxies: func(context.Context) ([]*proxy.Proxy, error) { return nil, nil }})
	text := scrape(t, m.Handler())
	for _, phase := range []string{"Pending", "Provisioning", "Probing", "Ready", "Unhealthy", "Replacing", "Deleting", "Failed"} {
		if got := value(text, `proxyfleet_proxies{phase="`+phase+`"}`); got != "0" {
			t.Errorf("of an empty fleet, phase %s counts %q", phase, got)
		}
	}
}

func TestLeaseCapacity(t *testing.T) {
	of := func(phase proxy.Phase, maxLeases int32, deleting bool) *proxy.Proxy {
		p := inPhase("p", phase)
		p.Spec.MaxLeases, p.Deleting = maxLeases, deleting
		return p
	}
	m := newMetrics(t, alone(metrics.Config{}))
	read(t, m, metrics.Sources{Proxies: func(context.Context) ([]*proxy.Proxy, error) {
		return []*proxy.Proxy{
			of(proxy.Ready, 3, false),
			of(proxy.Ready, 0, false), // by default 10
			of(proxy.Ready, 100, true),
			of(proxy.Unhealthy, 1000, false),
		}, nil
	}})
	if got := value(scrape(t, m.Handler()), "proxyfleet_lease_capacity"); got != "13" {
		t.Errorf("the capacity is %s, want that of the Ready proxies: 13", got)
	}
}

// What cannot be read is missing, said and counted. The rest is there.
func TestBrokenSource(t *testing.T) {
	for name, broken := range map[string]func(*metrics.Sources){
		"an error": func(s *metrics.Sources) {
			s.Proxies = func(context.Context) ([]*proxy.Proxy, error) { return nil, errors.New("the disk is on fire") }
		},
		"a panic": func(s *metrics.Sources) {
			s.Proxies = func(context.Context) ([]*proxy.Proxy, error) { panic("the disk is on fire") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			m := newMetrics(t, alone(metrics.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
			s := sources()
			broken(&s)
			read(t, m, s)
			h := m.Handler()
			text := scrape(t, h)
			if n := count(text, "proxyfleet_proxies") + count(text, "proxyfleet_lease_capacity"); n != 0 {
				t.Errorf("there are %d series of records that cannot be read", n)
			}
			if got := value(text, "proxyfleet_leases_active"); got != "3" {
				t.Errorf("the other sources are read, but leases_active is %q", got)
			}
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "the disk is on fire") {
				t.Errorf("the log does not say what is wrong: %s", &log)
			}
			if got := value(scrape(t, h), `promhttp_metric_handler_errors_total{cause="gathering"}`); got != "1" {
				t.Errorf("the failure counts %q", got)
			}
		})
	}
}

// A store that does not answer holds a scrape up for as long as the deadline it is given, and nothing but the scrape.
func TestSourcesHaveADeadline(t *testing.T) {
	m := newMetrics(t, alone(metrics.Config{}))
	var left time.Duration
	read(t, m, metrics.Sources{Proxies: func(ctx context.Context) ([]*proxy.Proxy, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return nil, nil
	}})
	scrape(t, m.Handler())
	if left <= 0 || left > 10*time.Second {
		t.Errorf("the records are read within %v; Prometheus waits for 10s", left)
	}
}

func TestRegistryThatHasThemAlready(t *testing.T) {
	c := metrics.Config{Registry: prometheus.NewRegistry()}
	m := newMetrics(t, c)
	if _, err := metrics.New(c); err == nil {
		t.Error("two fleets in one registry would count as one")
	}
	read(t, m, sources())
	if err := m.Read(sources()); err == nil {
		t.Error("the second Read is lost in silence")
	}
}

func TestConcurrentUse(t *testing.T) {
	const rounds = 200
	m := newMetrics(t, alone(metrics.Config{Providers: []string{"cloud"}}))
	read(t, m, sources())
	h := m.Handler()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range rounds {
				history(m)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 20 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			}
		})
	}
	wg.Wait()
	text := scrape(t, h)
	for series, want := range map[string]string{
		`proxyfleet_lease_requests_total{outcome="granted"}`:                               "2400",
		`proxyfleet_healthcheck_duration_seconds_count{proxy="default/a"}`:                 "1600",
		`proxyfleet_healthcheck_failures_total{party="timeout",proxy="default/b"}`:         "1600",
		`proxyfleet_provider_requests_total{op="get",provider="cloud",result="not_found"}`: "800",
		`proxyfleet_api_requests_total{code="404",route="unmatched"}`:                      "800",
		`proxyfleet_phase_transitions_total{from="Probing",provider="cloud",to="Ready"}`:   "800",
		`promhttp_metric_handler_errors_total{cause="gathering"}`:                          "0",
		`proxyfleet_gc_collected_total{kind="orphan",provider="cloud",result="ok"}`:        "800",
		`proxyfleet_reconciles_total{outcome="error",provider="(unknown)"}`:                "800",
		`proxyfleet_time_to_ready_seconds_count{provider="cloud"}`:                         "800",
	} {
		if got := value(text, series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
}
