package fleet

import (
	"context"
	"errors"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// delete removes whatever has the ID of a record that is being deleted, and lets the record go when that is proven. What can
// still be leased is left alone until it cannot. It never gives up: what cannot be deleted is tried again, visibly, until
// somebody repairs it or skips the cleanup.
func (p *pass) delete(ctx context.Context) (Result, error) {
	last := p.s.Instance
	switch {
	case !p.p.Finalizer:
		return Result{}, nil
	case p.p.Annotations[proxy.SkipCleanupAnnotation] == "true": // also when nobody knows the provider any more
		p.Logger.WarnContext(ctx, "cleanup skipped: an instance may be left running", "proxy", p.p.Key,
			"provider", last.Provider, "id", last.ID, "incarnation", last.Incarnation)
		return p.setFinalizer(ctx, false)
	case last.ID == "": // the intent would be here
		return p.setFinalizer(ctx, false)
	}
	prov := p.Providers[last.Provider]
	p.lacks(ReasonDeleting, "")
	if prov == nil {
		return p.unknownProvider(last.Provider)
	}
	if p.Leases != nil && p.Leases.Offered(p.p.Key.String()) {
		return Result{After: p.Intervals.Requeue}, nil
	}
	return p.clear(ctx, prov)
}

// clear deletes what a provider still has, or lets the record go.
func (p *pass) clear(ctx context.Context, prov provider.Provider) (Result, error) {
	got, settled, err := p.get(ctx, prov)
	gone := errors.Is(err, provider.ErrNotFound) || createFailed(err)
	switch {
	case gone && settled:
		return p.setFinalizer(ctx, false)
	case gone:
		return Result{After: p.Intervals.DeletionPoll}, nil
	case provider.ClassOf(err) == provider.ErrPermanent && !givenUp(ctx, err):
		return p.deleteBlindly(ctx, prov, err)
	case err != nil:
		return p.fail(ctx, err)
	case got.State == provider.Terminating:
		return Result{After: p.Intervals.DeletionPoll}, nil
	}
	p.meet(got.Incarnation)
	return p.deleteVisibly(ctx, prov, got.Incarnation)
}

// deleteBlindly deletes what Get cannot show: a delete may be allowed where a look is not. The record stays, for nothing is
// proven by it.
func (p *pass) deleteBlindly(ctx context.Context, prov provider.Provider, cause error) (Result, error) {
	p.report(cause)
	if _, err := p.deleteVisibly(ctx, prov, p.s.Instance.Incarnation); err != nil {
		return Result{}, err
	}
	return Result{}, cause
}

// deleteVisibly deletes an incarnation. Unlike elsewhere, an error of any class comes back with the queue's backoff, unless
// the provider says when.
func (p *pass) deleteVisibly(ctx context.Context, prov provider.Provider, incarnation string) (Result, error) {
	if err := p.sendDelete(ctx, prov, incarnation); err != nil {
		if p.p == nil || givenUp(ctx, err) {
			return Result{}, err // nothing was written, or nothing is to be said
		}
		p.report(err)
		if wait := retryAfter(err); wait > 0 {
			return Result{After: wait}, nil
		}
		return Result{}, err
	}
	return Result{After: p.Intervals.DeletionPoll}, nil
}

// remove deletes an incarnation that the spec does not want.
func (p *pass) remove(ctx context.Context, prov provider.Provider, incarnation string) (Result, error) {
	if err := p.sendDelete(ctx, prov, incarnation); err != nil {
		if p.p == nil {
			return Result{}, err // the write before the call failed
		}
		return p.fail(ctx, err)
	}
	return Result{After: p.Intervals.DeletionPoll}, nil
}

// sendDelete writes the status and then deletes the incarnation that was seen. The write goes out even when it changes
// nothing: it compares the version, so a spec that changed since the read, or a name that is in its next life, keeps its
// instance.
func (p *pass) sendDelete(ctx context.Context, prov provider.Provider, incarnation string) error {
	if err := p.commit(ctx); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, p.Intervals.Call)
	defer cancel()
	if err := prov.Delete(call, p.ref(incarnation)); err != nil {
		return err
	}
	p.Logger.InfoContext(ctx, "instance deleted", "proxy", p.p.Key, "provider", p.s.Instance.Provider, "id", p.s.Instance.ID,
		"incarnation", incarnation, "reason", p.provisioned().Reason)
	return nil
}
