package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// readTimeout bounds how long a scrape waits for the records.
const readTimeout = 5 * time.Second

// Sources are what each scrape reads. Each is called by one scrape at a time, asks no provider, and answers at once. The
// series of a source that is nil are missing.
type Sources struct {
	// Proxies returns all records; the List of a store. Its error costs a scrape the series that come from it, and no other.
	Proxies func(context.Context) ([]*proxy.Proxy, error)
	// Leases returns how many leases are open of each proxy that has any.
	Leases func() map[string]int
	// Cooldowns returns how many pairs of proxy and target are cooling or on trial.
	Cooldowns func() int
	// Queued returns how many proxies wait for a pass of the reconciler, by provider; "" stands for none.
	Queued func() map[string]int
	// Checks returns the last check of each provider.
	Checks func() []monitor.Result
}

// Read has each scrape read the sources as well. It is called once, when there is something to read: the recorders are
// needed before the fleet is, and the fleet before its state can be read.
func (m *Metrics) Read(s Sources) error {
	var all []prometheus.Collector
	if s.Proxies != nil {
		all = append(all, newRecords(s.Proxies))
	}
	if s.Leases != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "leases_active", Help: "Leases that are open.",
		}, func() float64 {
			sum := 0
			for _, n := range s.Leases() {
				sum += n
			}
			return float64(sum)
		}))
	}
	if s.Cooldowns != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "cooldowns_active",
			Help: "Pairs of proxy and target that are kept apart after a ban, or tried again after one.",
		}, func() float64 { return float64(s.Cooldowns()) }))
	}
	if s.Queued != nil {
		all = append(all, newQueued(s.Queued, m.Process.known))
	}
	if s.Checks != nil {
		all = append(all, newChecks(s.Checks))
	}
	return m.add(all...)
}

// readings are series that are read at each scrape.
type readings struct {
	descs []*prometheus.Desc
	read  func(ch chan<- prometheus.Metric)
}

// Describe is for the registry.
func (r readings) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		ch <- d
	}
}

// Collect is for the registry.
func (r readings) Collect(ch chan<- prometheus.Metric) { r.read(ch) }

// desc describes a series.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// newRecords shows what the records say: every phase, and what may be leased.
func newRecords(list func(context.Context) ([]*proxy.Proxy, error)) prometheus.Collector {
	proxies := desc("proxies", "Proxies that are declared, by phase. Only Ready ones are leased.", "phase")
	capacity := desc("lease_capacity", "Leases that all Ready proxies together can bear at once.")
	return readings{[]*prometheus.Desc{proxies, capacity}, func(ch chan<- prometheus.Metric) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		all, err := list(ctx)
		if err != nil {
			ch <- prometheus.NewInvalidMetric(proxies, err)
			return
		}
		phases, leasable := tally(all)
		for phase, n := range phases {
			ch <- gauge(proxies, float64(n), string(phase))
		}
		ch <- gauge(capacity, float64(leasable))
	}}
}

// tally counts the proxies of each phase, and the leases that the Ready ones can bear.
func tally(all []*proxy.Proxy) (phases map[proxy.Phase]int, leasable int) {
	phases = map[proxy.Phase]int{
		proxy.Pending: 0, proxy.Provisioning: 0, proxy.Probing: 0, proxy.Ready: 0,
		proxy.Unhealthy: 0, proxy.Replacing: 0, proxy.Deleting: 0, proxy.Failed: 0,
	}
	for _, p := range all {
		phase := p.Status.Phase
		if phase == "" {
			phase = proxy.Pending // no pass has seen it yet
		}
		phases[phase]++
		if phase == proxy.Ready && !p.Deleting {
			leasable += int(p.Spec.Canonical().MaxLeases)
		}
	}
	return phases, leasable
}

// newQueued shows the queue of each provider.
func newQueued(queued func() map[string]int, known providers) prometheus.Collector {
	depth := desc("reconcile_queue_depth", "Proxies that wait for a pass of the reconciler, by provider.", "provider")
	return readings{[]*prometheus.Desc{depth}, func(ch chan<- prometheus.Metric) {
		depths := map[string]int{}
		for name, n := range queued() {
			depths[known.label(name)] += n
		}
		for label, n := range depths {
			ch <- gauge(depth, float64(n), label)
		}
	}}
}

// newChecks shows what the provider monitor has found.
func newChecks(results func() []monitor.Result) prometheus.Collector {
	labels := []string{"provider", "target"}
	up := desc("provider_target_up", "Whether the part of a provider's backend can be used (1) or not (0), by its last check.", labels...)
	took := desc("provider_check_duration_seconds", "Time that the last check of the part took.", labels...)
	at := desc("provider_check_timestamp_seconds", "When the part was last checked, in seconds since 1970.", labels...)
	return readings{[]*prometheus.Desc{up, took, at}, func(ch chan<- prometheus.Metric) {
		for _, r := range results() {
			for _, t := range r.Targets {
				ready := 0.0
				if t.Ready {
					ready = 1
				}
				ch <- gauge(up, ready, r.Provider, t.Target)
				ch <- gauge(took, t.Took.Seconds(), r.Provider, t.Target)
				ch <- gauge(at, float64(t.Checked.UnixMilli())/1000, r.Provider, t.Target)
			}
		}
	}}
}
