package health

import "time"

// Result is what one probe found.
type Result struct {
	// OK: the answer came, and its status was an expected one.
	OK bool
	// Party is who failed. It is empty if OK.
	Party Party
	// Message says in a sentence what failed and in which phase of the probe. It is empty if OK. It is made of the
	// prober's own words alone and never quotes what a peer sent, for a peer can send back the password that it got.
	Message string
	// Latency is the time from the start of the probe to its end: the last header of the answer, or the failure.
	Latency time.Duration
	// At is when the probe ended. The engine fills it in where a Prober leaves it zero.
	At time.Time
	// StatusCode is the status of the answer that decided, or 0 if none did.
	StatusCode int
}

// Party is who failed in a probe. The set is closed, so that it can be a metric label and a condition's reason.
type Party string

// The parties. Whatever ran out of time is PartyTimeout, and the message names the phase.
const (
	// PartyConfig: the target as described cannot be probed.
	PartyConfig Party = "config"
	// PartyDial: no connection to the proxy could be made; its name may not resolve, or its port is closed.
	PartyDial Party = "dial"
	// PartyProxyTLS: the TLS handshake with an https proxy failed.
	PartyProxyTLS Party = "proxy_tls"
	// PartyProxyAuth: the proxy wants other credentials, or some at all.
	PartyProxyAuth Party = "proxy_auth"
	// PartyProxyRefusal: the proxy understood and declined to connect to the target, or could not.
	PartyProxyRefusal Party = "proxy_refusal"
	// PartyProxyProtocol: the proxy hung up or answered what its protocol does not allow.
	PartyProxyProtocol Party = "proxy_protocol"
	// PartyTLS: the TLS handshake inside the tunnel failed.
	PartyTLS Party = "tls"
	// PartyTarget: inside the tunnel, the target hung up or answered what HTTP does not allow.
	PartyTarget Party = "target"
	// PartyStatus: an answer came, with a status that was not expected.
	PartyStatus Party = "status"
	// PartyTimeout: the deadline of the probe passed.
	PartyTimeout Party = "timeout"
	// PartyLocal: this process lacks the means to probe, such as a free file descriptor. That says nothing about the proxy.
	PartyLocal Party = "local"
	// PartyCanceled: the caller gave the probe up. That says nothing about the proxy.
	PartyCanceled Party = "canceled"
)
