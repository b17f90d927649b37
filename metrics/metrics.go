package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
)

// namespace is the first word of every series of the fleet.
const namespace = "proxyfleet"

// scrapesAtOnce is how many scrapes are answered at the same time; they share one look at the fleet.
const scrapesAtOnce = 8

// Metrics counts what the parts of a fleet tell. It is their Recorder, one for all, and may be used concurrently. Besides
// the Recorders named below it fulfils the one of the fleet.
type Metrics struct {
	*leases
	*probes
	*calls
	*passes
	*sweeps
	*requests

	registry *prometheus.Registry
	log      *slog.Logger
	known    providers
}

var (
	_ lease.Recorder     = (*Metrics)(nil)
	_ health.Recorder    = (*Metrics)(nil)
	_ provider.Recorder  = (*Metrics)(nil)
	_ gc.Recorder        = (*Metrics)(nil)
	_ discovery.Recorder = (*Metrics)(nil)
)

// Config is what [Metrics] can be told. The zero value is a good one.
type Config struct {
	// Version is that of the program, for proxyfleet_build_info. Defaults to "unknown".
	Version string
	// Providers are the names of the configured ones: the values of the label provider. Others that a proxy's spec may name
	// count as "(unknown)". Defaults to none.
	Providers []string
	// Registry is where the series are registered. Defaults to a new one, which also has those of the Go runtime and of the
	// process.
	Registry *prometheus.Registry
	// Logger gets a line for each scrape that lacks something. Defaults to none.
	Logger *slog.Logger
}

// New makes the metrics of a fleet. It fails when the registry has some of the series already.
func New(c Config) (*Metrics, error) {
	known := newProviders(c.Providers)
	m := &Metrics{
		leases:   newLeases(),
		probes:   newProbes(),
		calls:    newCalls(known),
		passes:   newPasses(known),
		sweeps:   newSweeps(known),
		requests: newRequests(),
		registry: c.Registry,
		log:      c.Logger,
		known:    known,
	}
	series := []prometheus.Collector{m.leases, m.probes, m.calls, m.passes, m.sweeps, m.requests, buildInfo(c.Version)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.registry == nil {
		m.registry = prometheus.NewRegistry()
		series = append(series, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return m, m.register(series...)
}

func (m *Metrics) register(series ...prometheus.Collector) error {
	var problems []error
	for _, s := range series {
		if err := m.registry.Register(s); err != nil {
			problems = append(problems, fmt.Errorf("metrics: %w", err))
		}
	}
	return errors.Join(problems...)
}

// Handler answers scrapes. What cannot be read is missing from the answer, logged, and counted in
// promhttp_metric_handler_errors_total; the rest is there. Scrapes that come at once share one look at the fleet, and more
// than 8 of them are refused with 503.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            m.registry,
		MaxRequestsInFlight: scrapesAtOnce,
		CoalesceGather:      true,
	})
}

// buildInfo is always 1: what it says is in its labels.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace:   namespace,
		Name:        "build_info",
		Help:        "Which release of proxyfleet runs, and which version of Go it was built with. Always 1.",
		ConstLabels: prometheus.Labels{"version": cmp.Or(version, "unknown"), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// series are several collectors as one.
type series []prometheus.Collector

func (s series) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s {
		c.Describe(ch)
	}
}

func (s series) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s {
		c.Collect(ch)
	}
}
