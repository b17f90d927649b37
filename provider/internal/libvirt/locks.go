package libvirt

import (
	"context"
	"sync"
)

// locks are one lock for each name.
type locks struct {
	mu     sync.Mutex
	byName map[string]*nameLock
}

type nameLock struct {
	held    chan struct{}
	holders int // and those who wait
}

// lock waits until nobody else holds the name, or ctx ends.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), _ error) {
	l.mu.Lock()
	if l.byName == nil {
		l.byName = map[string]*nameLock{}
	}
	n, ok := l.byName[name]
	if !ok {
		n = &nameLock{held: make(chan struct{}, 1)}
		l.byName[name] = n
	}
	n.holders++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n.holders--; n.holders == 0 {
			delete(l.byName, name)
		}
	}
	select {
	case n.held <- struct{}{}:
		return func() { <-n.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
