package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

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
	lanes      map[string]workqueue.TypedInterface[proxy.Key] // by provider; "" for those of none
	reconciler *Reconciler
	log        *slog.Logger
}

// newQueue starts a goroutine, which ends with run.
func newQueue(r *Reconciler, log *slog.Logger) *queue {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[proxy.Key](r.Intervals.Requeue, r.Intervals.LastRetry)
	q := &queue{
		work:       workqueue.NewTypedRateLimitingQueue[proxy.Key](backoff),
		lanes:      map[string]workqueue.TypedInterface[proxy.Key]{"": workqueue.NewTyped[proxy.Key]()},
		reconciler: r,
		log:        log,
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
	p, err := q.reconciler.Store.Get(ctx, k)
	if err != nil {
		return q.lanes[""]
	}
	name := p.Spec.Provider
	if p.Status.Instance.ID != "" {
		name = p.Status.Instance.Provider
	}
	if lane, ok := q.lanes[name]; ok {
		return lane
	}
	return q.lanes[""]
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
	res, err := q.reconciler.Reconcile(ctx, k)
	switch {
	case ctx.Err() != nil: // nobody waits for it any more
	case errors.Is(err, proxy.ErrConflict):
		q.work.AddAfter(k, conflictRetry)
	case err != nil:
		q.log.WarnContext(ctx, "reconcile failed", "proxy", k, "failures", q.work.NumRequeues(k)+1, "err", err)
		q.work.AddRateLimited(k)
	default:
		q.work.Forget(k)
		if res.After > 0 {
			q.work.AddAfter(k, res.After)
		}
	}
}
