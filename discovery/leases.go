package discovery

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/lease"
)

func (a *api) acquire(w http.ResponseWriter, r *http.Request) error {
	var body wire.LeaseRequest
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := checkLeaseRequest(body); err != nil {
		return err
	}
	if err := a.ready(w, r); err != nil {
		return err
	}
	request := lease.Request{
		ID:       body.RequestID,
		Selector: body.Selector,
		Target:   body.Target,
		TTL:      wire.Duration(body.TTLSeconds),
		Wait:     wire.Duration(body.WaitSeconds),
		Session:  body.Session,
		Count:    body.Count,
	}
	ask := a.Leases.Acquire
	if request.Wait > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(request.Wait + answerTimeout))
		ask = a.await
	}
	grant, err := ask(r.Context(), request)
	if errors.Is(err, errEnding) {
		setRetryAfter(w, notReadyRetry)
		return errEnding
	}
	if errors.Is(err, lease.ErrNotSupported) {
		return notSupported(body, err)
	}
	if err != nil {
		return err
	}
	answer, err := showGrant(grant)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

// await acquires for a request that may wait, which is told at once when the process ends.
func (a *api) await(ctx context.Context, r lease.Request) (lease.Grant, error) {
	running, stop := a.whileRunning(ctx)
	defer stop()
	grant, err := a.Leases.Acquire(running, r)
	if err != nil && errors.Is(context.Cause(running), errEnding) {
		return lease.Grant{}, errEnding
	}
	return grant, err
}

// The limits of what the fleet remembers of a request. Those of a selector are those of a proxy's attributes.
const (
	maxText          = 256 // bytes
	maxSelector      = 64
	maxSelectorKey   = 63  // characters
	maxSelectorValue = 256 // characters

	// maxWait is how long a request may wait, in seconds: connections that say nothing for longer are cut by many a gateway.
	maxWait = 60
)

// checkLeaseRequest returns what is wrong with a request, as far as that is not for the lease store to say.
func checkLeaseRequest(r wire.LeaseRequest) error {
	for _, field := range []struct{ name, value string }{{"target", r.Target}, {"requestID", r.RequestID}, {"session", r.Session}} {
		if err := checkText(field.name, field.value); err != nil {
			return err
		}
	}
	if r.Count < 0 {
		return invalid("count must be at least 1, not %d", r.Count)
	}
	if r.WaitSeconds < 0 || r.WaitSeconds > maxWait {
		return invalid("waitSeconds must be 0 to %d, not %d", maxWait, r.WaitSeconds)
	}
	return checkSelector(r.Selector)
}

func checkText(field, s string) error {
	if len(s) > maxText {
		return invalid("%s must be at most %d bytes long, not %d", field, maxText, len(s))
	}
	return nil
}

func checkSelector(s wire.Selector) error {
	if len(s) > maxSelector {
		return invalid("selector must have at most %d attributes, not %d", maxSelector, len(s))
	}
	for k, v := range s {
		if utf8.RuneCountInString(k) > maxSelectorKey || utf8.RuneCountInString(v) > maxSelectorValue {
			return invalid("selector must have keys of at most %d characters and values of at most %d", maxSelectorKey, maxSelectorValue)
		}
	}
	return nil
}

// notSupported names what a request asks for beyond one lease at once, where the lease store cannot do all of it.
func notSupported(r wire.LeaseRequest, err error) error {
	var asked []string
	if r.Session != "" {
		asked = append(asked, "session")
	}
	if r.Count > 1 {
		asked = append(asked, "count above 1")
	}
	if r.WaitSeconds > 0 {
		asked = append(asked, "waitSeconds")
	}
	if len(asked) == 0 {
		return err
	}
	return NotOffered(sentence(lease.ErrNotSupported) + ": " + strings.Join(asked, ", "))
}

func (a *api) renew(w http.ResponseWriter, r *http.Request) error {
	var body wire.RenewRequest
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := a.ready(w, r); err != nil {
		return err
	}
	l, err := a.Leases.Renew(r.Context(), r.PathValue("id"), wire.Duration(body.TTLSeconds))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, showLease(l))
	return nil
}

func (a *api) report(w http.ResponseWriter, r *http.Request) error {
	var body wire.ReportRequest
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := checkText("target", body.Target); err != nil {
		return err
	}
	if err := a.ready(w, r); err != nil {
		return err
	}
	report := lease.Report{Outcome: lease.Outcome(body.Result), Target: body.Target}
	err := a.Leases.Report(r.Context(), r.PathValue("id"), report)
	if errors.Is(err, lease.ErrInvalidResult) {
		return &problem{http.StatusBadRequest, wire.InvalidResult, "result must be ok, rate_limited, banned or failed"}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) release(w http.ResponseWriter, r *http.Request) error {
	if err := a.Leases.Release(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func showGrant(g lease.Grant) (wire.Grant, error) {
	if len(g.Leases) == 0 {
		return wire.Grant{}, errors.New("the lease store granted no lease and returned no error")
	}
	shown := wire.Grant{Lease: showLease(g.Leases[0]), Moved: g.Moved}
	if len(g.Leases) > 1 {
		for _, l := range g.Leases {
			shown.Leases = append(shown.Leases, showLease(l))
		}
	}
	return shown, nil
}

// showLease returns a lease with the credentials of its proxy, for the one who holds it. Nothing else of the API has them.
func showLease(l lease.Lease) wire.Lease {
	p := l.Proxy
	if p.Attributes == nil {
		p.Attributes = map[string]string{}
	}
	return wire.Lease{
		LeaseID: l.ID,
		Proxy: wire.Endpoint{
			URL:        p.RevealURL().String(),
			Host:       p.Host,
			Port:       p.Port,
			Name:       p.Name,
			Namespace:  p.Namespace,
			Attributes: p.Attributes,
		},
		Target:     l.Target,
		ExpiresAt:  l.Expires.UTC().Truncate(time.Millisecond),
		TTLSeconds: int64(l.TTL / time.Second),
	}
}
