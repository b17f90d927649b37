package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// Secrets are the Secrets of the set that an [Applier] has in force; until then there are none. A store is opened with
// them, and the applier is made with both.
type Secrets struct {
	mu       sync.Mutex
	secrets  map[proxy.Key]proxy.Secret // replaced, never changed
	watchers map[*secretsWatcher]bool
}

var _ proxy.Secrets = (*Secrets)(nil)

// NewSecrets returns an empty one.
func NewSecrets() *Secrets {
	return &Secrets{watchers: map[*secretsWatcher]bool{}}
}

// Get returns the Secret of that name, or an error with [proxy.ErrSecretNotFound] in its tree.
func (s *Secrets) Get(_ context.Context, namespace, name string) (proxy.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.secrets[proxy.Key{Namespace: namespace, Name: name}]
	if !ok {
		return proxy.Secret{}, fmt.Errorf("%s/%s: %w", namespace, name, proxy.ErrSecretNotFound)
	}
	return found, nil
}

// Watch calls fn with the name of each Secret that is there, and then of each one that appeared, changed or went, until
// ctx ends. It is never lost.
func (s *Secrets) Watch(ctx context.Context, fn func(namespace, name string)) error {
	w := s.attach()
	defer s.detach(w)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
		for _, k := range s.take(w) {
			if ctx.Err() != nil {
				return nil
			}
			fn(k.Namespace, k.Name)
		}
	}
}

// secretsWatcher is one Watch that is under way. The mutex of its Secrets guards it.
type secretsWatcher struct {
	pending map[proxy.Key]bool
	wake    chan struct{}
}

func (w *secretsWatcher) add(k proxy.Key) {
	w.pending[k] = true
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// attach begins a watch. Whoever read a Secret before that learns of it again, for it may have changed in between.
func (s *Secrets) attach() *secretsWatcher {
	w := &secretsWatcher{pending: map[proxy.Key]bool{}, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.secrets {
		w.add(k)
	}
	s.watchers[w] = true
	return w
}

func (s *Secrets) detach(w *secretsWatcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

func (s *Secrets) take(w *secretsWatcher) []proxy.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(w.pending), proxy.Key.Compare)
	clear(w.pending)
	return keys
}

// add makes Secrets visible, in the place of earlier ones of their names. The others stay.
func (s *Secrets) add(more map[proxy.Key]proxy.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[proxy.Key]proxy.Secret, len(s.secrets)+len(more))
	maps.Copy(all, s.secrets)
	maps.Copy(all, more)
	s.become(all)
}

// replace makes Secrets visible, and no others.
func (s *Secrets) replace(all map[proxy.Key]proxy.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.become(maps.Clone(all))
}

// become tells the watchers what differs. The caller holds the lock.
func (s *Secrets) become(all map[proxy.Key]proxy.Secret) {
	for k, old := range s.secrets {
		if now, ok := all[k]; !ok || !equal(old, now) {
			s.touch(k)
		}
	}
	for k := range all {
		if _, ok := s.secrets[k]; !ok {
			s.touch(k)
		}
	}
	s.secrets = all
}

func (s *Secrets) touch(k proxy.Key) {
	for w := range s.watchers {
		w.add(k)
	}
}

func equal(a, b proxy.Secret) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.EqualFunc(a.Data, b.Data, secret.Text.Equal)
}
