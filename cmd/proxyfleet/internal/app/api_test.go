package app

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// hostile does something to a terminal unless it is kept from it.
const hostile = "\x1b[2Jred\u009b31m\a"

// sweeps is a sweeper with an orphan, and a brake until it is lifted.
type sweeps struct {
	brake   bool
	fails   error
	allowed int
}

func (s *sweeps) Plan(context.Context) (discovery.SweepPlan, error) {
	p := discovery.ProviderSweep{Provider: "cloud", Listed: 3, Braked: s.brake && s.allowed < 1, Allowed: s.allowed, Instances: []discovery.InstanceSweep{
		{ID: "hosts/a/domains/proxy-1", Created: time.Now().Add(-34 * time.Minute), Action: discovery.SweepDelete, Reason: "Orphan"},
		{ID: "hosts/a/domains/proxy-2", Created: time.Now().Add(-3 * time.Hour), Action: discovery.SweepKeep, Reason: "Live", Proxy: "default/one"},
		{ID: "hosts/a/domains/proxy-3", Action: discovery.SweepKeep, Reason: "UnknownAge"},
	}}
	if p.Braked {
		p.Instances[0].Action = discovery.SweepHold
	}
	return discovery.SweepPlan{At: time.Now(), Providers: []discovery.ProviderSweep{p, {Provider: "idle"}}}, nil
}

func (s *sweeps) Sweep(ctx context.Context) (discovery.SweepPlan, error) {
	plan, err := s.Plan(ctx)
	plan.Providers[0].Instances[0].Err = s.fails
	return plan, err
}

func (s *sweeps) Allow(name string, most int) error {
	if name != "cloud" {
		return fmt.Errorf("%w: %s; there are cloud, idle", discovery.ErrUnknownProvider, name)
	}
	s.allowed = most
	return nil
}

// api is a fleet of one proxy.
func api(t *testing.T) discovery.Config {
	t.Helper()
	leases, err := lease.NewMemory(lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := proxy.NewMemory(proxy.MemoryConfig{})
	if _, err := store.Put(t.Context(), proxy.Key{Namespace: "default", Name: "one"}, proxy.Declaration{Spec: proxy.Spec{Provider: "cloud"}}, "test"); err != nil {
		t.Fatal(err)
	}
	return discovery.Config{
		Proxies: store,
		Leases:  leases,
		Explain: func(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
			p, err := store.Get(ctx, k)
			return discovery.Explanation{Proxy: p, Observed: &discovery.Observation{Err: errors.New(hostile)}}, err
		},
		Providers: func() []monitor.Result {
			return []monitor.Result{
				{Provider: "cloud", CanCheck: true, Checked: time.Now().Add(-20 * time.Second), Targets: []monitor.Target{
					{TargetStatus: provider.TargetStatus{Target: "hosts/a", Ready: true}},
					{TargetStatus: provider.TargetStatus{Target: "hosts/b", Reason: "Timeout", Message: hostile}, Since: time.Now().Add(-5 * time.Minute)},
					{TargetStatus: provider.TargetStatus{Target: "hosts/c", Reason: "Refused"}, Since: time.Now().Add(-2 * time.Hour)},
				}},
				{Provider: "late", CanCheck: true},
				{Provider: "plain"},
				{Provider: "well", CanCheck: true, Checked: time.Now(), Targets: []monitor.Target{{TargetStatus: provider.TargetStatus{Target: "x", Ready: true}}}},
			}
		},
		Sweeper: &sweeps{},
	}
}

// called is how a call of the program ended.
type called struct {
	stdout, stderr string
	code           int
}

// calling calls the program with a fleet that an API shows.
func calling(t *testing.T, c discovery.Config, args ...string) called {
	t.Helper()
	h, err := discovery.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	t.Setenv(serverVariable, server.URL)
	t.Setenv(tokenVariable, "x") // set, so that it is restored, and not to be empty
	var stdout, stderr strings.Builder
	code := Main(args, nil, &stdout, &stderr)
	if text := stdout.String() + stderr.String(); strings.ContainsAny(text, "\x1b\u009b\a") && !strings.Contains(strings.Join(args, " "), "json") {
		t.Errorf("%v does something to the terminal: %q", args, text)
	}
	return called{stdout.String(), stderr.String(), code}
}
