package leasehttp_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
)

// BenchmarkRoundTrip compares, in turns, a request under a lease with one of a bare net/http transport that uses the same proxy
// and closes each connection too. Proxy and target are in the same process, and cost both the same.
func BenchmarkRoundTrip(b *testing.B) {
	f := newForward(b, "http", "127.0.0.1")
	store, err := lease.NewMemory(lease.Config{CooldownWindow: time.Second}) // ended leases are remembered for so long
	if err != nil {
		b.Fatal(err)
	}
	e := f.endpoint("a")
	store.Set(lease.Candidate{Key: "default/a", Endpoint: e, MaxLeases: 10, Healthy: true})
	for name, target := range map[string]*httptest.Server{"http": httptest.NewServer(http.HandlerFunc(site)), "https": httptest.NewTLSServer(http.HandlerFunc(site))} {
		b.Cleanup(target.Close)
		roots := x509.NewCertPool()
		if c := target.Certificate(); c != nil {
			roots.AddCert(c)
		}
		settings := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		leased, err := leasehttp.New(leasehttp.Config{Store: store, Base: &http.Transport{TLSClientConfig: settings}})
		if err != nil {
			b.Fatal(err)
		}
		bare := &http.Transport{Proxy: http.ProxyURL(e.RevealURL()), TLSClientConfig: settings, DisableKeepAlives: true}
		b.Run(name, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, rt := range []http.RoundTripper{leased, bare} {
					began := time.Now()
					fetch(b, rt, target.URL)
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "leased-µs")
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "bare-µs")
			b.ReportMetric(float64(took[0])/float64(took[1]), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func fetch(b *testing.B, rt http.RoundTripper, url string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
