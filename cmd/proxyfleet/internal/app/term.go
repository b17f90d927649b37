package app

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// term is the time for which a replica leads. It has a crew of its own, of which nothing is left when it has ended.
type term struct {
	*cluster
	crew *crew
	api  http.Handler
	over chan struct{} // closed when callers can no longer wait for what the crew does
}

const (
	// pruneTimeout bounds how long a term tries to remove the checks that earlier ones have left.
	pruneTimeout = 30 * time.Second
	// readyPoll is how often a term looks whether its fleet knows the proxies.
	readyPoll = 200 * time.Millisecond
)

// run keeps the fleet until ctx ends. A crew that does not end in time ends the process, so that there is never a part of one
// beside the next.
func (t *term) run(ctx context.Context) error {
	if t.elector.Succeeds() {
		t.log.Warn("leases and cooldowns of the earlier leader are lost: whoever has a lease of it is told so at the next call")
	}
	err := within(ctx, t.options.shutdownTimeout, t.keep)
	open := 0
	for _, n := range t.crew.fleet.Leases().Counts() {
		open += n
	}
	if open > 0 {
		t.log.Warn("the term has ended: its leases and cooldowns are lost", "leases", open)
	}
	return err
}

// keep runs what a term consists of, and returns when all of it has ended.
func (t *term) keep(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end()
	parts.Go(func() { t.publish(ctx) })
	parts.Go(func() { t.prune(ctx) })
	return t.crew.run(ctx)
}

// publish has callers see what the crew knows, from when its fleet knows the proxies until the term ends. Who waits for
// something then is told so, and earlier where the process is to end: its requests end before its term.
func (t *term) publish(ctx context.Context) {
	defer close(t.over)
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for t.crew.fleet.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	t.show(t.api)
	t.log.Info("leases are granted")
	select {
	case <-t.ending:
	case <-ctx.Done():
		t.show(t.following)
	}
}

// prune removes what earlier terms have left of providers that are checked no more.
func (t *term) prune(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	if err := t.checks.Prune(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn("results of checks that are made no more could not be removed", "err", err)
	}
}
