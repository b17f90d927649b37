package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
)

// minInterval keeps checks from being a load.
const minInterval = 10 * time.Second

// Config is what a [Monitor] is made of.
type Config struct {
	// Providers are those of the fleet, by name. A [provider.Checker] is found behind decorators and called past them, so
	// that checks are counted and traced as no request. Defaults to none.
	Providers map[string]provider.Provider
	// Interval is the time from the start of one round of checks to that of the next, at least 10s. Defaults to 1m.
	Interval time.Duration
	// Timeout is how long the checks of a round may take, and at most Interval. Defaults to 15s, or to Interval if that is
	// shorter.
	Timeout time.Duration
	// Logger hears of verdicts that turned. Defaults to one that discards.
	Logger *slog.Logger
	// TracerProvider makes a span "providerhealth.check" of each round. Defaults to one that makes none.
	TracerProvider trace.TracerProvider
	// Sink is told of each result. Defaults to none.
	Sink Sink
}

func (c Config) validate() error {
	var problems []error
	if c.Interval < minInterval {
		problems = append(problems, fmt.Errorf("monitor: Interval: %v is less than %v", c.Interval, minInterval))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("monitor: Timeout: %v is negative", c.Timeout))
	}
	if c.Timeout > c.Interval {
		problems = append(problems, fmt.Errorf("monitor: Timeout: %v is more than the interval of %v", c.Timeout, c.Interval))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if c.Providers[name] == nil {
			problems = append(problems, fmt.Errorf("monitor: Providers: %q is nil", name))
		}
	}
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	if c.Timeout == 0 {
		c.Timeout = min(15*time.Second, c.Interval)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	return c
}

// Monitor checks providers while it runs. All methods may be called concurrently.
type Monitor struct {
	cfg      Config
	tracer   trace.Tracer
	subjects []*subject // in the order of their names
	running  sync.Mutex // held by Run
}

// New makes a monitor that has checked nothing yet. The error names everything wrong with cfg.
func New(cfg Config) (*Monitor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Monitor{cfg: cfg, tracer: cfg.TracerProvider.Tracer("github.com/proxyfleet/fleet/provider/monitor")}
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		m.subjects = append(m.subjects, newSubject(name, cfg.Providers[name], cfg.Logger))
	}
	return m, nil
}

// Results returns what is known of each provider, in the order of their names. It is a copy, and never waits for a check.
func (m *Monitor) Results() []Result {
	results := make([]Result, len(m.subjects))
	for i, s := range m.subjects {
		results[i] = s.last()
	}
	return results
}

// Run makes a round of checks now and one after each interval, until ctx ends. It returns nil then, and an error at once if
// the monitor is running already. It does not wait for checks that outlast their context.
func (m *Monitor) Run(ctx context.Context) error {
	if !m.running.TryLock() {
		return errors.New("monitor: it is running already")
	}
	defer m.running.Unlock()
	var group sync.WaitGroup
	defer group.Wait()
	told := newReporter(m.cfg)
	group.Go(func() { told.run(ctx) })
	ticker := time.NewTicker(m.cfg.Interval)
	defer ticker.Stop()
	for {
		m.round(ctx)
		told.offer(m.Results())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// round checks all providers at once, each until the deadline at most.
func (m *Monitor) round(ctx context.Context) {
	ctx, span := m.tracer.Start(ctx, "providerhealth.check")
	defer span.End()
	var group sync.WaitGroup
	for _, s := range m.subjects {
		if s.checker != nil {
			group.Go(func() { s.check(ctx, m.cfg.Timeout) })
		}
	}
	group.Wait()
	targets, ready := 0, 0
	for _, r := range m.Results() {
		targets += len(r.Targets)
		ready += r.Ready()
	}
	span.SetAttributes(attribute.Int("providerhealth.targets", targets), attribute.Int("providerhealth.targets.ready", ready))
}
