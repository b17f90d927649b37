package libvirt

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// transfers are the images that are on their way. What asks for one does not wait for it.
type transfers struct {
	logger *slog.Logger
	begin  func(_ HostConfig, _ Image, room uint64) *transfer
	// wake has a token when there may be a transfer that nobody runs.
	wake chan struct{}

	mu    sync.Mutex
	byKey map[transferKey]*job
}

type transferKey struct{ host, sum string }

type job struct {
	transfer *transfer
	running  bool
	ended    bool
	// err is why it failed. Somebody is told in any case, and others until then.
	err   error
	told  bool
	until time.Time
}

// mostTold is how long a failure is told at most. Whoever waits for an image asks more often, and who asks later may know that it has
// been mended.
const mostTold = time.Minute

func newTransfers(logger *slog.Logger, begin func(HostConfig, Image, uint64) *transfer) *transfers {
	return &transfers{logger: logger, begin: begin, wake: make(chan struct{}, 1), byKey: map[transferKey]*job{}}
}

// ask says how far a transfer is, and has it begin if need be, for somebody who needs so much room when it has arrived.
//
// That the last one is complete is told once, for who asks has looked before it was, and will look again. That it failed is told with
// its error: to the first who asks, and to all who ask until as much time has passed as it took, at most a minute; a hundred who wait
// for one image do not have it fetched a hundred times, and what fails at once is tried each time. Whoever asks after that has another
// one begin, and so has at any time who asks for less room than one that failed: for whom it may not fail.
func (t *transfers) ask(h HostConfig, i Image, room uint64) (progress string, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := transferKey{h.Name, i.SHA256}
	j, ok := t.byKey[key]
	if ok && j.ended {
		switch {
		case j.err == nil:
			delete(t.byKey, key)
			return j.transfer.progress(), nil
		case room >= j.transfer.room && (!j.told || time.Now().Before(j.until)):
			j.told = true
			return "", j.err
		}
		ok = false
	}
	if !ok {
		j = &job{transfer: t.begin(h, i, room)}
		t.byKey[key] = j
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
	return j.transfer.progress(), nil
}

// run runs the transfers that are asked for until ctx ends, and returns when all have ended.
func (t *transfers) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		for _, j := range t.waiting() {
			group.Go(func() { t.do(ctx, j) })
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// waiting takes the transfers that nobody runs.
func (t *transfers) waiting() []*job {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*job
	for _, j := range t.byKey {
		if !j.running && !j.ended {
			j.running = true
			all = append(all, j)
		}
	}
	return all
}

func (t *transfers) do(ctx context.Context, j *job) {
	logger := t.logger.With("host", j.transfer.host.Name, "image", j.transfer.image.Name)
	logger.InfoContext(ctx, "image transfer begins")
	began := time.Now()
	err := j.transfer.run(ctx)
	now := time.Now()
	if err != nil {
		logger.WarnContext(ctx, "image transfer failed", "error", err)
	} else {
		logger.InfoContext(ctx, "image transfer ended")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	j.running, j.ended, j.err, j.until = false, true, err, now.Add(min(now.Sub(began), mostTold))
}
