package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// passes are the series of what the reconciler does. It fulfils the Recorder of the fleet.
type passes struct {
	series
	known       providers
	count       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	transitions *prometheus.CounterVec
	ready       *prometheus.HistogramVec
}

func newPasses(known providers) *passes {
	p := &passes{
		known: known,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "reconciles_total",
			Help: "Passes of the reconciler, by provider and outcome: ok; conflict (the record changed meanwhile, the next pass " +
				"follows at once); error (tried again with backoff); canceled (the process ends).",
		}, []string{"provider", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "reconcile_duration_seconds",
			Help:      "Time that a pass of the reconciler took, with its calls of the provider and of the store.",
			Buckets:   []float64{.001, .005, .025, .1, .5, 1, 5, 10, 30, 60, 120, 300},
		}, []string{"provider"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "phase_transitions_total",
			Help:      "Proxies that went from one phase to another, by provider.",
		}, []string{"provider", "from", "to"}),
		ready: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "time_to_ready_seconds",
			Help:      "Time from a proxy's declaration until it was Ready for the first time, by provider.",
			Buckets:   []float64{1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
		}, []string{"provider"}),
	}
	for _, name := range known.labels() {
		for _, outcome := range []string{"ok", "conflict", "error", "canceled"} {
			p.count.WithLabelValues(name, outcome)
		}
		p.duration.WithLabelValues(name)
		p.ready.WithLabelValues(name)
	}
	p.series = series{p.count, p.duration, p.transitions, p.ready}
	return p
}

// Reconciled counts a pass. The provider is "" for what has none.
func (p *passes) Reconciled(provider, outcome string, took time.Duration) {
	name := p.known.label(provider)
	p.count.WithLabelValues(name, outcome).Inc()
	p.duration.WithLabelValues(name).Observe(took.Seconds())
}

// PhaseChanged counts the step of a proxy from one phase to another.
func (p *passes) PhaseChanged(provider, from, to string) {
	p.transitions.WithLabelValues(p.known.label(provider), from, to).Inc()
}

// BecameReady counts a proxy that is Ready for the first time, and how long that took.
func (p *passes) BecameReady(provider string, took time.Duration) {
	p.ready.WithLabelValues(p.known.label(provider)).Observe(took.Seconds())
}
