package discovery

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// The bounds of the table of providers.
const (
	providerRows = 50
	troubleRows  = 5 // targets of one provider that are not ready
)

// providerRow is a provider in its table.
type providerRow struct {
	Name, Href     string
	Tone, Verdict  string
	Ready, Proxies string
	Held           string // instances that the brake of the sweeper holds back
	Troubles       []why  // targets that are not ready
	More           int    // others that are not
}

// providerTable has the providers that are configured, and those that a proxy names: one may be a mistake, or gone.
func (a *api) providerTable(shown []wire.Proxy) []providerRow {
	results := map[string]monitor.Result{}
	if a.Providers != nil {
		for _, r := range a.Providers() {
			results[r.Provider] = r
		}
	}
	all, ready := map[string]int{}, map[string]int{}
	for name := range results {
		all[name] = 0
	}
	for _, p := range shown {
		if p.Provider == "" {
			continue
		}
		all[p.Provider]++
		if p.Phase == string(proxy.Ready) {
			ready[p.Provider]++
		}
	}
	held := map[string]int{}
	if a.Held != nil {
		held = a.Held()
	}
	var rows []providerRow
	for _, name := range slices.Sorted(maps.Keys(all)) {
		row := providerRow{
			Name: clip(name, 63), Href: "./?q=" + url.QueryEscape(clip(name, 63)) + "#proxies",
			Ready: grouped(ready[name]), Proxies: grouped(all[name]),
		}
		if n := held[name]; n > 0 {
			row.Held = plural(n, "instance")
		}
		result, configured := results[name]
		row.judge(result, configured || a.Providers == nil)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b providerRow) int { return cmp.Compare(len(b.Troubles), len(a.Troubles)) })
	return rows[:min(len(rows), providerRows)]
}

// judge says what the last check found.
func (p *providerRow) judge(r monitor.Result, configured bool) {
	for _, t := range r.Targets {
		switch {
		case t.Ready:
		case len(p.Troubles) == troubleRows:
			p.More++
		default:
			p.Troubles = append(p.Troubles, why{
				Reason: clip(t.Target, 63) + ": " + clip(t.Reason, 63), Message: clip(t.Message, 300), Since: at(t.Since),
			})
		}
	}
	down := len(r.Targets) - r.Ready()
	switch {
	case !configured:
		p.Tone, p.Verdict = "bad", "Not configured"
	case down > 0:
		p.Tone, p.Verdict = "bad", fmt.Sprintf("%d of %s not ready", down, plural(len(r.Targets), "target"))
	case len(r.Targets) > 0:
		p.Tone, p.Verdict = "good", plural(len(r.Targets), "target")+" ready"
	case r.CanCheck:
		p.Tone, p.Verdict = "busy", "Not checked yet"
	default:
		p.Tone, p.Verdict = "idle", "No check"
	}
}
