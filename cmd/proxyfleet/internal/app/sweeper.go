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

// whyNoSweeper is why nobody sweeps the providers of a fleet.
const whyNoSweeper = "--namespace shows the proxies of one namespace, and instances of the others would count as orphans; " +
	"say --gc-allow-namespaced if no other process keeps proxies under this fleet ID"

// noSweeper is the one of a fleet that does not sweep.
type noSweeper struct{}

// Plan says why there is none.
func (noSweeper) Plan(context.Context) (discovery.SweepPlan, error) {
	return discovery.SweepPlan{}, discovery.NotOffered("garbage collection is off: " + whyNoSweeper)
}

// Sweep says why none is made.
func (s noSweeper) Sweep(ctx context.Context) (discovery.SweepPlan, error) { return s.Plan(ctx) }

// Allow says why there is no brake.
func (s noSweeper) Allow(string, int) error {
	_, err := s.Plan(context.Background())
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
