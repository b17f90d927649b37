package wire

import "time"

// Explanation is why a proxy is as it is.
type Explanation struct {
	// At is when this was true: what has an age has it then.
	At    time.Time `json:"at"`
	Proxy Proxy     `json:"proxy"`
	// Problem is what keeps that which is declared from being made, whatever runs meanwhile.
	Problem string `json:"problem,omitempty"`
	// Outdated says that the instance was made from other inputs than are declared now.
	Outdated bool `json:"outdated"`
	// Backoff is until when the next attempt to make an instance is put off. Left out where none is.
	Backoff time.Time `json:"backoff,omitzero"`
	// Instance is what the record says of it. Left out for a proxy that never had one.
	Instance *Instance `json:"instance,omitempty"`
	// Observed is what the provider says of it. Left out where nobody was asked.
	Observed *Observed `json:"observed,omitempty"`
	// Verdict is what the probes add up to: healthy or unhealthy. Left out while they have not decided.
	Verdict string `json:"verdict,omitempty"`
	// Probes are the last ones, newest first.
	Probes    []Probe     `json:"probes"`
	Leases    []OpenLease `json:"leases"`
	Cooldowns []Cooldown  `json:"cooldowns"`
	// LastPass is the last one of the reconciler. Left out before the first.
	LastPass *Pass `json:"lastPass,omitempty"`
}

// Instance is an instance as it was recorded.
type Instance struct {
	Provider    string `json:"provider,omitempty"`
	ID          string `json:"id,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	// Attempt counts the creates since an instance ran long enough.
	Attempt int32 `json:"attempt,omitempty"`
	// Planned is when the last attempt was written down, Retry the earliest time of the next one.
	Planned time.Time `json:"planned,omitzero"`
	Retry   time.Time `json:"retry,omitzero"`
	// Retiring is the incarnation that is being replaced.
	Retiring string `json:"retiring,omitempty"`
}

// Observed is what a provider says of an instance: its state, or why it could not say.
type Observed struct {
	// State is Provisioning, Running, Stopped, Terminating or NotFound.
	State       string `json:"state,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	Host        string `json:"host,omitempty"`
	Port        int    `json:"port,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Message     string `json:"message,omitempty"`
	Error       string `json:"error,omitempty"`
}

// Probe is the result of one probe.
type Probe struct {
	At time.Time `json:"at"`
	OK bool      `json:"ok"`
	// Party is who failed, and Message how.
	Party         string `json:"party,omitempty"`
	Message       string `json:"message,omitempty"`
	LatencyMillis int64  `json:"latencyMillis"`
	StatusCode    int    `json:"statusCode,omitempty"`
}

// OpenLease is a lease without its ID, which would let the reader end it.
type OpenLease struct {
	Target    string    `json:"target,omitempty"`
	GrantedAt time.Time `json:"grantedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Cooldown is a target that a proxy is kept from.
type Cooldown struct {
	// Target is left out for all of them.
	Target string    `json:"target,omitempty"`
	Until  time.Time `json:"until"`
	// State is cooling or half-open.
	State string `json:"state"`
}

// The states of a cooldown.
const (
	Cooling  = "cooling"
	HalfOpen = "half-open"
)

// Pass is one pass of the reconciler.
type Pass struct {
	At         time.Time `json:"at"`
	TookMillis int64     `json:"tookMillis"`
	Error      string    `json:"error,omitempty"`
	// Next is when the next one is due. Left out if only an event brings it.
	Next time.Time `json:"next,omitzero"`
}
