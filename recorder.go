package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// Recorder hears what passes do, so that somebody may count it. Passes of different proxies call it concurrently, and wait
// until it returns. A provider is the one that has the instance, or that the spec names while there is none: a name that
// need not be configured, and "" for External proxies.
type Recorder interface {
	// Reconciled is called after each pass over a record. The outcome is ok; conflict, when somebody else was faster;
	// canceled, when the caller gave the pass up; or error, and then it is made again with backoff. A pass that finds no
	// record is none, and where the store cannot be read the provider is "".
	Reconciled(provider, outcome string, took time.Duration)
	// PhaseChanged is called once for each change of phase that was stored. A record that no pass has seen yet is Pending.
	PhaseChanged(provider, from, to string)
	// BecameReady is called when a proxy is Ready for the first time since it was declared, which took so long, to the
	// second: once in its life, whatever is replaced and whoever restarts.
	BecameReady(provider string, took time.Duration)
}

// The outcomes of a pass.
const (
	outcomeOK       = "ok"
	outcomeConflict = "conflict"
	outcomeError    = "error"
	outcomeCanceled = "canceled"
)

// outcome sums the end of a pass up.
func outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case ctx.Err() != nil:
		return outcomeCanceled
	case errors.Is(err, proxy.ErrConflict):
		return outcomeConflict
	}
	return outcomeError
}

// holder names the provider that has the instance of a proxy, or that is to make it.
func holder(p *proxy.Proxy) string {
	if p.Status.Instance.ID != "" {
		return p.Status.Instance.Provider
	}
	return p.Spec.Provider
}

// tell tells the recorder what a write of the status has changed.
func (r *Reconciler) tell(was proxy.Status, p *proxy.Proxy) {
	from, to := cmp.Or(was.Phase, proxy.Pending), p.Status.Phase
	if r.Recorder == nil || from == to {
		return
	}
	r.Recorder.PhaseChanged(holder(p), string(from), string(to))
	if was.FirstReadyTime.IsZero() && !p.Status.FirstReadyTime.IsZero() {
		r.Recorder.BecameReady(holder(p), p.Status.FirstReadyTime.Std().Sub(p.Created.Std()))
	}
}
