package lease

import (
	"fmt"
	"time"
)

// NoMatch is the error of a request that found no proxy. It counts every proxy that matches the selector once, under the
// first of its obstacles in the order of the fields, so that Considered is the sum of the four that follow it.
type NoMatch struct {
	// Considered is the number of proxies that match the selector.
	Considered int
	// Unhealthy is the number of those that must not be leased.
	Unhealthy int
	// AtCapacity is the number of those that have as many open leases as they can bear.
	AtCapacity int
	// InCooldown is the number of those that cool down for the target, or are being tried after a cooldown.
	InCooldown int
	// Eligible is the number of those that are free, but too few for the count that was asked for.
	Eligible int
	// RetryAfter is how long it takes until one of them comes free if nothing else happens: no release, no renewal, no
	// change of health. 0 means that it is not known.
	RetryAfter time.Duration
}

// Error says how many proxies were considered and what kept them.
func (e *NoMatch) Error() string {
	if e.Considered == 0 {
		return "lease: no proxy matches the selector"
	}
	return fmt.Sprintf("lease: no proxy is free: of %d that match, %d not ready, %d at capacity, %d in cooldown, %d eligible",
		e.Considered, e.Unhealthy, e.AtCapacity, e.InCooldown, e.Eligible)
}

// reason is the obstacle that most of the proxies met, as a [Recorder] is told it.
func (e *NoMatch) reason() string {
	switch max(e.Unhealthy, e.AtCapacity, e.InCooldown) {
	case 0:
		return "no_proxy"
	case e.Unhealthy:
		return "unhealthy"
	case e.AtCapacity:
		return "at_capacity"
	}
	return "in_cooldown"
}
