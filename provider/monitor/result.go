package monitor

import (
	"maps"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// Result is what is known of one provider.
type Result struct {
	Provider string
	// CanCheck says whether the provider has checks at all.
	CanCheck bool
	// Targets are in the order of their names. There are none before the first check, and none where there are no checks.
	Targets []Target
	// Checked is when the last check ended. It is zero before the first one, and where there are no checks.
	Checked time.Time
}

// Ready is how many targets are ready.
func (r Result) Ready() int {
	n := 0
	for _, t := range r.Targets {
		if t.Ready {
			n++
		}
	}
	return n
}

// Target is the last verdict on one target.
type Target struct {
	provider.TargetStatus
	// Since is when the target began to be ready, or to be not ready for this reason.
	Since time.Time
	// Checked is when the verdict was reached.
	Checked time.Time
	// Took is how long the check took that reached it, or how long one has been under way that does not end.
	Took time.Duration
}

// clone returns a copy that shares nothing with r.
func (r Result) clone() Result {
	targets := make([]Target, len(r.Targets))
	for i, t := range r.Targets {
		t.Details = maps.Clone(t.Details)
		targets[i] = t
	}
	r.Targets = targets
	return r
}
