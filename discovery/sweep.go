package discovery

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

const (
	// sweepTimeout bounds a plan and a sweep: providers are asked for all that they have, and deletions take their time.
	sweepTimeout = 5 * time.Minute
	// answerTimeout is how long the answer may then take.
	answerTimeout = 30 * time.Second
)

// ErrUnknownProvider says that no provider of a name is configured.
var ErrUnknownProvider = errors.New("no such provider")

// Sweeper deletes the instances of this fleet that no record knows.
//
// A plan says of each instance that a provider lists whether it is kept or deleted, and why. The brake holds back all
// deletions at a provider where too many would go at once, until somebody allows them. All methods may be called at once; sweeps
// are made one after the other, and each waits for its turn for as long as its context lasts. An error that is not said to be
// shown goes to the log alone.
type Sweeper interface {
	// Plan returns what a sweep would do now, and changes nothing.
	Plan(context.Context) (SweepPlan, error)
	// Sweep deletes what may go and returns what it did, deletions that failed included. The error is for a sweep that could
	// not be made at all.
	Sweep(context.Context) (SweepPlan, error)
	// Allow lifts the brake of a provider for the next sweep and no other, if that would delete at most max instances, which is
	// at least 1; else all stay held back. The error is [ErrUnknownProvider] if there is no such provider; its text is shown
	// and names those that there are.
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
	// Allowed is how many somebody has allowed to go in spite of the brake. 0 is nobody.
	Allowed int
	// Instances are all that were listed.
	Instances []InstanceSweep
}

// SweepAction is what happens to an instance.
type SweepAction string

// The actions.
const (
	// SweepKeep keeps what has a place in the fleet, or may have one.
	SweepKeep SweepAction = wire.Keep
	// SweepDelete deletes what has none.
	SweepDelete SweepAction = wire.Delete
	// SweepHold keeps what would be deleted but for the brake.
	SweepHold SweepAction = wire.Hold
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

func (a *api) planSweep(w http.ResponseWriter, r *http.Request) error {
	plan := func(s Sweeper, ctx context.Context) (SweepPlan, error) {
		return inTurn(a.plans, w, r.WithContext(ctx), func() (SweepPlan, error) { return s.Plan(ctx) })
	}
	return a.sweepBy(w, r, plan,
		"no plan within "+sweepTimeout.String()+": a provider does not say what it has, and GET /v1/providers may say why")
}

func (a *api) sweep(w http.ResponseWriter, r *http.Request) error {
	return a.sweepBy(w, r, Sweeper.Sweep,
		"no end within "+sweepTimeout.String()+" of the sweep, or of one that it waited for: it was stopped; the log says what it deleted, and the next one goes on from there")
}

// sweepBy answers with a plan when it has been made or carried out, which may take longer than the server allows others. It
// ends with its caller: a sweep may stop between any two deletions.
func (a *api) sweepBy(w http.ResponseWriter, r *http.Request, how func(Sweeper, context.Context) (SweepPlan, error), tooLong string) error {
	if a.Sweeper == nil {
		return errNoSweeper()
	}
	running, stop := a.whileRunning(r.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(running, sweepTimeout)
	defer cancel()
	// Where the connection has no deadlines, as in tests, none needs to be moved.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sweepTimeout + answerTimeout))
	plan, err := how(a.Sweeper, ctx)
	if err != nil && errors.Is(context.Cause(running), errEnding) {
		setRetryAfter(w, notReadyRetry)
		return errEnding
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &problem{http.StatusServiceUnavailable, wire.Timeout, tooLong}
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, wire.SweepPlan{At: instant(plan.At), Providers: showEach(plan.Providers, showProviderSweep)})
	return nil
}

// errEnding is the answer to what is cut short by the end of the process.
var errEnding error = &problem{http.StatusServiceUnavailable, wire.NotReady, "this process is ending, and has stopped what it was asked for"}

// whileRunning returns a context that also ends when the process is about to end, with errEnding as its cause.
func (a *api) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-a.Ending:
			end(errEnding)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(nil) }
}

func errNoSweeper() error { return NotOffered("this fleet does not sweep here") }

// allowSweep lifts the brake of a provider once.
func (a *api) allowSweep(w http.ResponseWriter, r *http.Request) error {
	if a.Sweeper == nil {
		return errNoSweeper()
	}
	var body wire.AllowRequest
	if err := readBody(r, &body); err != nil {
		return err
	}
	if body.Provider == "" {
		return invalid("provider must name the provider whose brake is to be lifted")
	}
	if body.Max < 1 {
		return invalid("max must be at least 1: how many instances may be deleted at most")
	}
	err := a.Sweeper.Allow(body.Provider, body.Max)
	if errors.Is(err, ErrUnknownProvider) {
		return &problem{http.StatusNotFound, wire.UnknownProvider, err.Error()}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func showProviderSweep(p ProviderSweep) wire.ProviderSweep {
	return wire.ProviderSweep{
		Provider:  p.Provider,
		Error:     textOf(p.Err),
		Listed:    p.Listed,
		Braked:    p.Braked,
		Allowed:   p.Allowed,
		Instances: showEach(p.Instances, showInstanceSweep),
	}
}

func showInstanceSweep(i InstanceSweep) wire.InstanceSweep {
	return wire.InstanceSweep{
		ID:          i.ID,
		Incarnation: i.Incarnation,
		UID:         i.UID,
		Proxy:       i.Proxy,
		CreatedAt:   instant(i.Created),
		Action:      string(i.Action),
		Reason:      i.Reason,
		Error:       textOf(i.Err),
	}
}
