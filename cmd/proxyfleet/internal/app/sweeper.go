package app

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/proxy"
)

// live returns what the records of a store hold, as the sweeper wants to know it.
func live(store proxy.Store) func(context.Context) (map[string]gc.Held, error) {
	return func(ctx context.Context) (map[string]gc.Held, error) {
		records, err := store.Live(ctx)
		if err != nil {
			return nil, err
		}
		held := make(map[string]gc.Held, len(records))
		for uid, r := range records {
			held[uid] = gc.Held{Key: r.Key.String(), External: r.Mode == proxy.External, Deleting: r.Deleting,
				Provider: r.Instance.Provider, ID: r.Instance.ID, Incarnation: r.Instance.Incarnation}
		}
		return held, nil
	}
}

// sweeper is the one of the fleet as the API knows it.
type sweeper struct{ *gc.Sweeper }

var _ discovery.Sweeper = sweeper{}

// Plan says what a sweep would do.
func (s sweeper) Plan(ctx context.Context) (discovery.SweepPlan, error) {
	plan, err := s.Sweeper.Plan(ctx)
	return sweepPlan(plan), err
}

// Sweep makes a sweep.
func (s sweeper) Sweep(ctx context.Context) (discovery.SweepPlan, error) {
	plan, err := s.Sweeper.Sweep(ctx)
	return sweepPlan(plan), err
}

// Allow lifts the brake of a provider once.
func (s sweeper) Allow(name string, most int) error {
	err := s.Sweeper.Allow(name, most)
	if errors.Is(err, gc.ErrUnknownProvider) {
		return unknownProvider{err}
	}
	return err
}

// unknownProvider is the sweeper's error as the API knows it.
type unknownProvider struct{ error }

func (unknownProvider) Is(target error) bool { return target == discovery.ErrUnknownProvider }

func sweepPlan(plan gc.Plan) discovery.SweepPlan {
	shown := discovery.SweepPlan{At: plan.At, Providers: make([]discovery.ProviderSweep, len(plan.Providers))}
	for i, p := range plan.Providers {
		of := discovery.ProviderSweep{Provider: p.Provider, Err: p.Err, Listed: p.Listed, Braked: p.Braked, Allowed: p.Allowed,
			Instances: make([]discovery.InstanceSweep, len(p.Instances))}
		for j, v := range p.Instances {
			of.Instances[j] = discovery.InstanceSweep{ID: v.ID, Incarnation: v.Incarnation, UID: v.UID, Proxy: v.Key, Created: v.Created,
				Action: discovery.SweepAction(v.Action), Reason: string(v.Reason), Err: v.Err}
		}
		shown.Providers[i] = of
	}
	return shown
}

// brakes is a recorder of sweeps that also remembers what the brakes hold back.
type brakes struct {
	gc.Recorder

	mu   sync.Mutex
	held map[string]int
}

// Held notes what the brake of a provider holds back after a sweep.
func (b *brakes) Held(provider string, instances int) {
	b.Recorder.Held(provider, instances)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[provider] = instances
}

// all returns the last of each provider.
func (b *brakes) all() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.held)
}
