package discovery

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/proxy"
)

// detailRows bounds each table of the page of a proxy.
const detailRows = 50

// proxyPage is why a proxy is as it is.
type proxyPage struct {
	frame
	Namespace, Proxy string
	Phase, Tone      string
	Why              why
	Facts            []fact
	Conditions       []conditionRow
	// The rest is there if the handler was given somebody who explains.
	Explained     bool
	Observed      []fact
	ObservedError string
	Pass          []fact
	PassError     string
	Probes        []probeRow
	Leases        []leaseRow
	MoreLeases    int
	Cooldowns     []cooldownRow
	MoreCooldowns int
}

// fact is a name and what is known under it. At is a time that belongs to it.
type fact struct {
	Name, Value string
	At          moment
}

type conditionRow struct {
	Type, Status, Tone string
	Reason, Message    string
	Since              moment
}

type probeRow struct {
	At            moment
	Tone, Verdict string
	Latency       string
	Message       string
}

type leaseRow struct {
	Target           string
	Granted, Expires moment
}

type cooldownRow struct {
	Target, State string
	Until         moment
}

func (a *api) proxyPage(w http.ResponseWriter, r *http.Request) error {
	view := &proxyPage{frame: frame{Root: way(r), Refresh: 15}, Explained: a.Explain != nil}
	e, err := a.explanation(r)
	if err != nil {
		return err
	}
	p := show(e.Proxy, a.active())
	p.Phase = phaseOf(e.Proxy)
	view.Title = p.Name + ": " + p.Phase
	view.Namespace, view.Proxy, view.Phase, view.Tone, view.Why = p.Namespace, p.Name, p.Phase, tone(p.Phase), whyOf(p)
	view.Facts = factsOf(p, e.Proxy.Status.Instance)
	for _, c := range p.Conditions {
		view.Conditions = append(view.Conditions, conditionRowOf(c))
	}
	view.observe(e.Observed)
	view.tellPass(e.LastPass)
	for _, p := range e.Probes[:min(len(e.Probes), detailRows)] {
		view.Probes = append(view.Probes, probeRowOf(p))
	}
	for _, l := range e.Leases[:min(len(e.Leases), detailRows)] {
		view.Leases = append(view.Leases, leaseRow{targetOf(l.Target), at(l.Granted), at(l.Expires)})
	}
	for _, c := range e.Cooldowns[:min(len(e.Cooldowns), detailRows)] {
		view.Cooldowns = append(view.Cooldowns, cooldownRowOf(c))
	}
	view.MoreLeases, view.MoreCooldowns = len(e.Leases)-len(view.Leases), len(e.Cooldowns)-len(view.Cooldowns)
	return a.pages.write(w, http.StatusOK, "proxy.html", view)
}

// explanation is what is known of a proxy: where nobody explains, its record.
func (a *api) explanation(r *http.Request) (Explanation, error) {
	if a.Explain == nil {
		p, err := a.Proxies.Get(r.Context(), keyOf(r))
		return Explanation{Proxy: p}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTimeout)
	defer cancel()
	return a.Explain(ctx, keyOf(r))
}

// factsOf are what is known of a proxy and the same at every look.
func factsOf(p wire.Proxy, i proxy.Instance) []fact {
	facts := []fact{
		{Name: "Address", Value: address(p)},
		{Name: "Latency", Value: millis(p.LatencyMillis), At: at(p.LastHealthCheckTime)},
		{Name: "Open leases", Value: cmp.Or(openLeases(p), "–") + " of " + grouped(p.MaxLeases)},
		{Name: "Mode", Value: p.Mode},
		{Name: "Provider", Value: clip(p.Provider, 63)},
		{Name: "Declared provider", Value: clip(p.DeclaredProvider, 63)},
		{Name: "Instance", Value: clip(p.InstanceID, 300)},
		{Name: "Incarnation", Value: clip(i.Incarnation, 100)},
	}
	if i.Retiring != "" {
		facts = append(facts, fact{Name: "Replaces", Value: clip(i.Retiring, 100)})
	}
	if i.Attempt > 0 {
		facts = append(facts, fact{Name: "Attempt", Value: grouped(i.Attempt), At: at(i.Planned.Std())})
	}
	if retry := i.Retry.Std(); retry.After(time.Now()) {
		facts = append(facts, fact{Name: "Next attempt", Value: "not before", At: at(retry)})
	}
	facts = append(facts, fact{Name: "Attributes", Value: clip(attributes(p.Attributes), 1000)}, fact{Name: "UID", Value: clip(p.UID, 63)})
	return known(facts)
}

func attributes(all map[string]string) string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, k+"="+all[k])
	}
	return strings.Join(texts, ", ")
}

// known leaves out what has no value.
func known(facts []fact) []fact {
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

func conditionRowOf(c wire.Condition) conditionRow {
	row := conditionRow{
		Type: clip(c.Type, maxWord), Status: clip(c.Status, maxWord), Tone: "busy",
		Reason: clip(c.Reason, 63), Message: clip(c.Message, 2000), Since: at(c.LastTransitionTime),
	}
	switch proxy.ConditionStatus(c.Status) {
	case proxy.True:
		row.Tone = "good"
	case proxy.False:
		row.Tone = "bad"
	}
	return row
}

// observe shows what the provider says.
func (v *proxyPage) observe(o *Observation) {
	if o == nil {
		return
	}
	v.ObservedError = clip(textOf(o.Err), 2000)
	facts := []fact{
		{Name: "State", Value: clip(o.State, 63)},
		{Name: "Reason", Value: clip(o.Reason, 63)},
		{Name: "Message", Value: clip(o.Message, 2000)},
		{Name: "Incarnation", Value: clip(o.Incarnation, 100)},
		{Name: "Host", Value: clip(o.Host, 253)},
	}
	if o.Port != 0 {
		facts = append(facts, fact{Name: "Port", Value: strconv.Itoa(o.Port)})
	}
	v.Observed = known(facts)
}

// tellPass shows what the reconciler did last and when it comes again.
func (v *proxyPage) tellPass(p *Pass) {
	if p == nil {
		return
	}
	v.PassError = clip(textOf(p.Err), 2000)
	v.Pass = []fact{
		{Name: "Ended", Value: "after " + millis(max(1, p.Took.Milliseconds())), At: at(p.At)},
		{Name: "Next", Value: "on a change"},
	}
	if !p.Next.IsZero() {
		v.Pass[1] = fact{Name: "Next", Value: "due", At: at(p.Next)}
	}
}

func probeRowOf(p Probe) probeRow {
	row := probeRow{At: at(p.At), Tone: "good", Verdict: "ok", Latency: millis(max(1, p.Latency.Milliseconds())), Message: clip(p.Message, 500)}
	if !p.OK {
		row.Tone, row.Verdict = "bad", clip(cmp.Or(p.Party, "failed"), maxWord)
	}
	if p.StatusCode != 0 {
		row.Verdict += " " + strconv.Itoa(p.StatusCode)
	}
	return row
}

func cooldownRowOf(c Cooldown) cooldownRow {
	row := cooldownRow{Target: targetOf(c.Target), State: "cooling down", Until: at(c.Until)}
	if c.HalfOpen {
		row.State = "on trial"
	}
	return row
}

// targetOf is a target, or what none stands for.
func targetOf(target string) string { return clip(cmp.Or(target, "any target"), 256) }
