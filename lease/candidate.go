package lease

import "time"

// Candidate is a proxy as the owner of a [Memory] describes it.
type Candidate struct {
	// Key names the proxy within the store; the fleet uses namespace/name.
	Key string
	// Incarnation tells apart the instances that bear the same name one after the other. With a new one the proxy is a
	// stranger: its cooldowns are forgotten, and the leases on the old instance are of a proxy that is gone. They still
	// count towards MaxLeases until they end, because the new instance may well answer at the old address.
	Incarnation string
	// Endpoint is what a lease of the proxy carries, except that its Attributes are replaced by those below.
	Endpoint Endpoint
	// Attributes are what selectors match.
	Attributes map[string]string
	// MaxLeases is how many leases may be open at once. Below 1 there are none.
	MaxLeases int
	// Healthy says whether the proxy may be leased. A proxy that is known but must not be leased, for whatever reason, is
	// counted as unhealthy when a request finds nothing.
	Healthy bool
	// Latency is the time that the proxy takes, as its probes last reported it.
	Latency time.Duration
}
