package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests are the series of the HTTP API.
type requests struct {
	series
	count    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRequests() *requests {
	r := &requests{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "api", Name: "requests_total",
			Help: "Requests that the HTTP API has answered, by route and status code. What is no route of it is unmatched.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "api", Name: "request_duration_seconds",
			Help:    "Time that the HTTP API took to answer, by route.",
			Buckets: []float64{.001, .005, .025, .1, .25, 1, 2.5, 10, 30, 60},
		}, []string{"route"}),
	}
	r.series = series{r.count, r.duration}
	return r
}

// requested counts a request that was answered.
func (r *requests) requested(route string, code int, took time.Duration) {
	r.count.WithLabelValues(route, strconv.Itoa(code)).Inc()
	r.duration.WithLabelValues(route).Observe(took.Seconds())
}
