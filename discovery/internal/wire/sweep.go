package wire

import "time"

// SweepPlan is what a sweep would do, or did.
type SweepPlan struct {
	// At is when the instances were listed.
	At        time.Time       `json:"at"`
	Providers []ProviderSweep `json:"providers"`
}

// ProviderSweep is the part of one provider.
type ProviderSweep struct {
	Provider string `json:"provider"`
	// Error is why there was nothing to judge by. Nothing is deleted then.
	Error string `json:"error,omitempty"`
	// Listed is how many instances it has.
	Listed int `json:"listed"`
	// Braked says that too many of them would be deleted at once.
	Braked bool `json:"braked"`
	// Allowed is how many may be in spite of that.
	Allowed   int             `json:"allowed"`
	Instances []InstanceSweep `json:"instances"`
}

// InstanceSweep is the verdict on one instance.
type InstanceSweep struct {
	ID          string `json:"id"`
	Incarnation string `json:"incarnation,omitempty"`
	UID         string `json:"uid,omitempty"`
	// Proxy is the namespace/name of the record that has this UID.
	Proxy     string    `json:"proxy,omitempty"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Action is keep, delete or hold; Reason is the stable word for why.
	Action string `json:"action"`
	Reason string `json:"reason"`
	// Error is why a deletion failed.
	Error string `json:"error,omitempty"`
}

// The actions of a sweep.
const (
	Keep   = "keep"
	Delete = "delete"
	Hold   = "hold"
)

// AllowRequest lifts the brake of a provider for one sweep.
type AllowRequest struct {
	Provider string `json:"provider"`
	Max      int    `json:"max"`
}
