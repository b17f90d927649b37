package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// sweepTimeout bounds a sweep, so that a provider whose deletions hang does not keep the others from the next one.
const sweepTimeout = 10 * time.Minute

var (
	// ErrRecords is the error of a plan or sweep whose records could not be read.
	ErrRecords = errors.New("the records cannot be read")
	// ErrUnknownProvider is the error of [Sweeper.Allow] for a provider that is not configured.
	ErrUnknownProvider = errors.New("no such provider")
)

// Sweeper finds and deletes orphans and strays. All its methods may be called concurrently; sweeps are made one after the
// other.
type Sweeper struct {
	cfg      Config
	backends map[string]*backend
	tracer   trace.Tracer
	turn     chan struct{} // holds what the one sweep that is under way has put there

	mu      sync.Mutex
	allowed map[string]int // by provider: what an operator has allowed the next sweep
}

// New makes a sweeper. It starts nothing and calls nobody; its error holds all problems of the configuration, and is
// [ErrRestricted] when that is among them.
func New(c Config) (*Sweeper, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	s := &Sweeper{
		cfg:      c,
		backends: map[string]*backend{},
		tracer:   c.TracerProvider.Tracer("github.com/proxyfleet/fleet/gc"),
		turn:     make(chan struct{}, 1),
		allowed:  map[string]int{},
	}
	for name, p := range c.Providers {
		s.backends[name] = &backend{provider: p}
	}
	return s, nil
}

// Run sweeps every Interval, first after a full one, until ctx ends; it then returns nil, when the sweep that was under way
// has ended. What goes wrong in a sweep is logged, and the next one tries again.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			_, _ = s.Sweep(ctx) // it has logged its error
		}
	}
}

// Plan says what a sweep would do now, and does nothing. What an operator has allowed is taken into account and not used up.
// The error is [ErrRecords] when the records could not be read, or that of ctx when it ended; the plan is then of use only
// for those providers that have no Err.
func (s *Sweeper) Plan(ctx context.Context) (Plan, error) {
	s.mu.Lock()
	allowed := maps.Clone(s.allowed)
	s.mu.Unlock()
	return s.each(ctx, func(ctx context.Context, v visit, at time.Time) (ProviderPlan, error) {
		return v.plan(ctx, at, allowed[v.name])
	})
}

// Sweep makes one sweep now and says what it did, when the one that is under way has ended. The error is as that of
// [Sweeper.Plan]; whatever happened before it is in the plan. A provider that cannot be read, or does not delete, is no
// error of the sweep.
//
// The providers are swept at once, and no call is waited for much longer than two minutes, so that none delays another for
// long. One that does not even return then is not called again before it has. When the records cannot be read
// everything stops: what cannot be read for one provider says nothing about any.
func (s *Sweeper) Sweep(ctx context.Context) (Plan, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Plan{}, context.Cause(ctx)
	}
	return s.sweep(ctx)
}

func (s *Sweeper) sweep(ctx context.Context) (Plan, error) {
	s.mu.Lock()
	allowed := s.allowed
	s.allowed = map[string]int{}
	s.mu.Unlock()

	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	ctx, span := s.tracer.Start(ctx, "gc.sweep")
	plan, err := s.each(ctx, func(ctx context.Context, v visit, at time.Time) (ProviderPlan, error) {
		return v.sweep(ctx, at, allowed[v.name])
	})
	endSpan(span, plan, err)
	if err != nil && caller.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "garbage collection ended early; the next sweep tries again", "err", err)
	}
	return plan, err
}

// Allow lifts the brake of a provider for the next sweep and no other, whatever comes of it, and for at most so many
// deletions: when the sweep finds more, all stay held back. Saying it again replaces what was said before.
func (s *Sweeper) Allow(provider string, most int) error {
	switch _, known := s.cfg.Providers[provider]; {
	case !known:
		names := slices.Sorted(maps.Keys(s.cfg.Providers))
		return fmt.Errorf("gc: %w: %q; there are: %s", ErrUnknownProvider, provider, strings.Join(names, ", "))
	case most < 1:
		return fmt.Errorf("gc: at least one deletion must be allowed, not %d", most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed[provider] = most
	s.cfg.Logger.Warn("garbage collection is allowed to delete what the brake holds back", "provider", provider, "most", most)
	return nil
}

// each visits all providers at once. An error of a visit ends the others.
func (s *Sweeper) each(ctx context.Context, do func(context.Context, visit, time.Time) (ProviderPlan, error)) (Plan, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	names := slices.Sorted(maps.Keys(s.cfg.Providers))
	plan := Plan{At: time.Now(), Providers: make([]ProviderPlan, len(names))}
	var visits sync.WaitGroup
	for i, name := range names {
		visits.Go(func() {
			done, err := do(ctx, visit{s.cfg, name, s.backends[name]}, plan.At)
			plan.Providers[i] = done
			if err != nil {
				stop(err)
			}
		})
	}
	visits.Wait()
	return plan, context.Cause(ctx)
}
