package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// watcher is one Watch that is under way.
type watcher struct {
	mu      sync.Mutex
	pending map[Key]bool // changes that were not delivered yet
	wake    chan struct{}
}

func newWatcher() *watcher {
	return &watcher{pending: map[Key]bool{}, wake: make(chan struct{}, 1)}
}

// add makes a key pending.
func (w *watcher) add(k Key) {
	w.mu.Lock()
	w.pending[k] = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns the pending keys, in order.
func (w *watcher) take() []Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(w.pending), Key.Compare)
	clear(w.pending)
	return keys
}

// deliver calls fn for each pending key until ctx ends.
func (w *watcher) deliver(ctx context.Context, fn func(Key)) {
	for {
		for _, k := range w.take() {
			if ctx.Err() != nil {
				return
			}
			fn(k)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
	}
}

// Watch calls fn with all keys, and then with those whose record or Secret changed. It fails when the watch of the Secrets
// does.
func (m *Memory) Watch(ctx context.Context, fn func(Key)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := newWatcher()
	m.attach(w)
	defer m.detach(w)

	lost := make(chan error, 1)
	go func() {
		lost <- m.watchSecrets(ctx)
		stop()
	}()
	w.deliver(ctx, fn)
	stop()
	return <-lost
}

// errSecretsWatch is said of [Secrets] that stopped watching for no reason.
var errSecretsWatch = errors.New("it ended before its context")

// watchSecrets touches whoever refers to a Secret that changed, until ctx ends.
func (m *Memory) watchSecrets(ctx context.Context) error {
	if m.cfg.Secrets == nil {
		<-ctx.Done()
		return nil
	}
	err := m.cfg.Secrets.Watch(ctx, func(namespace, name string) {
		m.mu.RLock()
		defer m.mu.RUnlock()
		for k := range m.refs[Key{namespace, name}] {
			m.touch(k)
		}
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		err = errSecretsWatch
	}
	return fmt.Errorf("watch of the Secrets: %w", err)
}

func (m *Memory) attach(w *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.records {
		w.add(k)
	}
	m.watchers[w] = true
}

func (m *Memory) detach(w *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watchers, w)
}

// touch tells all watchers of a key. The caller holds the lock.
func (m *Memory) touch(k Key) {
	for w := range m.watchers {
		w.add(k)
	}
}
