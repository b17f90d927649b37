// Package leasehttp lets an HTTP client send each request through a proxy that is leased for it.
//
// A [Transport] is an [http.RoundTripper] over any [lease.Store]: give it to an [http.Client], or to whatever takes one. It
// leases a proxy for the target of a request, sends the request over a connection of its own, tells the store what came
// back, and sends it through another proxy where that may help. The lease ends with the body of the response.
package leasehttp

import (
	"errors"
	"net/http"
)

// Transport is an [http.RoundTripper] that leases a proxy for each request. It may be used by many goroutines at once, and
// has no connection and no goroutine beyond the bodies of its responses: each of them must be read to its end or closed.
//
// A request has a connection to the proxy that nothing else uses, before or after: what a target may tie together is never
// more than what went through one lease. The lease lasts until the whole response is there, or the body is closed, and is
// renewed while the body is being read. The redirects that a client follows are requests of their own.
//
// What came back is reported by [Config.Classify]. A request that may be repeated is sent through another proxy, at most
// [Config.Retries] times: one that never left may always be; one that did, if its method is idempotent (GET, HEAD, OPTIONS,
// TRACE, PUT and DELETE, or any with the header Idempotency-Key). A body is sent again if the request has GetBody, which
// [http.NewRequest] sees to where the body is in memory, and never otherwise. When there are no more attempts, or no other
// proxy comes free, the caller gets what came back last.
//
// The errors are of type [*Error] and say who failed.
type Transport struct{ cfg Config }

// New makes a transport. The error names everything that is wrong with the configuration.
func New(c Config) (*Transport, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Transport{c.withDefaults()}, nil
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil || r.URL.Host == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
		closeBody(r)
		return nil, &Error{By: Client, Doing: "looking at the request", Err: errors.New("its URL is not an absolute one of http or https")}
	}
	n := &round{t: t, request: r, target: t.cfg.Target(r), patience: t.cfg.Wait}
	if t.cfg.Session != nil {
		n.session = t.cfg.Session(r)
	}
	return n.run()
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
