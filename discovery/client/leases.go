package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

const (
	// longestWait is how long a server lets a request wait at once.
	longestWait = time.Minute
	// shortestPause is the least time between two requests of one that waits, should the server not let it wait.
	shortestPause = time.Second
)

// Acquire asks for leases. A request without an ID gets a random one, so that it can be repeated when its answer is lost.
// TTL and Wait are rounded up to whole seconds. A request that waits for longer than a minute is sent again each minute, and is
// the last in its queue then. It also waits for a server that is not ready, but no longer than Wait in all.
func (c *Client) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	r.ID = cmp.Or(r.ID, rand.Text())
	for end := time.Now().Add(max(r.Wait, 0)); ; {
		begun := time.Now()
		grant, err := c.acquire(ctx, r)
		if err == nil {
			return grant, nil
		}
		var pause time.Duration
		none, isNone := errors.AsType[*lease.NoMatch](err)
		answered, _ := errors.AsType[*APIError](err)
		switch {
		case isNone && time.Since(begun) < shortestPause:
			pause = max(min(none.RetryAfter, longestWait), shortestPause)
		case isNone:
		case answered != nil && answered.notReady():
			pause = answered.RetryAfter
		default:
			return lease.Grant{}, err
		}
		left := time.Until(end) - pause
		if left <= 0 || !sleep(ctx, pause) {
			return lease.Grant{}, err
		}
		r.Wait = left
	}
}

// acquire asks once, and waits as long as a server allows.
func (c *Client) acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	wait := min(r.Wait, longestWait)
	var granted wire.Grant
	err := c.do(ctx, call{
		method: http.MethodPost,
		path:   "/v1/leases",
		body: wire.LeaseRequest{
			Selector:    r.Selector,
			Target:      r.Target,
			TTLSeconds:  wire.Seconds(r.TTL),
			RequestID:   r.ID,
			Session:     r.Session,
			Count:       r.Count,
			WaitSeconds: wire.Seconds(wait),
		},
		into:  &granted,
		wait:  max(wait, 0),
		hasty: true,
	})
	if err != nil {
		return lease.Grant{}, err
	}
	received := granted.Leases
	if len(received) == 0 {
		received = []wire.Lease{granted.Lease}
	}
	grant := lease.Grant{Moved: granted.Moved}
	for _, w := range received {
		l, err := read(w)
		if err != nil {
			return lease.Grant{}, err
		}
		grant.Leases = append(grant.Leases, l)
	}
	return grant, nil
}

// Renew lets a lease last for ttl from now on, rounded up to whole seconds.
func (c *Client) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	if id == "" {
		return lease.Lease{}, lease.ErrUnknown
	}
	var renewed wire.Lease
	err := c.do(ctx, call{
		method: http.MethodPost,
		path:   "/v1/leases/" + segment(id) + "/renew",
		body:   wire.RenewRequest{TTLSeconds: wire.Seconds(ttl)},
		into:   &renewed,
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return read(renewed)
}

// Release ends a lease.
func (c *Client) Release(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/leases/" + segment(id)})
}

// Report tells what came back from a target.
func (c *Client) Report(ctx context.Context, id string, r lease.Report) error {
	if id == "" {
		return lease.ErrUnknown
	}
	return c.do(ctx, call{
		method: http.MethodPost,
		path:   "/v1/leases/" + segment(id) + "/report",
		body:   wire.ReportRequest{Result: string(r.Outcome), Target: r.Target},
	})
}

// read turns a lease that was received into one that can be used.
func read(w wire.Lease) (lease.Lease, error) {
	u, err := url.Parse(w.Proxy.URL)
	if err != nil || u.Host == "" || w.LeaseID == "" {
		// The error of url.Parse quotes the URL, and with it a password.
		return lease.Lease{}, errors.New("the answer holds no lease with the URL of a proxy")
	}
	l := lease.Lease{
		ID: w.LeaseID,
		Proxy: lease.Endpoint{
			Namespace:  w.Proxy.Namespace,
			Name:       w.Proxy.Name,
			Scheme:     u.Scheme,
			Host:       w.Proxy.Host,
			Port:       w.Proxy.Port,
			Attributes: w.Proxy.Attributes,
		},
		Target:  w.Target,
		Expires: w.ExpiresAt,
		TTL:     wire.Duration(w.TTLSeconds),
	}
	if u.User != nil {
		password, _ := u.User.Password()
		l.Proxy.User, l.Proxy.Password = secret.New(u.User.Username()), secret.New(password)
	}
	return l, nil
}
