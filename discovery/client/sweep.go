package client

import (
	"context"
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// sweepTime is how much longer than other calls a plan or a sweep may take. The server stops it a little earlier.
const sweepTime = 6 * time.Minute

// What a [SweepPlan] is made of.
type (
	// SweepPlan is what a sweep would do, or did.
	SweepPlan = wire.SweepPlan
	// ProviderSweep is the part of one provider.
	ProviderSweep = wire.ProviderSweep
	// InstanceSweep is the verdict on one instance.
	InstanceSweep = wire.InstanceSweep
)

// The actions of a sweep.
const (
	SweepKeep   = wire.Keep   // the instance stays
	SweepDelete = wire.Delete // it is, or would be, deleted
	SweepHold   = wire.Hold   // it would be deleted but for the brake
)

// PlanSweep returns what a sweep would do now. It may take minutes.
func (c *Client) PlanSweep(ctx context.Context) (SweepPlan, error) {
	var plan SweepPlan
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/gc/plan", into: &plan, wait: sweepTime})
	return plan, err
}

// Sweep deletes the instances that no record knows, and returns what it did with each. It may take minutes, and stops when
// ctx ends; what was deleted by then is in the log of the fleet.
func (c *Client) Sweep(ctx context.Context) (SweepPlan, error) {
	var plan SweepPlan
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/gc/sweep", into: &plan, wait: sweepTime, once: true})
	return plan, err
}

// AllowSweep lifts the brake of a provider for the next sweep, if that would delete at most max instances. The code of its
// [APIError] is unknown_provider if there is no such provider.
func (c *Client) AllowSweep(ctx context.Context, provider string, max int) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/v1/gc/allow", body: wire.AllowRequest{Provider: provider, Max: max}, once: true})
}
