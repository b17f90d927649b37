package health

import "context"

// Prober makes probes. A probe is one attempt to use a proxy the way a crawler would; its deadline is the one of its
// context, which the engine sets to [Target.Timeout] from now.
type Prober interface {
	// Probe makes one probe of the target and returns what it found.
	//
	// The one deadline spans all of it: resolving, connecting, handshakes, the request and the answer. Probe returns when
	// it passes or when the context is canceled, late by no more than scheduling takes; a Probe that overruns keeps its
	// worker from other targets. It opens fresh connections and keeps none, for a tunnel that is kept would hide that the
	// proxy no longer makes new ones. TLS is verified inside the tunnel. What it reads from a peer is bounded in bytes, and
	// no text of a peer and no credential gets into the result. It sends no trace headers.
	//
	// Failing is a result, never an error or a panic. The engine counts every result except those of [PartyLocal], which it
	// logs, and those of probes that it canceled itself. Probe is called from several goroutines at once, but never for two probes of one key.
	Probe(ctx context.Context, t Target) Result
}

// ProberFunc makes a Prober of a function.
type ProberFunc func(context.Context, Target) Result

// Probe calls f.
func (f ProberFunc) Probe(ctx context.Context, t Target) Result { return f(ctx, t) }
