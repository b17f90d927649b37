package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/health"
)

// probes are the series of each proxy's probes. It fulfils health.Recorder.
//
// The engine tells of a probe with its lock held, so a scrape of many proxies must not keep it waiting: the vectors of the
// Prometheus library are locked while a scrape reads them, and forget a proxy by looking at all of them.
type probes struct {
	readings
	mu      sync.Mutex
	proxies map[string]*probed
}

// probed is what the probes of one proxy found.
type probed struct {
	count    uint64
	seconds  float64
	failures []failures
}

// failures are those of one party. Few parties ever fail in one proxy.
type failures struct {
	party health.Party
	count uint64
}

func newProbes() *probes {
	duration := desc("healthcheck_duration_seconds",
		"Time that the probes of a proxy took, successful or not: until the last header of the answer, or until the failure.",
		"proxy")
	failed := desc("healthcheck_failures_total",
		"Probes of a proxy that failed, by who failed: config, dial, proxy_tls, proxy_auth, proxy_refusal, proxy_protocol, "+
			"tls, target, status or timeout.",
		"proxy", "party")
	p := &probes{proxies: map[string]*probed{}}
	p.readings = readings{[]*prometheus.Desc{duration, failed}, func(ch chan<- prometheus.Metric) {
		for key, of := range p.snapshot() {
			ch <- prometheus.MustNewConstSummary(duration, of.count, of.seconds, nil, key)
			for _, f := range of.failures {
				ch <- prometheus.MustNewConstMetric(failed, prometheus.CounterValue, float64(f.count), key, string(f.party))
			}
		}
	}}
	return p
}

// Probed counts a probe.
func (p *probes) Probed(key string, r health.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.proxies[key]
	if of == nil {
		of = &probed{}
		p.proxies[key] = of
	}
	of.count++
	of.seconds += r.Latency.Seconds()
	if !r.OK {
		of.failed(r.Party)
	}
}

func (p *probed) failed(party health.Party) {
	i := slices.IndexFunc(p.failures, func(f failures) bool { return f.party == party })
	if i < 0 {
		i = len(p.failures)
		p.failures = append(p.failures, failures{party: party})
	}
	p.failures[i].count++
}

// Forgotten drops the series of a proxy.
func (p *probes) Forgotten(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.proxies, key)
}

func (p *probes) snapshot() map[string]probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]probed, len(p.proxies))
	for key, of := range p.proxies {
		copied := *of
		copied.failures = slices.Clone(of.failures)
		all[key] = copied
	}
	return all
}
