// Package boltlog keeps in one file what a lease store must not forget when its process ends: open leases, leases that
// still take a report, sessions and cooldowns.
//
//	log, err := boltlog.Open(boltlog.Config{Path: "crawler.leases.db"})
//	store, err := lease.NewMemory(lease.Config{Log: log})
//
// The file is a bbolt database, which holds what is still to be remembered and nothing else: no history, and no credentials.
// One goroutine writes. It takes all that has been appended since it last did and commits it in one transaction, so that
// many grants share one write, and a single one waits for nobody. A crash at any moment leaves all that was confirmed. What
// cannot be read is refused by name and never taken for an empty file, because the leases in it may still be in use.
package boltlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/lease"
)

// Config says which file a log is.
type Config struct {
	// Path is where the file is. One that does not exist is made, readable by its owner alone; its folder must exist.
	// Required.
	Path string
	// Timeout is how long to wait for another process that holds the file. Defaults to 1s.
	Timeout time.Duration
}

func (c Config) validate() error {
	var problems []error
	if c.Path == "" {
		problems = append(problems, errors.New("boltlog: Path is required"))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("boltlog: Timeout must be positive, not %v", c.Timeout))
	}
	return errors.Join(problems...)
}

// Log is a [lease.Log] in a file.
type Log struct {
	file *file
	wake chan struct{} // has room for one: there is something to commit, or to end

	durable atomic.Uint64 // the number up to which records are

	mu       sync.Mutex
	appended uint64
	next     *batch // what is appended goes there
	under    *batch // the one that is committed now, or was last
	closing  bool
	over     error         // why nothing is taken any more
	failed   chan struct{} // closed when that is a failure
	ended    chan struct{} // closed when nothing is written any more
}

var _ lease.Log = (*Log)(nil)

// batch is records that become durable together.
type batch struct {
	records []lease.Record
	last    uint64        // number of the last one
	done    chan struct{} // closed when err is known
	err     error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

func (b *batch) end(err error) {
	b.err = err
	close(b.done)
}

var errClosed = errors.New("boltlog: the log is closed")

// Open opens the file, or makes it. The file is held until [Log.Close]; no other process can open it meanwhile.
func Open(c Config) (*Log, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f, err := openFile(c.Path, cmp.Or(c.Timeout, time.Second))
	if err != nil {
		return nil, fmt.Errorf("lease file %s: %w", c.Path, err)
	}
	return newLog(f), nil
}

func newLog(f *file) *Log {
	l := &Log{file: f, wake: make(chan struct{}, 1), next: newBatch(), under: newBatch(),
		failed: make(chan struct{}), ended: make(chan struct{})}
	go l.write()
	return l
}

// Load calls fn with all records of the file, or returns an error that names the one that cannot be read.
func (l *Log) Load(fn func(lease.Record) error) error {
	if err := l.file.load(fn); err != nil {
		return fmt.Errorf("lease file %s: %w", l.file.path, err)
	}
	return nil
}

// Append puts records into line.
func (l *Log) Append(records ...lease.Record) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appended += uint64(len(records))
	if l.over == nil {
		l.next.records = append(l.next.records, records...)
		l.next.last = l.appended
		l.rouse()
	}
	return l.appended
}

// rouse has the writer look.
func (l *Log) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it will, as it is
	}
}

// Sync waits for the commit that covers the record with a number.
func (l *Log) Sync(ctx context.Context, n uint64) error {
	b := l.batchOf(n)
	if b == nil {
		return nil
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batchOf returns the batch that a record is in, or nil if it is durable.
func (l *Log) batchOf(n uint64) *batch {
	if n <= l.durable.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n <= l.durable.Load():
		return nil
	case n <= l.under.last:
		return l.under
	}
	return l.next
}

// write commits batch after batch, until there are no more or one fails.
func (l *Log) write() {
	defer close(l.ended)
	for range l.wake {
		for b := l.take(); b != nil; b = l.take() {
			if err := l.file.commit(b.records); err != nil {
				l.fail(err)
				return
			}
			b.records = nil
			l.durable.Store(b.last)
			b.end(nil)
		}
		if l.finished() {
			return
		}
	}
}

// take returns what has been appended since it was last called, or nil if that is nothing. Whoever can append now does so
// first: those who have just been answered mostly come back at once, and would else find that the next write has begun with
// the first of them.
func (l *Log) take() *batch {
	for n := -1; n != l.lined(); {
		n = l.lined()
		runtime.Gosched()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next.records) == 0 {
		return nil
	}
	l.under, l.next = l.next, newBatch()
	return l.under
}

// lined returns how many records are in line.
func (l *Log) lined() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.next.records)
}

// finished says whether the log is closed and all is written, and sees to it that nothing is taken from then on.
func (l *Log) finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing || len(l.next.records) > 0 {
		return false
	}
	l.over = errClosed
	l.next.end(l.over)
	return true
}

// fail ends the log. What was under way may be in the file or not.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = fmt.Errorf("lease file %s takes no more records until it is opened again: %w", l.file.path, err)
	l.under.end(l.over)
	l.next.end(l.over)
	l.next.records = nil
	close(l.failed)
}

// Failed is closed when the file takes no more records until it is opened again, because a write or a sync failed. A store
// over the log has stopped serving then, so its process should end.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Err returns why the file takes no more records, once Failed is closed, and nil before.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.over, errClosed) {
		return nil
	}
	return l.over
}

// Close commits what was appended, and lets go of the file. It returns why the log has failed, if it has.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closing
	l.closing = true
	l.rouse()
	l.mu.Unlock()
	<-l.ended
	if again {
		return l.Err()
	}
	failed := l.Err()
	if _, fault := errors.AsType[*boltfile.FaultError](failed); fault {
		return failed // only the process's end is sure to let go of the file
	}
	return errors.Join(failed, l.file.db.Close())
}
