package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// The model, under the names that most programs need.
type (
	// Proxy is one record; see [proxy.Proxy].
	Proxy = proxy.Proxy
	// Key names a proxy; see [proxy.Key].
	Key = proxy.Key
	// Spec is what a proxy is declared to be; see [proxy.Spec].
	Spec = proxy.Spec
	// Status is what the fleet knows of a proxy; see [proxy.Status].
	Status = proxy.Status
)

// Config is what a [Fleet] is made of.
type Config struct {
	// Fleet is the identity of this installation: 1 to 63 characters of [a-z0-9-]. It marks every instance, so it must stay
	// the same for as long as there are any, and no other installation may have it. Required.
	Fleet string
	// Store holds the records. Required.
	Store proxy.Store
	// Providers make the instances of Managed proxies, by the names that specs use. Those that are a [provider.Runner] are
	// run with the fleet. Defaults to none.
	Providers map[string]provider.Provider
	// MaxInstances bounds how many instances a provider may have at once, by its name. Defaults to no bound.
	MaxInstances map[string]int
	// HealthCheck is used for what a spec leaves out. Its fields default to those that [proxy.HealthCheck] names.
	HealthCheck proxy.HealthCheck
	// Health configures the probing engine. Its Prober defaults to [health.HTTPProber], its Logger and TracerProvider to
	// those of the fleet.
	Health health.Config
	// Lease configures the lease store. Its Failed is called beside the fleet's own.
	Lease lease.Config
	// Intervals are how long the fleet waits. Each has a default.
	Intervals Intervals
	// Recorder hears of passes and phases. Those of Health and Lease are theirs. Defaults to none.
	Recorder Recorder
	// Logger gets one line for each event that an operator would act on. Defaults to none.
	Logger *slog.Logger
	// TracerProvider makes the spans. Defaults to one that makes none.
	TracerProvider trace.TracerProvider
}

