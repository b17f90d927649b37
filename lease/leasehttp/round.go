package leasehttp

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// round is one request on its way through one proxy or several.
type round struct {
	t        *Transport
	request  *http.Request
	target   string
	session  string
	patience time.Duration // how much longer it may wait for proxies
	tried    []string      // the proxies that it was sent through
}

// run sends the request until what came back is what the caller gets.
func (n *round) run() (*http.Response, error) {
	leased, err := n.another()
	if err != nil {
		closeBody(n.request)
		return nil, n.unleased(err)
	}
	body := n.request.Body
	for {
		a := newAttempt(n, leased)
		resp, v, err := a.make(body)
		n.tried = append(n.tried, nameOf(leased.Proxy))
		if !v.Retry || len(n.tried) > n.t.cfg.Retries || !n.repeatable(a) {
			return resp, err
		}
		if body, leased, err = n.next(err); err != nil {
			return n.settle(resp, err)
		}
		n.t.cfg.Logger.Debug("A request is sent again", "target", n.target, "proxy", n.tried[len(n.tried)-1], "outcome", v.Outcome, "next", nameOf(leased.Proxy))
		if resp != nil {
			_ = resp.Body.Close()
		}
	}
}

// next returns what another attempt needs. If there is none, the error is the one before, if any, or says why.
func (n *round) next(before error) (io.ReadCloser, lease.Lease, error) {
	body, err := n.bodyAgain()
	if err != nil {
		return nil, lease.Lease{}, errors.Join(before, err)
	}
	leased, err := n.another()
	if err == nil {
		return body, leased, nil
	}
	if body != nil {
		_ = body.Close()
	}
	n.t.cfg.Logger.Debug("A request is not sent again", "target", n.target, "tried", len(n.tried), "error", err)
	if before == nil {
		before = err
	}
	return nil, lease.Lease{}, before
}

// settle returns a response for want of a better one. Nobody takes it who has gone.
func (n *round) settle(resp *http.Response, err error) (*http.Response, error) {
	if resp == nil {
		return nil, err
	}
	if gone := n.request.Context().Err(); gone != nil {
		_ = resp.Body.Close()
		return nil, n.unleased(gone)
	}
	return resp, nil
}

// repeatable says whether the request may be sent once more after an attempt.
func (n *round) repeatable(a *attempt) bool {
	r := n.request
	rewinds := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	return rewinds && r.Context().Err() == nil && (!a.sent() || idempotent(r))
}

func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

func (n *round) bodyAgain() (io.ReadCloser, error) {
	if n.request.Body == nil || n.request.Body == http.NoBody {
		return n.request.Body, nil
	}
	return n.request.GetBody()
}

// unleased is the error of a request for which there is no lease.
func (n *round) unleased(err error) *Error {
	by := Fleet
	if n.request.Context().Err() != nil {
		by = Client
	}
	return &Error{By: by, Doing: "leasing a proxy", Target: n.target, Attempts: len(n.tried), Err: err}
}

// another leases a proxy that the request was not sent through yet. One that was may still be the first of the store's
// order, so it asks for two then, and so on: of as many as were tried and one more, one is another.
func (n *round) another() (lease.Lease, error) {
	for count := 1; ; count++ {
		leases, err := n.ask(count)
		if err != nil {
			return lease.Lease{}, err
		}
		chosen := slices.IndexFunc(leases, func(l lease.Lease) bool { return !slices.Contains(n.tried, nameOf(l.Proxy)) })
		for i, l := range leases {
			if i != chosen {
				n.t.hold(n.request, l).end("") // it was not used
			}
		}
		if chosen >= 0 {
			return leases[chosen], nil
		}
		if len(leases) < count || count > len(n.tried) {
			return lease.Lease{}, errors.New("the store grants the same proxy twice")
		}
	}
}

const (
	// longestAsk bounds how long a store is let wait at a time: a server bounds it too, and connections that say nothing
	// are cut by many a gateway.
	longestAsk = 30 * time.Second
	// unknownPause is how long to wait where nobody says.
	unknownPause = time.Second
)

// ask acquires so many leases, and waits for them as long as the round may. More than one is not waited for at first,
// because the answer says whether there is anything to wait for.
func (n *round) ask(count int) ([]lease.Lease, error) {
	ctx := n.request.Context()
	wait := min(n.patience, longestAsk)
	if count > 1 {
		wait = 0
	}
	for {
		began := time.Now()
		grant, err := n.t.cfg.Store.Acquire(ctx, lease.Request{
			Selector: n.t.cfg.Selector, Target: n.target, TTL: n.t.cfg.TTL, Wait: wait, Session: n.session, Count: count,
		})
		if err == nil {
			return grant.Leases, nil
		}
		waited := time.Since(began)
		n.patience -= waited
		pause, again := pauseOf(err, count, waited >= wait)
		if !again || pause >= n.patience || ctx.Err() != nil {
			return nil, err
		}
		n.patience -= pause
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		wait = min(n.patience, longestAsk)
	}
}

// pauseOf says whether to ask again after an error of the store, and how much later. A store that has waited itself, for as
// long as it was told to, is asked again at once.
func pauseOf(err error, count int, waited bool) (pause time.Duration, again bool) {
	if none, ok := errors.AsType[*lease.NoMatch](err); ok {
		switch {
		case count > 1 && none.AtCapacity+none.Eligible < count:
			return 0, false // there are not so many, however long one waits
		case waited:
			return 0, true
		}
		return cmp.Or(none.RetryAfter, unknownPause), true
	}
	_, unreachable := errors.AsType[net.Error](err)
	return unknownPause, unreachable || errors.Is(err, lease.ErrNotReady)
}
