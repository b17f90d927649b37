package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/provider"
)

// calls are the series of what is asked of providers. It fulfils provider.Recorder.
type calls struct {
	series
	known    providers
	count    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCalls(known providers) *calls {
	c := &calls{
		known: known,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "provider_requests_total",
			Help: "Calls of a provider that ended, by method and result: ok, not_found, transient, quota_exceeded or permanent. " +
				"Checks do not count.",
		}, []string{"provider", "op", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "provider_request_duration_seconds",
			Help:      "Time that the calls of a provider took, by method.",
			Buckets:   []float64{.01, .05, .25, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"provider", "op"}),
	}
	for name := range known {
		for _, op := range []string{"create", "get", "delete", "list"} {
			c.duration.WithLabelValues(name, op)
			for _, class := range []provider.Class{"", provider.ErrTransient, provider.ErrQuotaExceeded, provider.ErrPermanent} {
				c.count.WithLabelValues(name, op, resultOf(class))
			}
		}
		c.count.WithLabelValues(name, "get", resultOf(provider.ErrNotFound))
	}
	c.series = series{c.count, c.duration}
	return c
}

// Called counts a call.
func (c *calls) Called(name, op string, class provider.Class, took time.Duration) {
	name = c.known.label(name)
	c.count.WithLabelValues(name, op, resultOf(class)).Inc()
	c.duration.WithLabelValues(name, op).Observe(took.Seconds())
}

func resultOf(class provider.Class) string { return cmp.Or(string(class), "ok") }
