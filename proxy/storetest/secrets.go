package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// Secrets are [proxy.Secrets] in memory, for the tests of stores that are given theirs.
type Secrets struct {
	mu       sync.Mutex
	secrets  map[proxy.Key]proxy.Secret
	watchers map[chan struct{}]map[proxy.Key]bool // by the wake-up of each: what it was not told yet
}

var (
	_ proxy.Secrets = (*Secrets)(nil)
	_ SecretWriter  = (*Secrets)(nil)
)

// NewSecrets makes an empty set of Secrets.
func NewSecrets() *Secrets {
	return &Secrets{secrets: map[proxy.Key]proxy.Secret{}, watchers: map[chan struct{}]map[proxy.Key]bool{}}
}

// Set makes a Secret or replaces the one of that name.
func (s *Secrets) Set(namespace, name string, to proxy.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := proxy.Key{Namespace: namespace, Name: name}
	s.secrets[k] = proxy.Secret{Labels: maps.Clone(to.Labels), Data: maps.Clone(to.Data)}
	s.touch(k)
}

// Remove takes a Secret away.
func (s *Secrets) Remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := proxy.Key{Namespace: namespace, Name: name}
	delete(s.secrets, k)
	s.touch(k)
}

// Get returns a Secret.
func (s *Secrets) Get(_ context.Context, namespace, name string) (proxy.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, ok := s.secrets[proxy.Key{Namespace: namespace, Name: name}]
	if !ok {
		return proxy.Secret{}, fmt.Errorf("%s/%s: %w", namespace, name, proxy.ErrSecretNotFound)
	}
	return got, nil
}

// Watch calls fn with the names of all Secrets, then of those that changed.
func (s *Secrets) Watch(ctx context.Context, fn func(namespace, name string)) error {
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	s.watchers[wake] = map[proxy.Key]bool{}
	for k := range s.secrets {
		s.watchers[wake][k] = true
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, wake)
	}()
	for {
		s.mu.Lock()
		keys := slices.SortedFunc(maps.Keys(s.watchers[wake]), proxy.Key.Compare)
		clear(s.watchers[wake])
		s.mu.Unlock()
		for _, k := range keys {
			fn(k.Namespace, k.Name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}

// touch tells all watchers of a Secret. The caller holds the lock.
func (s *Secrets) touch(k proxy.Key) {
	for wake, pending := range s.watchers {
		pending[k] = true
		select {
		case wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// initSecret and loginSecret are what declaration refers to.
func initSecret(userData string) proxy.Secret {
	return proxy.Secret{
		Labels: map[string]string{proxy.CloudInitLabel: "true"},
		Data:   map[string]secret.Text{"user-data": secret.New(userData)},
	}
}

func loginSecret(password string) proxy.Secret {
	return proxy.Secret{
		Labels: map[string]string{proxy.CredentialsLabel: "true"},
		Data:   map[string]secret.Text{"username": secret.New("crawler"), "password": secret.New(password)},
	}
}
