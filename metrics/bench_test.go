package metrics_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/proxy"
)

const (
	benchProxies  = 10_000
	benchTroubled = 1_000 // of those, with probes that failed in two ways
	benchBusy     = 5_000 // of those, with open leases
)

// BenchmarkScrape10000 answers scrapes of a fleet of 10,000. The baseline is an answer of the same library with as many
// plain gauges as the scrape has series: a gauge vector with one label, whose values are the names of proxies. They
// are timed in turns, so that the ratio does not depend on what else the machine does.
func BenchmarkScrape10000(b *testing.B) {
	fleet := benchFleet(b)
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "proxyfleet_plain_gauge", Help: "Nothing."}, []string{"proxy"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauges)
	for i := range count(scrape(b, fleet), `[a-z_]+`) {
		gauges.WithLabelValues(fmt.Sprintf("default/proxy-%05d", i)).Set(rand.Float64())
	}
	baseline := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			var ours, plain time.Duration
			var size, plainSize int
			b.ReportAllocs()
			for b.Loop() {
				size, ours = answer(b, fleet, encoding, ours)
				plainSize, plain = answer(b, baseline, encoding, plain)
			}
			b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/scrape")
			b.ReportMetric(float64(plain.Milliseconds())/float64(b.N), "ms/baseline")
			b.ReportMetric(float64(ours)/float64(plain), "ratio")
			b.ReportMetric(float64(size), "B/scrape")
			b.ReportMetric(float64(plainSize), "B/baseline")
		})
	}
}

// answer makes one scrape, and returns its size and the time so far.
func answer(b *testing.B, h http.Handler, encoding string, soFar time.Duration) (int, time.Duration) {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	start := time.Now()
	h.ServeHTTP(w, r)
	soFar += time.Since(start)
	if got := w.Header().Get("Content-Encoding"); encoding == "gzip" != (got == "gzip") {
		b.Fatalf("asked for %s, got %q", encoding, got)
	}
	return w.Body.Len(), soFar
}

// benchFleet is a fleet of 10,000 in a memory store, of which a tenth is in trouble and a half is leased.
func benchFleet(b *testing.B) http.Handler {
	m := newMetrics(b, metrics.Config{Providers: []string{"cloud"}})
	history(m)
	store := proxy.NewMemory(proxy.MemoryConfig{})
	leases := map[string]int{}
	for i, key := range names(benchProxies) {
		m.Probed(key, health.Result{OK: true, Latency: time.Duration(rand.IntN(int(time.Second)))})
		if i < benchTroubled {
			m.Probed(key, health.Result{Party: health.PartyDial, Latency: time.Second})
			m.Probed(key, health.Result{Party: health.PartyTimeout, Latency: 10 * time.Second})
		}
		if i < benchBusy {
			leases[key] = 1 + i%5
		}
		declare(b, store, key)
	}
	s := sources()
	s.Proxies, s.Leases = store.List, func() map[string]int { return leases }
	read(b, m, s)
	return m.Handler()
}

// declare puts an External proxy into a store.
func declare(b *testing.B, store *proxy.Memory, key string) {
	b.Helper()
	k := proxy.Key{Namespace: "default", Name: key[len("default/"):]}
	spec := proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: "http", Host: "192.0.2.1", Port: 3128}}
	if _, err := store.Put(b.Context(), k, proxy.Declaration{Spec: spec}, "bench"); err != nil {
		b.Fatal(err)
	}
}

// What one more proxy adds to a scrape.
func BenchmarkScrapeBytesPerProxy(b *testing.B) {
	size := func(n int) (plain, zipped int) {
		m := newMetrics(b, alone(metrics.Config{}))
		for _, key := range names(n) {
			m.Probed(key, health.Result{OK: true, Latency: time.Duration(rand.IntN(int(time.Second)))})
		}
		text := scrape(b, m.Handler())
		var counted counter
		z := gzip.NewWriter(&counted)
		_, _ = io.WriteString(z, text)
		_ = z.Close()
		return len(text), int(counted)
	}
	for b.Loop() {
		plain, zipped := size(benchProxies)
		emptyPlain, emptyZipped := size(0)
		b.ReportMetric(float64(plain-emptyPlain)/benchProxies, "B/proxy")
		b.ReportMetric(float64(zipped-emptyZipped)/benchProxies, "zippedB/proxy")
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
