package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

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
	*Process
	*leases
	*probes
	*calls
	*passes
	*sweeps

	fleet []prometheus.Collector // the series that are the fleet's
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

// New makes the metrics of a process that keeps a fleet all the time. It fails when the registry has some of the series
// already.
func New(c Config) (*Metrics, error) {
	p, err := NewProcess(c)
	if err != nil {
		return nil, err
	}
	return p.NewFleet()
}

// Process has the series of a process: its requests, its runtime and its release. It is the Recorder of the API, and may be
// used concurrently.
type Process struct {
	requests *requests
	registry *prometheus.Registry
	log      *slog.Logger
	known    providers
}

// NewProcess makes the metrics of a process that keeps a fleet at times only, such as a replica that leads for a term. It
// fails when the registry has some of the series already.
func NewProcess(c Config) (*Process, error) {
	p := &Process{requests: newRequests(), registry: c.Registry, log: c.Logger, known: newProviders(c.Providers)}
	series := []prometheus.Collector{p.requests, buildInfo(c.Version)}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.registry == nil {
		p.registry = prometheus.NewRegistry()
		series = append(series, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return p, p.register(series...)
}

// NewFleet adds the series of a fleet, which begin at zero. There is one fleet at a time: that before is to be forgotten
// first.
func (p *Process) NewFleet() (*Metrics, error) {
	m := &Metrics{
		Process: p,
		leases:  newLeases(),
		probes:  newProbes(),
		calls:   newCalls(p.known),
		passes:  newPasses(p.known),
		sweeps:  newSweeps(p.known),
	}
	return m, m.add(m.leases, m.probes, m.calls, m.passes, m.sweeps)
}

// add registers series of the fleet.
func (m *Metrics) add(series ...prometheus.Collector) error {
	m.fleet = append(m.fleet, series...)
	return m.register(series...)
}

// Forget takes the series of the fleet away, and what is read for them at each scrape. Those of the process stay.
func (m *Metrics) Forget() {
	for _, s := range m.fleet {
		m.registry.Unregister(s)
	}
}

// Requested counts a request that was answered.
func (p *Process) Requested(route string, code int, took time.Duration) {
	p.requests.requested(route, code, took)
}

func (p *Process) register(series ...prometheus.Collector) error {
	var problems []error
	for _, s := range series {
		if err := p.registry.Register(s); err != nil {
			problems = append(problems, fmt.Errorf("metrics: %w", err))
		}
	}
	return errors.Join(problems...)
}

// Handler answers scrapes. What cannot be read is missing from the answer, logged, and counted in
// promhttp_metric_handler_errors_total; the rest is there. Scrapes that come at once share one look at the fleet, and more
// than 8 of them are refused with 503.
func (p *Process) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            p.registry,
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
