package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sweeps are the series of the orphan sweeper. It fulfils gc.Recorder.
type sweeps struct {
	series
	known            providers
	count, collected *prometheus.CounterVec
	duration         *prometheus.SummaryVec
	held             *prometheus.GaugeVec
}

func newSweeps(known providers) *sweeps {
	s := &sweeps{
		known: known,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "gc", Name: "sweeps_total",
			Help: "Sweeps of a provider, by result: ok; braked (too much would have been deleted, and nothing was); unreadable " +
				"(the provider's list failed); records_unreadable (the fleet's own records could not be read).",
		}, []string{"provider", "result"}),
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "gc", Name: "collected_total",
			Help: "Instances whose deletion a sweep has asked for, by kind and result (ok, error): an orphan belongs to no proxy, " +
				"a stray to a proxy that has another instance.",
		}, []string{"provider", "kind", "result"}),
		duration: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Namespace: namespace, Subsystem: "gc", Name: "sweep_duration_seconds",
			Help: "Time that the sweeps of a provider took.",
		}, []string{"provider"}),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gc", Name: "held_instances",
			Help: "Instances that the brake holds back from deletion until an operator allows it. Above 0 the brake is engaged.",
		}, []string{"provider"}),
	}
	for name := range known {
		for _, result := range []string{"ok", "braked", "unreadable", "records_unreadable"} {
			s.count.WithLabelValues(name, result)
		}
		for _, kind := range []string{"orphan", "stray"} {
			s.collected.WithLabelValues(name, kind, "ok")
			s.collected.WithLabelValues(name, kind, "error")
		}
		s.duration.WithLabelValues(name)
		s.held.WithLabelValues(name)
	}
	s.series = series{s.count, s.collected, s.duration, s.held}
	return s
}

// Swept counts a sweep of a provider.
func (s *sweeps) Swept(provider, result string, took time.Duration) {
	name := s.known.label(provider)
	s.count.WithLabelValues(name, result).Inc()
	s.duration.WithLabelValues(name).Observe(took.Seconds())
}

// Collected counts a deletion that a sweep has asked for.
func (s *sweeps) Collected(provider, kind, result string) {
	s.collected.WithLabelValues(s.known.label(provider), kind, result).Inc()
}

// Held shows how much the brake holds back.
func (s *sweeps) Held(provider string, instances int) {
	s.held.WithLabelValues(s.known.label(provider)).Set(float64(instances))
}
