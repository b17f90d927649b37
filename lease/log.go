package lease

import (
	"context"
	"time"
)

// Log keeps what a [Memory] must not forget when its process ends: open leases, leases that still take a report, sessions
// and cooldowns. A [Record] says what is to be remembered of one of these things from now on, and replaces what earlier
// records said of the same thing. Records are numbered from 1 in the order in which they were appended, and become durable
// in that order: when one is, all before it are.
//
// Load is called once, before everything else. The other methods may be called by many goroutines at once.
type Log interface {
	// Load calls fn with what is remembered, each thing once, in any order. The first error, fn's included, ends it and is
	// returned; the store is then not made.
	Load(fn func(Record) error) error

	// Append takes records over, and returns the number of the last. Those of one call become durable together or not at
	// all. The records are the log's from then on, the slice stays the caller's. Append is called with the store locked: it
	// only numbers them and puts them into line, and waits for nothing. It cannot fail; what goes wrong is told by Sync.
	Append(records ...Record) (n uint64)

	// Sync returns nil once all records up to the number n are where a crash cannot reach them. Many callers share one
	// write. It waits no longer than ctx, whose error it returns then. Any other error is the end of the log: nothing is
	// known of records that were not confirmed before, and no later one is ever confirmed. The store stops serving then.
	Sync(ctx context.Context, n uint64) error
}

// Record is what is to be remembered of a lease, of a session or of a cooldown. It holds no credentials. Fields that are not
// named for one of the three are zero in its records.
type Record struct {
	// Lease is the ID of the lease that the record is about, and Session the name of the session. Both are empty in a record
	// about a cooldown, which is named by Key and Target.
	Lease, Session string
	// Gone says that there is nothing to remember any more; no field but the name is set then.
	Gone bool

	// Key and Incarnation are those of the proxy, of all three.
	Key, Incarnation string
	// Target is that of a lease or of a cooldown.
	Target string

	// Expires is when an open lease ends by itself, and TTL how long it was granted or renewed for.
	Expires time.Time
	TTL     time.Duration
	// Request is what got an open lease, as far as that still matters.
	Request *Request
	// Place is the open lease's among those that the request got, and Moved what the request was told.
	Place int
	Moved bool
	// Ended is when a lease ended; zero for an open one.
	Ended time.Time

	// Until is when a session is forgotten, and when the window of a cooldown ends.
	Until time.Time
	// Window is how long the window of a cooldown is, and Steps how many there were in a row.
	Window time.Duration
	Steps  int
	// Trial is the ID of the lease that tries the pair, Opened says that a trial has ended without a verdict, and Change is
	// when the pair changes by itself.
	Trial  string
	Opened bool
	Change time.Time
	// Bans are the IDs of the leases that have started a window.
	Bans []string
}
