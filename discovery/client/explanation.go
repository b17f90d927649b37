package client

import (
	"context"
	"net/http"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// What an [Explanation] is made of.
type (
	// Explanation is why a proxy is as it is.
	Explanation = wire.Explanation
	// Instance is an instance as it was recorded.
	Instance = wire.Instance
	// Observed is what a provider says of an instance.
	Observed = wire.Observed
	// Probe is the result of one probe.
	Probe = wire.Probe
	// OpenLease is a lease without its ID.
	OpenLease = wire.OpenLease
	// Cooldown is a target that a proxy is kept from.
	Cooldown = wire.Cooldown
	// Pass is one pass of the reconciler.
	Pass = wire.Pass
)

// Explain returns why a proxy is as it is. The code of its [APIError] is unknown_proxy if there is none.
func (c *Client) Explain(ctx context.Context, namespace, name string) (Explanation, error) {
	path, err := proxyPath(namespace, name)
	if err != nil {
		return Explanation{}, err
	}
	var e Explanation
	err = c.do(ctx, call{method: http.MethodGet, path: path + "/explain", into: &e})
	return e, err
}