var identity = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// validate returns all problems at once.
func (c Config) validate() error {
	var problems []error
	if !identity.MatchString(c.Fleet) {
		problems = append(problems, problem("Fleet", "must be 1 to 63 characters of [a-z0-9-], not %q", c.Fleet))
	}
	if c.Store == nil {
		problems = append(problems, problem("Store", "is required"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if c.Providers[name] == nil {
			problems = append(problems, problem(fmt.Sprintf("Providers[%q]", name), "is nil"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.MaxInstances)) {
		if _, ok := c.Providers[name]; !ok || c.MaxInstances[name] < 0 {
			problems = append(problems, problem(fmt.Sprintf("MaxInstances[%q]", name), "must be a positive number for a configured provider"))
		}
	}
	problems = append(problems, proxy.ValidateHealthCheck("HealthCheck", c.HealthCheck), c.Intervals.validate())
	return errors.Join(problems...)
}

// problem is what is wrong with a field of a configuration.
func problem(field, format string, args ...any) error {
	return &proxy.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Fleet keeps proxies as they are declared, and leases them.
type Fleet struct {
	cfg        Config
	reconciler *Reconciler
	feed       *feed
	engine     *health.Engine
	leases     *lease.Memory
	looks      map[string]chan struct{} // by provider: those under way

	mu       sync.Mutex
	queue    *queue // since it runs
	watching bool
	read     map[proxy.Key]bool // until all were
}

// New makes a fleet. It starts nothing and calls nobody; its error holds all problems of the configuration.
func New(c Config) (*Fleet, error) {
	problems := c.validate()
	c = c.withDefaults()
	f := &Fleet{cfg: c, read: map[proxy.Key]bool{}, looks: map[string]chan struct{}{}}
	for name := range c.Providers {
		f.looks[name] = make(chan struct{}, looks)
	}
	var healthErr, leaseErr error
	f.engine, healthErr = health.New(c.Health)
	c.Lease.Failed = f.hurry(c.Lease.Failed)
	f.leases, leaseErr = lease.NewMemory(c.Lease)
	if err := errors.Join(problems, healthErr, leaseErr); err != nil {
		return nil, fmt.Errorf("fleet: configuration: %w", err)
	}
	hasher := NewHasher(c.Fleet)
	f.reconciler = &Reconciler{
		Fleet: c.Fleet, Store: c.Store, Providers: c.Providers, MaxInstances: c.MaxInstances, Hasher: hasher,
		Health: f.engine, Leases: f.leases, Started: time.Now(), Intervals: c.Intervals, Logger: c.Logger,
		Tracer: c.TracerProvider.Tracer("github.com/proxyfleet/fleet"), Recorder: c.Recorder,
	}
	f.feed = &feed{store: c.Store, hasher: hasher, engine: f.engine, leases: f.leases, defaults: c.HealthCheck,
		log: c.Logger, login: map[proxy.Key]login{}}
	return f, nil
}

func (c Config) withDefaults() Config {
	c.Intervals = c.Intervals.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	if c.Health.Prober == nil {
		c.Health.Prober = health.HTTPProber{}
	}
	if c.Health.Logger == nil {
		c.Health.Logger = c.Logger
	}
	if c.Health.TracerProvider == nil {
		c.Health.TracerProvider = c.TracerProvider
	}
	return c
}

// hurry has a proxy probed at once of which a crawler says that it failed.
func (f *Fleet) hurry(also func(string)) func(string) {
	return func(key string) {
		f.engine.Hurry(key)
		if also != nil {
			also(key)
		}
	}
}

// Leases returns the lease store. It is there before Run, and grants what Run has learned of.
func (f *Fleet) Leases() *lease.Memory { return f.leases }

// Ready returns nil once every record of the store is known to probes and leases. Providers never affect it.
func (f *Fleet) Ready(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read == nil {
		return nil
	}
	if !f.watching {
		return errors.New("fleet: it does not run yet")
	}
	list, err := f.cfg.Store.List(ctx)
	if err != nil {
		return fmt.Errorf("fleet: the store cannot be read: %w", err)
	}
	for _, p := range list {
		if !f.read[p.Key] {
			return errors.New("fleet: the records have not all been read yet")
		}
	}
	f.read = nil // ready once is ready for good
	return nil
}

// Run keeps the fleet until ctx ends, and then returns nil, when all that it started has ended: first the passes, which
// give up the provider calls that are under way, then the providers. It returns an error when the watch of the store is
// lost or a provider cannot work any more; what is declared stays, and another Run of another Fleet goes on. It is called
// once.
func (f *Fleet) Run(ctx context.Context) error {
	providers, stopProviders := context.WithCancel(context.WithoutCancel(ctx))
	defer stopProviders()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running, passing sync.WaitGroup
	var first sync.Once
	var failure error
	start := func(group *sync.WaitGroup, given context.Context, what string, run func(context.Context) error) {
		group.Go(func() {
			if err := run(given); err != nil && ctx.Err() == nil { // an error of what was told to end is none
				first.Do(func() { failure = fmt.Errorf("fleet: %s: %w", what, err) })
				stop()
			}
		})
	}
	for name, p := range f.cfg.Providers {
		if r, ok := provider.As[provider.Runner](p); ok {
			start(&running, providers, fmt.Sprintf("provider %q", name), r.Run)
		}
	}
	if f.opened(ctx) {
		q := f.line()
		start(&passing, ctx, "probes", f.engine.Run)
		start(&passing, ctx, "queue", q.run)
		start(&passing, ctx, "verdicts", func(ctx context.Context) error { return f.followVerdicts(ctx, q) })
		start(&passing, ctx, "watch of the store", func(ctx context.Context) error { return f.watch(ctx, q) })
	}
	<-ctx.Done()
	passing.Wait()
	stopProviders()
	running.Wait()
	return failure
}

// opened waits until what this process serves itself is there, and says whether it is: a lease on a listener that is about
// to open is a lease on nothing.
func (f *Fleet) opened(ctx context.Context) bool {
	for _, p := range f.cfg.Providers {
		if o, ok := provider.As[provider.Opener](p); ok && o.Opened(ctx) != nil {
			return false
		}
	}
	return true
}

// line makes the queue, which others may look at from now on. What a pass has seen or written is told to probes and leases
// before the next pass over that proxy, however far behind the watch of the store may be.
func (f *Fleet) line() *queue {
	q := newQueue(f.reconciler, f.feed.update, f.cfg.Logger)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = q
	return q
}

// Queued returns how many proxies wait for a pass, by provider; "" stands for those of none. It is cheap, and empty until
// Run runs.
func (f *Fleet) Queued() map[string]int {
	f.mu.Lock()
	q := f.queue
	f.mu.Unlock()
	if q == nil {
		return nil
	}
	return q.depths()
}

// lastPass returns the last pass over a proxy, or nil.
func (f *Fleet) lastPass(k proxy.Key) *Pass {
	f.mu.Lock()
	q := f.queue
	f.mu.Unlock()
	if q == nil {
		return nil
	}
	return q.last(k)
}

// watch tells probes, leases and the reconciler of each change of a record, in this order, so that what nobody is to lease
// any more is mostly closed when its pass comes. A pass that is to delete it makes sure.
func (f *Fleet) watch(ctx context.Context, q *queue) error {
	f.begin()
	wake := newWake(f.cfg.Store)
	err := f.cfg.Store.Watch(ctx, func(k proxy.Key) {
		f.feed.update(ctx, k)
		if wake.up(ctx, k) {
			q.add(k)
		}
		f.noteRead(k)
	})
	if err == nil && ctx.Err() == nil {
		return errors.New("it ended")
	}
	return err
}

func (f *Fleet) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watching = true
}

func (f *Fleet) noteRead(k proxy.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil {
		f.read[k] = true
	}
}

// followVerdicts has a proxy looked at whenever what the probes say of it is news: by the feed at once, so that one that is
// unhealthy is leased no more while its pass waits for a provider that hangs.
func (f *Fleet) followVerdicts(ctx context.Context, q *queue) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-f.engine.Events():
			namespace, name, _ := strings.Cut(key, "/")
			k := proxy.Key{Namespace: namespace, Name: name}
			f.feed.update(ctx, k)
			q.add(k)
		}
	}
}

// validate says which intervals are negative, and which relations do not hold.
func (i Intervals) validate() error {
	fields := []struct {
		name  string
		value time.Duration
	}{
		{"ProvisioningPoll", i.ProvisioningPoll}, {"DeletionPoll", i.DeletionPoll}, {"DriftPoll", i.DriftPoll},
		{"Requeue", i.Requeue}, {"Call", i.Call}, {"FirstRetry", i.FirstRetry}, {"LastRetry", i.LastRetry},
		{"QuotaRetry", i.QuotaRetry}, {"PermanentRetry", i.PermanentRetry}, {"Stable", i.Stable}, {"Drain", i.Drain},
	}
	var problems []error
	for _, f := range fields {
		if f.value < 0 {
			problems = append(problems, problem("Intervals."+f.name, "must be positive, not %v", f.value))
		}
	}
	if d := i.WithDefaults(); d.FirstRetry > d.LastRetry {
		problems = append(problems, problem("Intervals.FirstRetry", "must not be longer than LastRetry, %v, but is %v", d.LastRetry, d.FirstRetry))
	}
	return errors.Join(problems...)
}
