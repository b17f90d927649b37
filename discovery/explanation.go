package discovery

import (
	"context"
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/proxy"
)

// explainTimeout bounds an explanation, in which a provider is asked.
const explainTimeout = 15 * time.Second

// Explanation is why a proxy is as it is. It holds no credential and no ID of a lease.
type Explanation struct {
	// At is when it was made. Defaults to now.
	At time.Time
	// Proxy is the record. Required.
	Proxy *proxy.Proxy
	// Problem is what keeps that which is declared from being made, whatever runs meanwhile. Its text is shown.
	Problem error
	// Outdated says that the instance was made from other inputs than are declared now, and so is to be replaced.
	Outdated bool
	// Backoff is until when the next attempt to make an instance is put off. Zero where none is.
	Backoff time.Time
	// Observed is what the provider says of the instance now. Nil where there is nobody to ask or nothing to ask about.
	Observed *Observation
	// Verdict is what the probes add up to: healthy or unhealthy. Empty while they have not decided.
	Verdict string
	// Probes are the last ones, newest first.
	Probes []Probe
	// Leases are those that are open.
	Leases []OpenLease
	// Cooldowns are those that have not ended.
	Cooldowns []Cooldown
	// LastPass is the last one of the reconciler. Nil if this process has not made one yet.
	LastPass *Pass
}

// StateNotFound is the state of an instance that its provider does not know.
const StateNotFound = "NotFound"

// Observation is what a provider says of an instance.
type Observation struct {
	// State is one of the provider's states or [StateNotFound]. Empty if Err is set.
	State string
	// Incarnation is the backend's own id of the instance.
	Incarnation string
	// Host and Port are where its proxy listens. Port is 0 where it is the one that was asked for.
	Host string
	Port int
	// Reason is a word and Message a sentence on why it is in its state. Both may be empty.
	Reason, Message string
	// Err is why the provider could not say. Its text is shown.
	Err error
}

// Probe is the result of one probe.
type Probe struct {
	// At is when it ended.
	At time.Time
	// OK says that it succeeded. Party is who failed otherwise, in a word, and Message how.
	OK             bool
	Party, Message string
	// Latency is how long it took.
	Latency time.Duration
	// StatusCode is that of the answer, or 0 if there was none.
	StatusCode int
}

// OpenLease is a lease, without the ID that would let its reader end it.
type OpenLease struct {
	// Target is what it is for. Empty for one that named none.
	Target string
	// Granted may be zero where that is not known.
	Granted, Expires time.Time
}

// Cooldown is a target that a proxy is kept from.
type Cooldown struct {
	// Target is empty for all of them.
	Target string
	// Until is when the window ends, or ended.
	Until time.Time
	// HalfOpen says that the window has ended: one lease at a time may try the target until one is reported ok.
	HalfOpen bool
}

// Pass is one pass of the reconciler.
type Pass struct {
	// At is when it ended.
	At time.Time
	// Took is how long it took.
	Took time.Duration
	// Err is why it failed, or nil. Its text is shown.
	Err error
	// Next is when the next one is due unless something happens before. Zero if only an event brings it.
	Next time.Time
}

func (a *api) explain(w http.ResponseWriter, r *http.Request) error {
	if a.Explain == nil {
		return NotOffered("this fleet cannot explain its proxies here")
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTimeout)
	defer cancel()
	e, err := a.Explain(ctx, keyOf(r))
	if err != nil {
		return err
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	writeJSON(w, http.StatusOK, wire.Explanation{
		At:        instant(e.At),
		Proxy:     show(e.Proxy, a.active()),
		Problem:   textOf(e.Problem),
		Outdated:  e.Outdated,
		Backoff:   instant(e.Backoff),
		Instance:  showInstance(e.Proxy.Status.Instance),
		Observed:  showObservation(e.Observed),
		Verdict:   e.Verdict,
		Probes:    showEach(e.Probes, showProbe),
		Leases:    showEach(e.Leases, showOpenLease),
		Cooldowns: showEach(e.Cooldowns, showCooldown),
		LastPass:  showPass(e.LastPass),
	})
	return nil
}

// showInstance returns nil for a proxy that never had one. It leaves out the digest of the inputs, which is of use to nobody
// else, and the address, which the proxy has.
func showInstance(i proxy.Instance) *wire.Instance {
	shown := wire.Instance{
		Provider:    i.Provider,
		ID:          i.ID,
		Incarnation: i.Incarnation,
		Attempt:     i.Attempt,
		Planned:     i.Planned.Std(),
		Retry:       i.Retry.Std(),
		Retiring:    i.Retiring,
	}
	if shown == (wire.Instance{}) {
		return nil
	}
	return &shown
}

func showObservation(o *Observation) *wire.Observed {
	if o == nil {
		return nil
	}
	return &wire.Observed{
		State:       o.State,
		Incarnation: o.Incarnation,
		Host:        o.Host,
		Port:        o.Port,
		Reason:      clip(o.Reason, maxMessage),
		Message:     clip(o.Message, maxMessage),
		Error:       textOf(o.Err),
	}
}

func showProbe(p Probe) wire.Probe {
	return wire.Probe{
		At:            instant(p.At),
		OK:            p.OK,
		Party:         p.Party,
		Message:       p.Message,
		LatencyMillis: p.Latency.Milliseconds(),
		StatusCode:    p.StatusCode,
	}
}

func showOpenLease(l OpenLease) wire.OpenLease {
	return wire.OpenLease{Target: l.Target, GrantedAt: instant(l.Granted), ExpiresAt: instant(l.Expires)}
}

func showCooldown(c Cooldown) wire.Cooldown {
	state := wire.Cooling
	if c.HalfOpen {
		state = wire.HalfOpen
	}
	return wire.Cooldown{Target: c.Target, Until: instant(c.Until), State: state}
}

func showPass(p *Pass) *wire.Pass {
	if p == nil {
		return nil
	}
	return &wire.Pass{At: instant(p.At), TookMillis: p.Took.Milliseconds(), Error: textOf(p.Err), Next: instant(p.Next)}
}
