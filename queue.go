package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/util/workqueue"

	"github.com/proxyfleet/fleet/proxy"
)

const (
	// laneWorkers is how many passes run at once for the proxies of one provider.
	laneWorkers = 3
	// conflictRetry is the wait after a pass that started from stale data: a cache has to catch up.
	conflictRetry = 50 * time.Millisecond
)

// queue decides which proxy is looked at next. A key waits in it once, however often it is added, and no key is in two
// passes at a time.
//
// Each provider has a lane with workers of its own, so that one hung host stalls nobody else. A key enters the lane of the
// provider that has its instance, and keeps out of the others until its pass is done.
type queue struct {
	work       workqueue.TypedRateLimitingInterface[proxy.Key]
	backoff    workqueue.TypedRateLimiter[proxy.Key]          // that of work
	lanes      map[string]workqueue.TypedInterface[proxy.Key] // by provider; "" for those of none
	reconciler *Reconciler
	after      func(context.Context, proxy.Key)
	log        *slog.Logger

	mu     sync.Mutex
	passes map[proxy.Key]Pass // the last one of each record
}

// newQueue starts a goroutine, which ends with run. After each pass that could be finished, and before the next one over the
// same record, after is called.
func newQueue(r *Reconciler, after func(context.Context, proxy.Key), log *slog.Logger) *queue {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[proxy.Key](r.Intervals.Requeue, r.Intervals.LastRetry)
	q := &queue{
		work:       workqueue.NewTypedRateLimitingQueue[proxy.Key](backoff),
		backoff:    backoff,
		lanes:      map[string]workqueue.TypedInterface[proxy.Key]{"": workqueue.NewTyped[proxy.Key]()},
		reconciler: r,
		after:      after,
		log:        log,
		passes:     map[proxy.Key]Pass{},
	}
	for name := range r.Providers {
		q.lanes[name] = workqueue.NewTyped[proxy.Key]()
	}
	return q
}

// add asks for a look at a proxy soon.
func (q *queue) add(k proxy.Key) { q.work.Add(k) }

// run makes passes until ctx ends, and returns when the last one has.
func (q *queue) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for _, lane := range q.lanes {
		for range laneWorkers {
			workers.Go(func() { q.serve(ctx, lane) })
		}
	}
	workers.Go(func() { q.dispatch(ctx) })
	<-ctx.Done()
	q.work.ShutDown()
	for _, lane := range q.lanes {
		lane.ShutDown()
	}
	workers.Wait()
	return nil
}

// dispatch sends each key to its lane.
func (q *queue) dispatch(ctx context.Context) {
	for {
		k, closed := q.work.Get()
		if closed {
			return
		}
		lane := q.lane(ctx, k)
		lane.Add(k)
		if lane.ShuttingDown() {
			q.work.Done(k)
		}
	}
}

// lane is that of the provider that has the instance, or that is to make it.
func (q *queue) lane(ctx context.Context, k proxy.Key) workqueue.TypedInterface[proxy.Key] {
	if p, err := q.reconciler.Store.Get(ctx, k); err == nil {
		if lane, ok := q.lanes[holder(p)]; ok {
			return lane
		}
	}
	return q.lanes[""]
}

// depths returns how many keys wait in each lane.
func (q *queue) depths() map[string]int {
	depths := make(map[string]int, len(q.lanes))
	for name, lane := range q.lanes {
		depths[name] = lane.Len()
	}
	return depths
}

// serve makes the passes of a lane, one after the other.
func (q *queue) serve(ctx context.Context, lane workqueue.TypedInterface[proxy.Key]) {
	for {
		k, closed := lane.Get()
		if closed {
			return
		}
		if ctx.Err() == nil {
			q.pass(ctx, k)
		}
		lane.Done(k)
		q.work.Done(k)
	}
}

// pass reconciles a proxy and puts it back into the queue for when it is due.
func (q *queue) pass(ctx context.Context, k proxy.Key) {
	began := time.Now()
	res, err := q.reconciler.Reconcile(ctx, k)
	wait := res.After
	switch {
	case ctx.Err() != nil: // nobody waits for it any more
		return
	case errors.Is(err, proxy.ErrConflict):
		wait = conflictRetry
	case err != nil:
		q.logFailure(ctx, k, err)
		wait = q.backoff.When(k)
	default:
		if n := q.work.NumRequeues(k); n > 0 {
			q.log.InfoContext(ctx, "reconcile works again", "proxy", k, "failures", n)
		}
		q.work.Forget(k)
		q.after(ctx, k)
	}
	q.note(k, res.Gone, Pass{At: time.Now(), Took: time.Since(began), Err: brief(err)}, wait)
	if wait > 0 {
		q.work.AddAfter(k, wait)
	}
}

// logFailure logs an error that is not the one of the pass before: as long as the same one stands in the way, nothing
// happens that anybody would act on.
func (q *queue) logFailure(ctx context.Context, k proxy.Key, err error) {
	level := slog.LevelWarn
	if last := q.last(k); last != nil && last.Err != nil && gist(last.Err.Error()) == gist(brief(err).Error()) {
		level = slog.LevelDebug
	}
	if t, ok := errors.AsType[*tracedError](err); ok {
		ctx = trace.ContextWithSpanContext(ctx, t.span)
	}
	q.log.Log(ctx, level, "reconcile failed", "proxy", k, "failures", q.work.NumRequeues(k)+1, "err", brief(err))
}

// note remembers the last pass over a record. That a record is gone is an event too, and so a pass comes to know of it,
// after all others over that record.
func (q *queue) note(k proxy.Key, gone bool, p Pass, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if gone {
		delete(q.passes, k)
		return
	}
	if wait > 0 {
		p.Next = p.At.Add(wait)
	}
	if pending := q.passes[k].Next; pending.After(p.At) && (wait <= 0 || pending.Before(p.Next)) {
		p.Next = pending // what an earlier pass asked for is still to come
	}
	q.passes[k] = p
}

// last returns the last pass over a record, or nil.
func (q *queue) last(k proxy.Key) *Pass {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p, ok := q.passes[k]; ok {
		return &p
	}
	return nil
}
