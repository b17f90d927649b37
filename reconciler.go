package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// Intervals are how long the fleet waits. They are counted from a pass, an attempt or a start, as each says.
type Intervals struct {
	// ProvisioningPoll is the time between two looks at an instance that is on its way. Defaults to 5s.
	ProvisioningPoll time.Duration
	// DeletionPoll is the time between two looks at an instance that goes. Defaults to 5s.
	DeletionPoll time.Duration
	// DriftPoll is the time between two looks at an instance that runs. Defaults to 1m.
	DriftPoll time.Duration
	// Requeue is the time until the next step of what goes on by itself. Defaults to 1s.
	Requeue time.Duration
	// Call bounds each call of a provider. Defaults to 2m.
	Call time.Duration
	// FirstRetry is the time from one attempt to the next; it doubles with each attempt up to LastRetry. Default to 5s and
	// 5m.
	FirstRetry, LastRetry time.Duration
	// QuotaRetry is the time from an attempt that met a quota to the next. Defaults to 5m.
	QuotaRetry time.Duration
	// PermanentRetry is the time from an attempt that failed permanently to the next, jittered by a tenth. Defaults to 1h.
	PermanentRetry time.Duration
	// Stable is how long after its attempt an instance must still run to end a series of attempts. Defaults to 10m.
	Stable time.Duration
	// Drain is how long a proxy that is to be replaced waits for its open leases. Defaults to 5m.
	Drain time.Duration
}

// WithDefaults returns the intervals with the defaults of those that are zero.
func (i Intervals) WithDefaults() Intervals {
	return Intervals{
		ProvisioningPoll: cmp.Or(i.ProvisioningPoll, 5*time.Second),
		DeletionPoll:     cmp.Or(i.DeletionPoll, 5*time.Second),
		DriftPoll:        cmp.Or(i.DriftPoll, time.Minute),
		Requeue:          cmp.Or(i.Requeue, time.Second),
		Call:             cmp.Or(i.Call, 2*time.Minute),
		FirstRetry:       cmp.Or(i.FirstRetry, 5*time.Second),
		LastRetry:        cmp.Or(i.LastRetry, 5*time.Minute),
		QuotaRetry:       cmp.Or(i.QuotaRetry, 5*time.Minute),
		PermanentRetry:   cmp.Or(i.PermanentRetry, time.Hour),
		Stable:           cmp.Or(i.Stable, 10*time.Minute),
		Drain:            cmp.Or(i.Drain, 5*time.Minute),
	}
}

// Reconciler brings what the providers have to what the specs want, one proxy and one pass at a time. It holds no knowledge
// of its own: all that it knows is in the store and at the providers, so that it may end between any two steps and another
// may go on. Its fields are set before the first pass; passes of different proxies may run concurrently.
type Reconciler struct {
	// Fleet is the identity of the installation.
	Fleet string
	Store proxy.Store
	// Providers are the configured ones, by name.
	Providers map[string]provider.Provider
	// MaxInstances bounds the instances of a provider, by its name. Those left out have no bound.
	MaxInstances map[string]int
	// Hasher hashes inputs, for the same fleet.
	Hasher *Hasher
	// Health tells the verdict on an incarnation. Defaults to none.
	Health interface {
		Snapshot(key, incarnation string) (health.Snapshot, bool)
	}
	// Leases tells of a proxy how many leases are open, and whether more can be granted. No instance of a deleted record is
	// deleted while they can, so after a pass that has seen the deletion they must not. Defaults to none.
	Leases interface {
		Active(key string) int
		Offered(key string) bool
	}
	// Started is when this process began: a permanent failure of an earlier attempt is tried again at once, for a restart
	// is how people say that they have repaired something. Defaults to never.
	Started   time.Time
	Intervals Intervals
	Logger    *slog.Logger
	// Tracer makes the spans of a pass.
	Tracer trace.Tracer
	// Recorder hears of passes and phases. Defaults to none.
	Recorder Recorder

	pace pace
}

// Result says when to look again.
type Result struct {
	// After is the time until the next look; zero means at the next event.
	After time.Duration
	// Gone says that there is no such record, or no more.
	Gone bool
}

// Reconcile makes one pass over one proxy. An error means that the pass could not be finished; the caller tries again with
// exponential backoff and ignores the result. A conflict ([proxy.ErrConflict]) is an error too, and says only that somebody
// else was faster.
//
// Before any call that changes the world stands, in the same pass, a write of the status from the version that was read. If
// it conflicts, nothing is called: a pass that started from stale data ends there.
func (r *Reconciler) Reconcile(ctx context.Context, k proxy.Key) (Result, error) {
	began := time.Now()
	p, err := r.Store.Get(ctx, k)
	if errors.Is(err, proxy.ErrNotFound) {
		return Result{Gone: true}, nil
	}
	var res Result
	var provider string
	if err == nil {
		provider = holder(p)
		res, err = r.reconcile(ctx, p)
	}
	if r.Recorder != nil {
		r.Recorder.Reconciled(provider, outcome(ctx, err), time.Since(began))
	}
	return res, err
}

