package lease

import "time"

// Log keeps what a [Memory] must not forget when its process ends: open leases, leases that still take a report, and
// cooldowns. A record says what is to be remembered of one of them from now on, and replaces what earlier records said of
// the same one. Records are numbered from 1 in the order in which they were appended.
//
// Load is called once, before everything else. The other methods may be called by many goroutines at once.
type Log interface {
	// Load calls fn with what is remembered, each thing once, in any order. An error, fn's included, ends it.
	Load(fn func(Record) error) error

	// Append takes records over, all of them or none, and returns the number of the last. It is called with the store locked:
	// it only numbers them and puts them into line, and waits for nothing. It cannot fail; what goes wrong is told by Sync.
	Append(records ...Record) (n uint64)

	// Sync returns once all records up to the number n are where a crash cannot reach them. Many callers share one write.
	// After an error nothing is known of any record that was not confirmed before, and every later call fails: the store
	// then stops serving.
	Sync(n uint64) error
}

// Record is what is to be remembered of a lease, or of a cooldown. It holds no credentials.
type Record struct {
	// Lease is the ID of the lease that the record is about. Empty in a record about a cooldown, which is named by Key and
	// Target.
	Lease string `json:"lease,omitempty"`
	// Gone says that there is nothing to remember any more; nothing else but the name is set then.
	Gone bool `json:"gone,omitempty"`

	// Key and Incarnation are those of the proxy.
	Key         string `json:"key,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	Target      string `json:"target,omitempty"`

	// Expires is when the lease ends by itself, and TTL how long it was granted or renewed for.
	Expires time.Time     `json:"expires,omitzero"`
	TTL     time.Duration `json:"ttl,omitempty"`
	// Ended is when it was released; zero for one that was not.
	Ended time.Time `json:"ended,omitzero"`
	// Request is what got the lease.
	Request *Request `json:"request,omitempty"`
	// Place is the lease's among those that the request got, and Moved what the request was told.
	Place int  `json:"place,omitempty"`
	Moved bool `json:"moved,omitempty"`

	// Until is when the window of the cooldown ends, Window how long it is, and Steps how many there were in a row.
	Until  time.Time     `json:"until,omitzero"`
	Window time.Duration `json:"window,omitempty"`
	Steps  int           `json:"steps,omitempty"`
	// Trial is the ID of the lease that tries the pair. Opened says that a trial has ended without a verdict, and Change
	// when the pair is forgotten.
	Trial  string    `json:"trial,omitempty"`
	Opened bool      `json:"opened,omitempty"`
	Change time.Time `json:"change,omitzero"`
	// Bans are the leases that have started a window.
	Bans []string `json:"bans,omitempty"`
}
