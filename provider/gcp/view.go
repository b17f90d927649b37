package gcp

import (
	"context"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// view is the whole fleet as a list showed it. It answers for what is there, as long as it is young enough for the state that
// it shows; what it does not show may be there all the same, and is asked for directly. One list thus stands for as many
// requests as there are machines.
type view struct {
	read         func(ctx context.Context, op string) ([]provider.Instance, error)
	fresh, quick time.Duration // how old it may be for what runs, and for what is about to change
	keep         time.Duration // how long lists may lag behind changes

	turn chan struct{} // holds a token while somebody reads the list

	mu       sync.Mutex
	at       time.Time // when the list was asked for
	seen     map[string]provider.Instance
	touched  map[string]touch
	window   time.Time // since when direct requests are counted
	requests int
}

// touch is what this process did to an instance, which a list may not know yet.
type touch struct {
	at            time.Time
	made, deleted string // incarnations
}

// fewRequests is how many instances that are about to change are asked for directly, before a list is cheaper.
const fewRequests = 4

// readTime is how long a list may take that a caller waits for. The caller then asks directly, and has time for that.
const readTime = 20 * time.Second

// touch notes that an instance was made or deleted just now, or may have been. Empty incarnations are not known.
func (v *view) touch(id string, t touch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t.at = time.Now()
	v.touched[id] = t
}

// look returns an instance as the list shows it, and reads the list anew where that is worth it. Without an answer it has to be
// asked for directly.
func (v *view) look(ctx context.Context, id string) (provider.Instance, bool) {
	if in, ok, decided := v.recall(id, true); decided {
		return in, ok
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return provider.Instance{}, false
	}
	in, ok, decided := v.recall(id, false) // somebody else may have read it meanwhile
	if !decided {
		v.renew(ctx)
		in, ok, decided = v.recall(id, false)
	}
	return in, ok && decided
}

// recall returns an instance as the list shows it, if it is to be believed. It is not decided when the list is too old; may says
// that a direct request is as good then, if there are few.
func (v *view) recall(id string, may bool) (in provider.Instance, ok, decided bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	limit, moving := v.fresh, v.moving(id)
	if moving {
		limit = v.quick
	}
	young := time.Since(v.at) <= limit && !v.at.Before(v.touched[id].at)
	if !young && may && moving && v.spend() {
		return provider.Instance{}, false, true
	}
	in, there := v.seen[id]
	return in, there && v.believed(in), young
}

// moving says whether an instance is about to change, or may just have changed. The caller holds the mutex.
func (v *view) moving(id string) bool {
	in, there := v.seen[id]
	return v.at.Before(v.touched[id].at) || there && (in.State != provider.Running || !v.believed(in))
}

// believed says whether what the list shows of an instance is no older than what this process did to it. Lists may lag.
// The caller holds the mutex.
func (v *view) believed(in provider.Instance) bool {
	t := v.touched[in.ID]
	gone := t.deleted != "" && t.deleted == in.Incarnation && in.State != provider.Terminating
	other := t.made != "" && t.made != in.Incarnation
	return !gone && !other && !v.at.Before(t.at)
}

// spend says whether one more direct request is within what is cheaper than a list. The caller holds the
// mutex.
func (v *view) spend() bool {
	if time.Since(v.window) > v.quick {
		v.window, v.requests = time.Now(), 0
	}
	v.requests++
	return v.requests <= fewRequests
}

// renew reads the list. What could be read counts, even if it is not all.
func (v *view) renew(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	start := time.Now()
	all, err := v.read(call, "get")
	if ctx.Err() != nil {
		return // the caller has gone, which says nothing about the list
	}
	if err != nil && len(all) == 0 {
		start = time.Now() // it may have taken long to fail, and is not tried again at once
	}
	seen := make(map[string]provider.Instance, len(all))
	for _, in := range all {
		seen[in.ID] = in
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.seen = start, seen
	for id, t := range v.touched {
		if start.Sub(t.at) > v.keep {
			delete(v.touched, id)
		}
	}
}
