package leasehttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// callTimeout bounds each call to the store about a lease that is held.
const callTimeout = 10 * time.Second

// held is a lease in use. Each time a third of its TTL has passed it is renewed, if it was used since the time before: a body
// that was forgotten does not hold a proxy for ever.
type held struct {
	t    *Transport
	ctx  context.Context // ends with the lease
	stop context.CancelFunc

	mu      sync.Mutex
	lease   lease.Lease
	expires time.Time // at the latest, by this process's clock
	timer   *time.Timer
	users   int  // how many use it now
	used    bool // since the timer last fired
	ended   bool
	renewal sync.WaitGroup // one that is under way
}

// hold takes charge of a lease that was granted for a request.
func (t *Transport) hold(r *http.Request, l lease.Lease) *held {
	h := &held{t: t, lease: l}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(r.Context()))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prolong(l)
	return h
}

// prolong notes for how long the lease lasts from now on at most: clocks of others are not gone by, and a grant that had to be
// asked for again is older than its answer. If less is left, the store refuses a renewal that comes too late.
func (h *held) prolong(l lease.Lease) {
	h.lease.TTL, h.expires = l.TTL, time.Now().Add(l.TTL)
	h.wind()
}

// wind sets the timer for as long as there is something to renew.
func (h *held) wind() {
	if h.ended || !time.Now().Before(h.expires) {
		return
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(h.lease.TTL/3, h.renew)
	} else {
		h.timer.Reset(h.lease.TTL / 3)
	}
}

// use says that the lease is used until the function that it returns is called.
func (h *held) use() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
	h.used = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.users--
		h.used = true
	}
}

// renew is called by the timer.
func (h *held) renew() {
	if !h.wanted() {
		return
	}
	defer h.renewal.Done()
	ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
	defer cancel()
	renewed, err := h.t.cfg.Store.Renew(ctx, h.lease.ID, 0)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
	case err == nil:
		h.prolong(renewed)
	case errors.Is(err, lease.ErrUnknown), errors.Is(err, lease.ErrProxyGone):
		h.complain("renew", err) // the response may still come to its end
	default:
		h.complain("renew", err)
		h.wind()
	}
}

// wanted says whether the lease is to be renewed, and counts that as a renewal under way.
func (h *held) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	used := h.used
	h.used = h.users > 0
	if !used {
		h.wind()
		return false
	}
	h.renewal.Add(1)
	return true
}

// end reports what came back, if there is something to say, and releases the lease.
func (h *held) end(o lease.Outcome) {
	h.mu.Lock()
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	h.stop()
	h.renewal.Wait()
	h.report(o)
	h.call("release", func(ctx context.Context) error { return h.t.cfg.Store.Release(ctx, h.lease.ID) })
}

// report tells the store what came back, if there is something to say.
func (h *held) report(o lease.Outcome) {
	if o == "" {
		return
	}
	h.call("report", func(ctx context.Context) error {
		return h.t.cfg.Store.Report(ctx, h.lease.ID, lease.Report{Outcome: o})
	})
}

// call calls the store on behalf of a request that may have been given up: what it has to say is true all the same.
func (h *held) call(doing string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), callTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		h.complain(doing, err)
	}
}

func (h *held) complain(doing string, err error) {
	h.t.cfg.Logger.Warn("The store does not take it", "call", doing, "proxy", nameOf(h.lease.Proxy), "target", h.lease.Target, "error", err)
}
