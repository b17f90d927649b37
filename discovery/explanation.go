package discovery

import (
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// Explanation is why a proxy is as it is. It holds no credential and no ID of a lease.
type Explanation struct {
	// Proxy is the record. Required.
	Proxy *proxy.Proxy
	// Observed is what the provider says of the instance now. Nil where there is nobody to ask or nothing to ask about.
	Observed *Observation
	// Probes are the last ones, newest first.
	Probes []Probe
	// Leases are those that are open.
	Leases []OpenLease
	// Cooldowns are those that have not ended.
	Cooldowns []Cooldown
	// LastPass is the last one of the reconciler. Nil if this process has not made one yet.
	LastPass *Pass
}

// StateNotFound is the state of an instance that its provider does not know.
const StateNotFound = "NotFound"

// Observation is what a provider says of an instance.
type Observation struct {
	// State is one of the provider's states or [StateNotFound]. Empty if Err is set.
	State string
	// Incarnation is the backend's own id of the instance.
	Incarnation string
	// Host and Port are where its proxy listens. Port is 0 where it is the one that was asked for.
	Host string
	Port int
	// Reason is a word and Message a sentence on why it is in its state. Both may be empty.
	Reason, Message string
	// Err is why the provider could not say. Its text is shown.
	Err error
}

// Probe is the result of one probe.
type Probe struct {
	// At is when it ended.
	At time.Time
	// OK says that it succeeded. Party is who failed otherwise, in a word, and Message how.
	OK             bool
	Party, Message string
	// Latency is how long it took.
	Latency time.Duration
	// StatusCode is that of the answer, or 0 if there was none.
	StatusCode int
}

// OpenLease is a lease, without the ID that would let its reader end it.
type OpenLease struct {
	// Target is what it is for. Empty for one that named none.
	Target string
	// Granted may be zero where that is not known.
	Granted, Expires time.Time
}

// Cooldown is a target that a proxy is kept from.
type Cooldown struct {
	// Target is empty for all of them.
	Target string
	// Until is when the window ends, or ended.
	Until time.Time
	// HalfOpen says that the window has ended: one lease at a time may try the target until one is reported ok.
	HalfOpen bool
}

// Pass is one pass of the reconciler.
type Pass struct {
	// At is when it ended.
	At time.Time
	// Took is how long it took.
	Took time.Duration
	// Err is why it failed, or nil. Its text is shown.
	Err error
	// Next is when the next one is due unless something happens before. Zero if only an event brings it.
	Next time.Time
}
