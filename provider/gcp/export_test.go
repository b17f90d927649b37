package gcp

import (
	"net/http"

	"github.com/proxyfleet/fleet/provider"
)

// Over lets a provider send its requests by a transport of the test's, before it has sent any.
func Over(p provider.Provider, t http.RoundTripper) { p.(*machines).client.base = bounded{t} }
