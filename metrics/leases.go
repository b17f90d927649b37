package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// leases are the series of what happens to leases. It fulfils lease.Recorder.
type leases struct {
	series
	requests, ended *prometheus.CounterVec
	waits           prometheus.Histogram
}

func newLeases() *leases {
	l := &leases{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "lease_requests_total",
			Help: "Leases that were asked for, by outcome: granted, or what kept most of the proxies that match: " +
				"unhealthy, at_capacity, in_cooldown; no_proxy if none matches, or if those that are free are too few.",
		}, []string{"outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "leases_ended_total",
			Help:      "Leases that ended, by how: released by the crawler, or expired because it did not come back.",
		}, []string{"how"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "lease_wait_seconds",
			Help:      "How long requests waited that found no free proxy and were ready to wait, whether they got one in the end or not.",
			Buckets:   []float64{0.01, 0.1, 0.5, 1, 5, 10, 30, 60},
		}),
	}
	for _, outcome := range []string{"granted", "unhealthy", "at_capacity", "in_cooldown", "no_proxy"} {
		l.requests.WithLabelValues(outcome)
	}
	for _, how := range []string{"released", "expired"} {
		l.ended.WithLabelValues(how)
	}
	l.series = series{l.requests, l.ended, l.waits}
	return l
}

// LeaseGranted counts a lease.
func (l *leases) LeaseGranted() { l.requests.WithLabelValues("granted").Inc() }

// LeaseRefused counts a request that found no proxy.
func (l *leases) LeaseRefused(reason string) { l.requests.WithLabelValues(reason).Inc() }

// LeaseEnded counts the end of a lease.
func (l *leases) LeaseEnded(how string) { l.ended.WithLabelValues(how).Inc() }

// LeaseWaited observes the wait of a request.
func (l *leases) LeaseWaited(took time.Duration) { l.waits.Observe(took.Seconds()) }
