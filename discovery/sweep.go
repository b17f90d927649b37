package discovery

import (
	"context"
	"errors"
	"time"
)

// ErrUnknownProvider says that no provider of a name is configured.
var ErrUnknownProvider = errors.New("no such provider")

// Sweeper deletes the instances of this fleet that no record knows.
//
// A plan says of each instance that a provider lists whether it is kept or deleted, and why. The brake holds back all
// deletions at a provider of which too many would go at once, until somebody allows them. All methods may be called at once;
// an implementation works on one sweep at a time and lets others wait for as long as their context lasts. An error is shown
// to nobody but the log, so that it may say anything; one that ended by its context is a timeout.
type Sweeper interface {
	// Plan returns what a sweep would do now, and changes nothing.
	Plan(context.Context) (SweepPlan, error)
	// Sweep deletes what may go and returns what it did, deletions that failed included. The error is for a sweep that could
	// not be made at all.
	Sweep(context.Context) (SweepPlan, error)
	// Allow lifts the brake of a provider for one sweep that deletes at most max instances, which is at least 1. The error is
	// [ErrUnknownProvider] if there is no such provider; its text is shown and names those that there are.
	Allow(provider string, max int) error
}

// SweepPlan is what a sweep does or would do.
type SweepPlan struct {
	// At is when the instances were listed.
	At time.Time
	// Providers are sorted by name. A provider that has nothing is there too.
	Providers []ProviderSweep
}

// ProviderSweep is the part of one provider.
type ProviderSweep struct {
	// Provider is its name.
	Provider string
	// Err is why its instances could not be listed: nothing is deleted then. Its text is shown.
	Err error
	// Listed is how many instances it has.
	Listed int
	// Braked says that too many of them would go at once, so that none does.
	Braked bool
	// Allowed is how many somebody has allowed to go in spite of that. 0 is nobody.
	Allowed int
	// Instances are all that were listed.
	Instances []InstanceSweep
}

// SweepAction is what happens to an instance.
type SweepAction string

// The actions.
const (
	// SweepKeep keeps what has a place in the fleet, or may have one.
	SweepKeep SweepAction = "keep"
	// SweepDelete deletes what has none.
	SweepDelete SweepAction = "delete"
	// SweepHold keeps what would be deleted but for the brake.
	SweepHold SweepAction = "hold"
)

// InstanceSweep is the verdict on one instance.
type InstanceSweep struct {
	// ID is the provider's, and Incarnation the backend's for this very instance.
	ID, Incarnation string
	// UID is that of the proxy that it was made for.
	UID string
	// Proxy is the namespace/name of the record that has this UID. Empty if none has.
	Proxy string
	// Created is when it was made. Zero if that is not known.
	Created time.Time
	// Action is what happens to it, and Reason the stable word for why.
	Action SweepAction
	Reason string
	// Err is why a deletion failed. Its text is shown.
	Err error
}