// reconcile makes a pass over a record.
func (r *Reconciler) reconcile(ctx context.Context, p *proxy.Proxy) (res Result, err error) {
	if p.Status.Format > proxy.StatusFormat {
		return Result{}, fmt.Errorf("%v: its status has format %d, and this release knows up to %d: run the release that wrote it, or a newer one",
			p.Key, p.Status.Format, proxy.StatusFormat)
	}
	ctx, span := r.start(ctx, "Reconcile Proxy", p)
	defer func() {
		end(ctx, span, err)
		err = spanned(err, span)
	}()
	pass := &pass{Reconciler: r, p: p, s: p.Status.Clone(), now: time.Now()}
	key, before := p.Key, pass.provisioned()
	res, err = pass.run(ctx)
	if werr := pass.flush(ctx); werr != nil {
		return Result{}, errors.Join(err, werr)
	}
	if err == nil && !pass.logged {
		r.complain(ctx, key, before, pass.provisioned())
	}
	return res, err
}

// start starts a span about p. What it says of p is made only for a span that somebody keeps.
func (r *Reconciler) start(ctx context.Context, name string, p *proxy.Proxy) (context.Context, trace.Span) {
	ctx, span := r.Tracer.Start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("proxy", p.Key.String()), attribute.String("provider", holder(p)))
	}
	return ctx, span
}

// end ends a span. That somebody else was faster, and that the caller gave up, are no failures.
func end(ctx context.Context, span trace.Span, err error) {
	if o := outcome(ctx, err); o != outcomeOK && span.IsRecording() {
		span.SetAttributes(attribute.String("outcome", o))
		if o == outcomeError {
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End()
}

// tracedError is an error that knows the span in which it happened, so that who logs it can name the trace.
type tracedError struct {
	error
	span trace.SpanContext
}

func (e *tracedError) Unwrap() error { return e.error }

func spanned(err error, span trace.Span) error {
	if c := span.SpanContext(); err != nil && c.IsValid() {
		return &tracedError{err, c}
	}
	return err
}

// pass is one pass over one proxy.
type pass struct {
	*Reconciler
	// p is the record as it was read or last written; nil when a write failed or there is no more to write.
	p *proxy.Proxy
	// s is what the status is to become.
	s proxy.Status
	// now is when the pass began.
	now time.Time
	// logged says that the log has what went wrong.
	logged bool
}

func (p *pass) run(ctx context.Context) (Result, error) {
	external := p.p.Spec.Mode == proxy.External
	switch {
	case p.p.Deleting:
		return p.traced(ctx, "reconcile.delete", p.delete)
	case external && p.s.Instance.ID == "":
		return p.external(ctx)
	case !p.p.Finalizer:
		return p.setFinalizer(ctx, true)
	}
	return p.traced(ctx, "reconcile.managed", p.managed)
}

func (p *pass) traced(ctx context.Context, name string, do func(context.Context) (Result, error)) (Result, error) {
	ctx, span := p.start(ctx, name, p.p)
	res, err := do(ctx)
	end(ctx, span, err)
	return res, err
}

// setFinalizer does this and nothing else: the next pass goes on.
func (p *pass) setFinalizer(ctx context.Context, on bool) (Result, error) {
	p.p.Finalizer = on
	_, err := p.Store.UpdateMeta(ctx, p.p)
	p.p = nil // nothing is left for flush
	if err != nil {
		return Result{}, err
	}
	return Result{After: p.Intervals.Requeue}, nil
}

// commit writes the status, also when nothing changed: what was read is what is stored, or the pass ends here.
func (p *pass) commit(ctx context.Context) (err error) {
	ctx, span := p.start(ctx, "status.patch", p.p)
	defer func() { end(ctx, span, err) }()
	p.complete()
	was := p.p.Status
	p.p.Status = p.s.Clone()
	updated, err := p.Store.UpdateStatus(ctx, p.p)
	if err != nil {
		p.p = nil // flush must not write what came from stale data
		return err
	}
	p.p, p.s = updated, updated.Status.Clone()
	p.tell(was, updated)
	return nil
}

// flush writes the status if it changed.
func (p *pass) flush(ctx context.Context) error {
	if p.p == nil {
		return nil
	}
	p.complete()
	if p.s.Equal(p.p.Status) {
		return nil
	}
	err := p.commit(ctx)
	if errors.Is(err, proxy.ErrNotFound) {
		return nil
	}
	return err
}

// complete fills in what follows from the rest of the status.
func (p *pass) complete() {
	p.s.Format = proxy.StatusFormat
	p.s.ObservedGeneration = p.p.Generation
	p.s.Phase = phase(p.p.Deleting, p.s)
	if p.s.Phase == proxy.Ready && p.p.Status.Phase != proxy.Ready && p.s.FirstReadyTime.IsZero() && !p.p.Created.IsZero() {
		p.s.FirstReadyTime = proxy.At(p.now)
	}
}
