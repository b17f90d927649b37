package client

import (
	"context"
	"net/http"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// ProviderList is all providers of the fleet, by name.
type ProviderList = wire.ProviderList

// Provider is what the last check of a provider found.
type Provider = wire.Provider

// Target is one place that a provider works with.
type Target = wire.Target

// ListProviders returns what the checks of each provider found the last time.
func (c *Client) ListProviders(ctx context.Context) (ProviderList, error) {
	var list ProviderList
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/providers", into: &list})
	return list, err
}
