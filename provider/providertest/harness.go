package providertest

import (
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// Harness is one backend, made for one case, and what the suite may do with it. What a harness has to clean up it leaves
// to t.Cleanup.
type Harness struct {
	// Open opens the provider over this backend for the fleet of that identity. It may be called again: after a restart,
	// and for another fleet. Only one is in use at a time: the suite ends the Run of the last one, if it is a
	// [provider.Runner], before it opens the next. Required.
	Open func(t testing.TB, fleet string) provider.Provider

	// Request returns what a valid instance is made from: placement, port, cloud-init and credentials, as far as the
	// provider can honour them. It is called for each instance; name, marks and token are the suite's. Secrets are at least
	// 12 characters long and occur in nothing else, for the suite looks for them in all that the provider returns.
	// Required.
	Request func() provider.Request

	// Outlives says that instances are there when the provider is opened again. Where it is false, they must be gone.
	Outlives bool

	// Settle is how long the suite polls for what need not be true at once: until an instance runs, is gone, or is seen.
	// Defaults to 10 seconds.
	Settle time.Duration

	// Refused holds edits that make a valid request one that Plan must refuse, each under the name of the field, which the
	// error must contain. Defaults to none.
	Refused map[string]func(*provider.Request)

	// Plant puts an instance into the backend as somebody else would, with the name and the marks of r; zero marks stand
	// for an instance that bears none. Defaults to opening the provider for the other fleet and creating it there, which
	// takes a backend that outlives it and cannot make one without marks.
	Plant func(t testing.TB, r provider.Request)

	// Inject disturbs the backend until the end of the case, and says whether it can do that. Defaults to a backend that
	// cannot be disturbed.
	Inject func(f Fault) bool
}

// Fault is something that goes wrong at a backend.
type Fault string

// The faults. Those of a call hit the next call of that kind that changes or reads an instance, once. The others last.
const (
	// CreateFails: it has no effect and answers like a server in trouble.
	CreateFails Fault = "create fails"
	// CreateUnanswered: it takes effect, and the answer is lost.
	CreateUnanswered Fault = "create unanswered"
	// GetFails: it answers like a server in trouble.
	GetFails Fault = "get fails"
	// DeleteFails: it has no effect and answers like a server in trouble.
	DeleteFails Fault = "delete fails"
	// DeleteUnanswered: it takes effect, and the answer is lost.
	DeleteUnanswered Fault = "delete unanswered"
	// ListFails: one part of it, such as a page or a host, answers like a server in trouble; or the whole where there are no
	// parts.
	ListFails Fault = "list fails"
	// CheckFails: from now on a part of the backend, or the whole, cannot be used, which a check can see.
	CheckFails Fault = "check fails"
	// Hangs: from now on all calls are accepted, have no effect and are never answered.
	Hangs Fault = "hangs"
	// Lags: from now on reads answer what was true a while ago, which is less than half of Settle.
	Lags Fault = "lags"
)

func (h Harness) withDefaults() Harness {
	if h.Settle == 0 {
		h.Settle = 10 * time.Second
	}
	if h.Inject == nil {
		h.Inject = func(Fault) bool { return false }
	}
	return h
}
