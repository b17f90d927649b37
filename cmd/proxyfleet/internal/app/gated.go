package app

import (
	"context"
	"fmt"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// gated is a lease store that serves once the fleet is ready. Before, it does not know all proxies, and would call gone what
// an earlier process has leased.
type gated struct {
	store lease.Store
	ready func(context.Context) error
}

func (g gated) closed(ctx context.Context) error {
	if err := g.ready(ctx); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrNotReady, err)
	}
	return nil
}

func (g gated) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	if err := g.closed(ctx); err != nil {
		return lease.Grant{}, err
	}
	return g.store.Acquire(ctx, r)
}

func (g gated) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	if err := g.closed(ctx); err != nil {
		return lease.Lease{}, err
	}
	return g.store.Renew(ctx, id, ttl)
}

func (g gated) Release(ctx context.Context, id string) error {
	if err := g.closed(ctx); err != nil {
		return err
	}
	return g.store.Release(ctx, id)
}

func (g gated) Report(ctx context.Context, id string, r lease.Report) error {
	if err := g.closed(ctx); err != nil {
		return err
	}
	return g.store.Report(ctx, id, r)
}
