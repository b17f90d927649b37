package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// lookTimeout bounds how long an explanation waits for a provider, and looks how many of them wait for one at once.
const (
	lookTimeout = 5 * time.Second
	looks       = 3
)

// Explanation is why a proxy is as it is. It holds no credential and no ID of a lease.
type Explanation struct {
	// At is when it was made.
	At time.Time
	// Proxy is the record: its phase, its conditions with their times, and in its status the attempt, when it was planned,
	// what is retiring, and the address that was chosen.
	Proxy *proxy.Proxy
	// Problem is what keeps that which is declared from being made as it is declared, whatever runs meanwhile: a reference
	// that cannot be resolved, a provider that is not configured, a field that it does not take. Nil where nothing does.
	Problem error
	// Outdated says that the instance was made from other inputs than are declared now, and so is to be replaced. It is
	// false while nobody knows.
	Outdated bool
	// Backoff is until when the next attempt to make an instance is put off; zero where none is.
	Backoff time.Time
	// Observed is what the provider says of the instance now; nil for an External proxy, and where there is no ID to ask for.
	Observed *Observed
	// Verdict is what the probes of this process add up to.
	Verdict health.Verdict
	// Probes are the results of the last ones, newest first.
	Probes []health.Result
	// Leases are those that are open.
	Leases []lease.Open
	// Cooldowns are the targets that the proxy is kept from.
	Cooldowns []lease.Cooldown
	// Pass is the last one; nil when this process has not made one yet.
	Pass *Pass
}

// Observed is what a provider says of an instance.
type Observed struct {
	// Instance is what it says, unless Err is set.
	Instance provider.Instance
	// Err is [provider.ErrNotFound] where there is no such instance, and else why the provider could not say.
	Err error
}

// Pass is one pass of the reconciler over a proxy.
type Pass struct {
	// At is when it ended, and Took how long it took.
	At   time.Time
	Took time.Duration
	// Err is why it could not be finished, or nil.
	Err error
	// Next is when the next one is due, unless something happens before; zero where only an event brings it.
	Next time.Time
}

// Explain tells why a proxy is as it is. It asks its provider, for at most 5 seconds, and changes nothing. The error is
// [proxy.ErrNotFound] where there is no such proxy, or that of a store that cannot be read.
func (f *Fleet) Explain(ctx context.Context, k proxy.Key) (Explanation, error) {
	p, err := f.cfg.Store.Get(ctx, k)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Observed: f.look(ctx, p)}
	e.At, e.Proxy = time.Now(), p
	f.compare(ctx, &e)
	key, incarnation := k.String(), p.Status.Instance.Incarnation
	if s, ok := f.engine.Snapshot(key, incarnation); ok {
		e.Verdict = s.Verdict
	}
	e.Probes = f.engine.Recent(key, incarnation)
	view := f.leases.View(key)
	e.Leases, e.Cooldowns = view.Leases, view.Cooldowns
	e.Pass = f.lastPass(k)
	return e, nil
}

// compare says how what is there differs from what is declared.
func (f *Fleet) compare(ctx context.Context, e *Explanation) {
	p := e.Proxy
	in, err := f.cfg.Store.Inputs(ctx, p)
	if err != nil {
		e.Problem = err
		return
	}
	if p.Deleting || p.Spec.Mode == proxy.External {
		return
	}
	pass := &pass{Reconciler: f.reconciler, p: p, s: p.Status, now: e.At}
	w := pass.wish(in)
	e.Problem = w.err
	mark := p.Status.Instance.Hash
	if e.Observed != nil && e.Observed.Err == nil {
		mark = e.Observed.Instance.Marks.Hash
	}
	if p.Status.Instance.Incarnation != "" {
		e.Outdated = !f.reconciler.Hasher.Matches(mark, p.UID, p.Spec, in)
	} else if !pass.due(w) {
		e.Backoff = p.Status.Instance.Retry.Std()
	}
}

// look asks a provider for the instance of a proxy. A provider that does not answer holds nobody up for longer than
// lookTimeout, and at most so many calls as looks says.
func (f *Fleet) look(ctx context.Context, p *proxy.Proxy) *Observed {
	instance := p.Status.Instance
	if instance.ID == "" {
		return nil
	}
	prov := f.cfg.Providers[instance.Provider]
	if prov == nil {
		return &Observed{Err: fmt.Errorf("no provider %q is configured", instance.Provider)}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	calls := f.looks[instance.Provider]
	select {
	case calls <- struct{}{}:
	case <-ctx.Done():
		return &Observed{Err: errors.New("the provider has not answered earlier calls yet")}
	}
	answer := make(chan Observed, 1)
	go func() {
		defer func() { <-calls }()
		in, err := prov.Get(ctx, provider.Ref{ID: instance.ID, UID: p.UID})
		in.Reason, in.Message = message(in.Reason, ""), message("", in.Message)
		answer <- Observed{in, brief(err)}
	}()
	select {
	case o := <-answer:
		return &o
	case <-ctx.Done():
		return &Observed{Err: fmt.Errorf("the provider has not answered within %v: %w", lookTimeout, ctx.Err())}
	}
}
