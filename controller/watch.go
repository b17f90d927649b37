package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/proxyfleet/fleet/proxy"
)

// Watch calls fn with all keys once the store can answer, and then with those whose object or Secret changed. It is lost when
// Run ends.
func (s *Store) Watch(ctx context.Context, fn func(proxy.Key)) error {
	if err := s.Synced(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("watch of the proxies: %w", err)
	}
	w := newWatcher()
	s.attach(w)
	defer s.detach(w)
	return w.deliver(ctx, s.ended, fn)
}

// proxyChanged tells of an object in the cache that changed.
func (s *Store) proxyChanged(key string, now any) {
	if o, ok := now.(*object); ok {
		switch err := o.problem(); {
		case s.foreign(o):
			s.leave(o)
		case err != nil:
			s.cfg.Logger.Warn("a Proxy object cannot be understood, and nothing is done about it", "proxy", key, "err", err)
		}
	}
	namespace, name, _ := strings.Cut(key, "/")
	s.touch(proxy.Key{Namespace: namespace, Name: name})
}

// leave says, once, that there are proxies of another fleet.
func (s *Store) leave(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shared {
		s.shared = true
		s.cfg.Logger.Warn("another fleet keeps proxies here, and they are left alone: is it this one, under an earlier identity?",
			"proxy", o.key(), "keeper", o.keeper(), "fleet", s.cfg.Fleet)
	}
}

// secretChanged tells of the proxies that refer to a Secret that changed.
func (s *Store) secretChanged(key string, _ any) {
	items, err := s.objects.informer.GetIndexer().ByIndex(bySecret, key)
	if err != nil {
		s.cfg.Logger.Error("proxies of a changed Secret not found", "secret", key, "err", err)
		return
	}
	for _, item := range items {
		s.touch(item.(*object).key())
	}
}

func (s *Store) attach(w *watcher) {
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	for _, o := range s.recent.list() {
		w.add(o.key())
	}
}

func (s *Store) detach(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// touch tells all watchers of a key.
func (s *Store) touch(k proxy.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.add(k)
	}
}

// watcher is one Watch that is under way.
type watcher struct {
	mu      sync.Mutex
	pending map[proxy.Key]bool // changes that were not delivered yet
	wake    chan struct{}
}

func newWatcher() *watcher {
	return &watcher{pending: map[proxy.Key]bool{}, wake: make(chan struct{}, 1)}
}

// add makes a key pending.
func (w *watcher) add(k proxy.Key) {
	w.mu.Lock()
	w.pending[k] = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns the pending keys, in order.
func (w *watcher) take() []proxy.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(w.pending), proxy.Key.Compare)
	clear(w.pending)
	return keys
}

// deliver calls fn for each pending key until ctx ends; that the store ended first is an error.
func (w *watcher) deliver(ctx context.Context, ended <-chan struct{}, fn func(proxy.Key)) error {
	for {
		for _, k := range w.take() {
			if ctx.Err() != nil {
				return nil
			}
			fn(k)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch of the proxies: %w", errEnded)
		case <-w.wake:
		}
	}
}
