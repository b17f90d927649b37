package libvirt

import (
	"context"
	"log/slog"
	"sync"
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
	err      error
}

func newTransfers(logger *slog.Logger, begin func(HostConfig, Image, uint64) *transfer) *transfers {
	return &transfers{logger: logger, begin: begin, wake: make(chan struct{}, 1), byKey: map[transferKey]*job{}}
}

// ask says how far a transfer is, and has it begin if need be, for somebody who needs so much room when it has arrived. What came of
// the last one is told once, and whoever asks again has another one begin: that it failed, with its error; or that it is complete,
// for who asks has looked before it was, and will look again. Who asks for less room than one that failed has another one begin, for
// whom it may not fail.
func (t *transfers) ask(h HostConfig, i Image, room uint64) (progress string, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := transferKey{h.Name, i.SHA256}
	j, ok := t.byKey[key]
	if ok && j.ended {
		delete(t.byKey, key)
		switch {
		case j.err == nil:
			return j.transfer.progress(), nil
		case room >= j.transfer.room:
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
	err := j.transfer.run(ctx)
	if err != nil {
		logger.WarnContext(ctx, "image transfer failed", "error", err)
	} else {
		logger.InfoContext(ctx, "image transfer ended")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	j.running, j.ended, j.err = false, true, err
}
