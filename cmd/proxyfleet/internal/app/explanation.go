package app

import (
	"context"
	"errors"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// explain returns what a fleet knows of a proxy, as the API wants to know it.
func explain(f *fleet.Fleet) func(context.Context, proxy.Key) (discovery.Explanation, error) {
	return func(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
		e, err := f.Explain(ctx, k)
		if err != nil {
			return discovery.Explanation{}, err
		}
		shown := discovery.Explanation{At: e.At, Proxy: e.Proxy, Problem: e.Problem, Outdated: e.Outdated, Backoff: e.Backoff,
			Observed: observation(e.Observed), Verdict: string(e.Verdict)}
		for _, r := range e.Probes {
			shown.Probes = append(shown.Probes, discovery.Probe{At: r.At, OK: r.OK, Party: string(r.Party), Message: r.Message,
				Latency: r.Latency, StatusCode: r.StatusCode})
		}
		for _, l := range e.Leases {
			shown.Leases = append(shown.Leases, discovery.OpenLease(l))
		}
		for _, c := range e.Cooldowns {
			shown.Cooldowns = append(shown.Cooldowns, discovery.Cooldown(c))
		}
		if e.Pass != nil {
			pass := discovery.Pass(*e.Pass)
			shown.LastPass = &pass
		}
		return shown, nil
	}
}

// observation is what a provider says of an instance. That there is none is an answer.
func observation(o *fleet.Observed) *discovery.Observation {
	switch {
	case o == nil:
		return nil
	case errors.Is(o.Err, provider.ErrNotFound):
		return &discovery.Observation{State: discovery.StateNotFound}
	case o.Err != nil:
		return &discovery.Observation{Err: o.Err}
	}
	in := o.Instance
	return &discovery.Observation{State: string(in.State), Incarnation: in.Incarnation, Host: in.Host, Port: in.Port,
		Reason: in.Reason, Message: in.Message}
}
