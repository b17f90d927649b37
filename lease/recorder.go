package lease

import "time"

// Recorder is told what a [Memory] does, so that somebody may count it. Its methods are called one at a time and with the
// store locked: they must return at once and must not call the store.
type Recorder interface {
	// LeaseGranted is called for each new lease.
	LeaseGranted()
	// LeaseRefused is called for each request that found no proxy. The reason is what kept most of those that match:
	// unhealthy, at_capacity or in_cooldown, and no_proxy if none matches, or if those that are free are too few.
	LeaseRefused(reason string)
	// LeaseWaited is called for each request that had to wait, when its wait is over, whatever its end. It alone is called
	// without the lock, by many goroutines at once.
	LeaseWaited(took time.Duration)
	// LeaseEnded is called for each lease that ends. How it did is released or expired. The store notices an expiry the
	// next time that it is called at all.
	LeaseEnded(how string)
}

// ignore is the recorder of a store that has none.
type ignore struct{}

func (ignore) LeaseGranted()             {}
func (ignore) LeaseRefused(string)       {}
func (ignore) LeaseEnded(string)         {}
func (ignore) LeaseWaited(time.Duration) {}
