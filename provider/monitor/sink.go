package monitor

import (
	"context"
	"log/slog"
	"time"
)

// Sink keeps results where others find them, such as in a cluster.
type Sink interface {
	// Report is told the result of one provider after each round, one call at a time. It may be slow: rounds go on
	// meanwhile, and it is told of the newest one next. It ends with its context, which has the time of a round's
	// checks. An error is logged, and nothing is tried again before the next round.
	Report(ctx context.Context, r Result) error
}

// reporter tells a sink of the newest round.
type reporter struct {
	sink    Sink // nil: nobody is told
	timeout time.Duration
	log     *slog.Logger
	newest  chan []Result // of one
}

func newReporter(cfg Config) *reporter {
	return &reporter{sink: cfg.Sink, timeout: cfg.Timeout, log: cfg.Logger, newest: make(chan []Result, 1)}
}

// offer puts a round where run finds it, in place of one that was not taken. Only one goroutine offers.
func (r *reporter) offer(results []Result) {
	select {
	case <-r.newest:
	default:
	}
	r.newest <- results
}

// run tells the sink until ctx ends.
func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case results := <-r.newest:
			r.tell(ctx, results)
		}
	}
}

func (r *reporter) tell(ctx context.Context, results []Result) {
	for _, result := range results {
		if r.sink == nil || ctx.Err() != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, r.timeout)
		err := r.sink.Report(limited, result)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "result of provider checks not reported", "provider", result.Provider, "err", err)
		}
	}
}
