package gcp

import (
	"context"
	"net/http"

	"github.com/proxyfleet/fleet/provider"
)

// Over lets a provider send its requests by a transport of the test's, before it has sent any.
func Over(p provider.Provider, t http.RoundTripper) { p.(*machines).client.base = bounded{t} }

// Hang lets lists hang from now on until their contexts end.
func Hang(p provider.Provider) {
	p.(*machines).view.read = func(ctx context.Context, _ string) ([]provider.Instance, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}
