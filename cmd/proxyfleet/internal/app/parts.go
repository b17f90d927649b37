package app

import (
	"net/http"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/secret"
)

// listen takes the addresses.
func (s *standalone) listen(o runOptions) (err error) {
	s.server, err = serving.Listen(serving.Config{Address: o.listen, CertFile: o.certFile, KeyFile: o.keyFile,
		Drain: o.shutdownTimeout / 2, Logger: s.log})
	if err == nil && o.metricsListen != "" {
		s.scrapes, err = serving.Listen(serving.Config{Address: o.metricsListen, MaxConnections: maxScrapers, Logger: s.log})
	}
	return err
}

// maxScrapers is how many connections for metrics are open at once, so that the API's have room.
const maxScrapers = 64

// join makes the fleet, and what watches over its providers, over the open store.
func (s *standalone) join(o runOptions, c *manifest.Configuration, types map[string]ProviderType) error {
	names, limits := make([]string, len(c.Providers)), map[string]int{}
	for i, p := range c.Providers {
		names[i] = p.Name
		if p.MaxInstances > 0 {
			limits[p.Name] = p.MaxInstances
		}
	}
	var err error
	s.metrics, err = metrics.New(metrics.Config{Version: version(), Providers: names, Logger: s.log})
	if err != nil {
		return err
	}
	providers, err := o.openProviders(c, types, provider.Environment{Fleet: s.store.Fleet(), Logger: s.log, TracerProvider: s.spans})
	if err != nil {
		return err
	}
	for name, p := range providers {
		providers[name] = provider.WithTracing(provider.WithRecorder(p, name, s.metrics), name, s.spans)
	}
	o.lease.Recorder, o.lease.Log, o.lease.Policy = s.metrics, s.leases, policies()[o.policy]
	s.fleet, err = fleet.New(fleet.Config{
		Fleet:          s.store.Fleet(),
		Store:          s.store,
		Providers:      providers,
		MaxInstances:   limits,
		HealthCheck:    c.HealthCheck,
		Health:         health.Config{Workers: o.healthWorkers, TraceProbes: o.traceProbes, Recorder: s.metrics},
		Lease:          o.lease,
		Intervals:      o.intervals,
		Logger:         s.log,
		TracerProvider: s.spans,
		Recorder:       s.metrics,
	})
	if err != nil {
		return err
	}
	return s.watchOver(o, providers)
}

// watchOver makes what looks at providers from outside of the passes: the monitor, which is there also when it does not run, and
// the sweeper.
func (s *standalone) watchOver(o runOptions, providers map[string]provider.Provider) (err error) {
	checks := monitor.Config{Providers: providers, Logger: s.log, TracerProvider: s.spans}
	if s.checks {
		checks.Interval, checks.Timeout = o.checkInterval, o.checkTimeout
	}
	s.monitor, err = monitor.New(checks)
	if err != nil {
		return err
	}
	s.brakes = &brakes{Recorder: s.metrics, held: map[string]int{}}
	s.sweeper, err = gc.New(gc.Config{Fleet: s.store.Fleet(), Providers: providers, Live: live(s.store), Interval: o.gcInterval, MinAge: o.gcMinAge,
		Logger: s.log, TracerProvider: s.spans, Recorder: s.brakes})
	return err
}

// publish makes the API of the fleet, and tells the metrics what to read at each scrape.
func (s *standalone) publish(token secret.Text, everybody bool) (err error) {
	leases := s.fleet.Leases()
	s.api, err = discovery.New(discovery.Config{
		Proxies:        s.store,
		Leases:         leases,
		ActiveLeases:   leases.Counts,
		Ready:          s.ready,
		Backup:         s.store.Backup,
		Providers:      s.monitor.Results,
		Explain:        explain(s.fleet),
		Sweeper:        sweeper{s.sweeper},
		Ending:         s.ending,
		Name:           s.store.Fleet(),
		Cooldowns:      leases.Cooldowns,
		Held:           s.brakes.all,
		Token:          token,
		AnyHost:        everybody,
		Logger:         s.log,
		TracerProvider: s.spans,
		Recorder:       s.metrics,
	})
	if err != nil {
		return err
	}
	return s.metrics.Read(metrics.Sources{Proxies: s.store.List, Leases: leases.Counts, Cooldowns: leases.Cooldowns, Queued: s.fleet.Queued,
		Checks: s.monitor.Results})
}

// figures is what a server for scrapes answers. It has no token: metrics and health hold no secrets.
func (s *standalone) figures() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.Handle("GET /healthz", s.api)
	mux.Handle("GET /readyz", s.api)
	return mux
}
