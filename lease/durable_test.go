package lease_test

import (
	"context"
	"sync"

	"github.com/proxyfleet/fleet/lease"
)

// ledger is a log in memory, which remembers how it came to be what it is.
type ledger struct {
	sync func(ctx context.Context, n uint64) error // nil: all is durable at once

	mu    sync.Mutex
	from  map[name]lease.Record // what it begins with
	calls [][]lease.Record
	n     uint64
}

// name is what a record is about.
type name struct{ lease, session, key, target string }

func nameOf(r lease.Record) name {
	switch {
	case r.Lease != "":
		return name{lease: r.Lease}
	case r.Session != "":
		return name{session: r.Session}
	}
	return name{key: r.Key, target: r.Target}
}

func (l *ledger) Load(fn func(lease.Record) error) error {
	for _, r := range l.after(-1) {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) Append(records ...lease.Record) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, append([]lease.Record(nil), records...))
	l.n += uint64(len(records))
	return l.n
}

func (l *ledger) Sync(ctx context.Context, n uint64) error {
	if l.sync != nil {
		return l.sync(ctx, n)
	}
	return nil
}

// after returns what is remembered after so many calls of Append; -1 stands for all of them.
func (l *ledger) after(calls int) map[name]lease.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if calls < 0 {
		calls = len(l.calls)
	}
	all := map[name]lease.Record{}
	for n, r := range l.from {
		all[n] = r
	}
	for _, call := range l.calls[:calls] {
		for _, r := range call {
			if all[nameOf(r)] = r; r.Gone {
				delete(all, nameOf(r))
			}
		}
	}
	return all
}
