package gc

import "time"

// Plan is what a sweep would do, or did.
type Plan struct {
	// At is when it was made: ages count until then.
	At time.Time
	// Providers are all that are configured, in the order of their names.
	Providers []ProviderPlan
}

// ProviderPlan is the part of a plan that concerns one provider.
type ProviderPlan struct {
	Provider string
	// Err is why there is nothing to judge by: the provider's list or the records could not be read. Nothing is deleted.
	Err error
	// Listed is how many instances of this fleet the provider has, each counted once.
	Listed int
	// Braked: too many of them would be deleted, and all that would be are held back.
	Braked bool
	// Allowed is how many deletions an operator has allowed this time; 0: nobody has. More than that stay held back.
	Allowed int
	// Instances are all that the provider listed, each once, in the order of their IDs.
	Instances []Verdict
}

// Verdict is what happens to one instance, and why.
type Verdict struct {
	ID, Incarnation, UID string
	// Key is namespace/name of the record that has the UID; empty: none has.
	Key string
	// Created is when the instance was made; zero: nobody knows.
	Created time.Time
	Action  Action
	Reason  Reason
	// Err is why a deletion was not made. The next sweep looks again.
	Err error
}

// Action is what happens to an instance.
type Action string

// The actions.
const (
	Keep   Action = "keep"
	Delete Action = "delete" // it is, or would be, deleted
	Hold   Action = "hold"   // it would be deleted, but for the brake
)

// Reason is why.
type Reason string

// The reasons to delete an instance, or to hold it.
const (
	Orphan Reason = "Orphan" // no record has its UID
	Stray  Reason = "Stray"  // the record of its UID holds another instance
)

// The reasons to keep an instance. The last four are of orphans and strays.
const (
	OtherFleet    Reason = "OtherFleet"    // it bears the mark of another fleet
	NoUID         Reason = "NoUID"         // it does not say whose it is
	Live          Reason = "Live"          // its record holds it
	BeingDeleted  Reason = "BeingDeleted"  // its record is being deleted, and takes it along
	NoInstanceYet Reason = "NoInstanceYet" // its record has not seen its instance yet, which may be this one
	Terminating   Reason = "Terminating"   // it goes already
	NoIncarnation Reason = "NoIncarnation" // a deletion could hit its successor
	UnknownAge    Reason = "UnknownAge"    // nobody knows when it was made
	TooYoung      Reason = "TooYoung"      // it was made less than the minimum age ago
)
