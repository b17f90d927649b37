package discovery

import (
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

func (a *api) listProviders(w http.ResponseWriter, _ *http.Request) error {
	if a.Providers == nil {
		return NotOffered("this fleet does not check its providers")
	}
	providers := showEach(a.Providers(), showProvider)
	writeJSON(w, http.StatusOK, wire.ProviderList{At: instant(time.Now()), Providers: providers, Count: len(providers)})
	return nil
}

func showProvider(r monitor.Result) wire.Provider {
	return wire.Provider{
		Name:      r.Provider,
		CanCheck:  r.CanCheck,
		Ready:     string(readiness(r)),
		CheckedAt: instant(r.Checked),
		Targets:   showEach(r.Targets, showTarget),
	}
}

// readiness says of a provider whether all of its targets are ready, as the conditions of a proxy do.
func readiness(r monitor.Result) proxy.ConditionStatus {
	switch {
	case len(r.Targets) == 0:
		return proxy.Unknown
	case r.Ready() < len(r.Targets):
		return proxy.False
	}
	return proxy.True
}

func showTarget(t monitor.Target) wire.Target {
	return wire.Target{
		Name:       t.Target,
		Ready:      t.Ready,
		Reason:     t.Reason,
		Message:    t.Message,
		Details:    t.Details,
		Since:      instant(t.Since),
		CheckedAt:  instant(t.Checked),
		TookMillis: t.Took.Milliseconds(),
	}
}
