package discovery

import (
	"errors"
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/lease"
)

func (a *api) acquire(w http.ResponseWriter, r *http.Request) error {
	var body wire.LeaseRequest
	if err := readBody(r, &body); err != nil {
		return err
	}
	if body.Count < 0 {
		return invalid("count must be at least 1, not %d", body.Count)
	}
	if body.WaitSeconds < 0 {
		return invalid("waitSeconds must not be negative, not %d", body.WaitSeconds)
	}
	grant, err := a.Leases.Acquire(r.Context(), lease.Request{
		ID:       body.RequestID,
		Selector: body.Selector,
		Target:   body.Target,
		TTL:      wire.Duration(body.TTLSeconds),
		Wait:     wire.Duration(body.WaitSeconds),
		Session:  body.Session,
		Count:    body.Count,
	})
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

func (a *api) renew(w http.ResponseWriter, r *http.Request) error {
	var body wire.RenewRequest
	if err := readBody(r, &body); err != nil {
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
	report := lease.Report{Outcome: lease.Outcome(body.Result), Target: body.Target}
	if err := a.Leases.Report(r.Context(), r.PathValue("id"), report); err != nil {
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
