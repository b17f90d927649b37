package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/tracing"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// crew is what keeps a fleet: the fleet itself, and what watches over its providers. It works once.
type crew struct {
	fleet   *fleet.Fleet
	monitor *monitor.Monitor
	checks  bool        // whether the monitor runs
	sweeper *gc.Sweeper // nil: nobody sweeps
	brakes  *brakes
}

// post is where a crew works.
type post struct {
	options       runOptions
	configuration *manifest.Configuration
	types         map[string]ProviderType
	stateDir      string // of the providers; "": they keep nothing
	identity      string // of the fleet
	store         proxy.Store
	restricted    bool         // the store shows some of the proxies only
	leases        lease.Log    // nil: leases are in memory
	sink          monitor.Sink // nil: nobody is told of checks
	log           *slog.Logger
	spans         *tracing.Tracing
	metrics       *metrics.Metrics
}

// newCrew makes a crew. It starts nothing.
func newCrew(p post) (*crew, error) {
	limits := map[string]int{}
	for _, configured := range p.configuration.Providers {
		if configured.MaxInstances > 0 {
			limits[configured.Name] = configured.MaxInstances
		}
	}
	o := p.options
	providers, err := openProviders(p.configuration, p.types,
		provider.Environment{Fleet: p.identity, Logger: p.log, TracerProvider: p.spans, StateDir: p.stateDir})
	if err != nil {
		return nil, err
	}
	for name, made := range providers {
		providers[name] = provider.WithTracing(provider.WithRecorder(made, name, p.metrics), name, p.spans)
	}
	o.lease.Recorder, o.lease.Log, o.lease.Policy = p.metrics, p.leases, policies()[o.policy]
	c := &crew{checks: o.checkInterval > 0}
	c.fleet, err = fleet.New(fleet.Config{
		Fleet:          p.identity,
		Store:          p.store,
		Providers:      providers,
		MaxInstances:   limits,
		HealthCheck:    p.configuration.HealthCheck,
		Health:         health.Config{Workers: o.healthWorkers, TraceProbes: o.traceProbes, Recorder: p.metrics},
		Lease:          o.lease,
		Intervals:      o.intervals,
		Logger:         p.log,
		TracerProvider: p.spans,
		Recorder:       p.metrics,
	})
	if err != nil {
		return nil, err
	}
	return c, c.watchOver(p, providers)
}

// watchOver makes what looks at providers from outside of the passes: the monitor, which is there also when it does not run, and
// the sweeper, which is not there where it could not tell an orphan from what somebody else keeps. It then tells the metrics
// what to read at each scrape.
func (c *crew) watchOver(p post, providers map[string]provider.Provider) (err error) {
	checks := monitor.Config{Providers: providers, Logger: p.log, TracerProvider: p.spans, Sink: p.sink}
	if c.checks {
		checks.Interval, checks.Timeout = p.options.checkInterval, p.options.checkTimeout
	}
	if c.monitor, err = monitor.New(checks); err != nil {
		return err
	}
	c.brakes = &brakes{Recorder: p.metrics, held: map[string]int{}}
	c.sweeper, err = gc.New(gc.Config{Fleet: p.identity, Providers: providers, Live: live(p.store),
		Restricted: p.restricted, AllowRestricted: p.options.cluster.gcNamespaced,
		Interval: p.options.gcInterval, MinAge: p.options.gcMinAge, Logger: p.log, TracerProvider: p.spans, Recorder: c.brakes})
	if errors.Is(err, gc.ErrRestricted) {
		p.log.Warn("garbage collection is off: " + whyNoSweeper)
	} else if err != nil {
		return err
	}
	leases := c.fleet.Leases()
	return p.metrics.Read(metrics.Sources{Proxies: p.store.List, Leases: leases.Counts, Cooldowns: leases.Cooldowns,
		Queued: c.fleet.Queued, Checks: c.monitor.Results})
}

// show adds to an API what a crew knows.
func (c *crew) show(api discovery.Config) discovery.Config {
	leases := c.fleet.Leases()
	api.Leases, api.ActiveLeases, api.Cooldowns = leases, leases.Counts, leases.Cooldowns
	api.Explain, api.Providers, api.Held = explain(c.fleet), c.monitor.Results, c.brakes.all
	api.Sweeper = noSweeper{}
	if c.sweeper != nil {
		api.Sweeper = sweeper{c.sweeper}
	}
	return api
}

// run keeps the fleet until ctx ends or the fleet fails, and returns when all of the crew has ended. What watches cannot
// fail, for it runs once.
func (c *crew) run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stop()
	if c.sweeper != nil {
		watchers.Go(func() { _ = c.sweeper.Run(watching) })
	}
	if c.checks {
		watchers.Go(func() { _ = c.monitor.Run(watching) })
	}
	return c.fleet.Run(ctx)
}
