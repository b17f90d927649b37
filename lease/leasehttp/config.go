package leasehttp

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// Config is what a [Transport] is made of. Only Store is required.
type Config struct {
	// Store grants the leases: a [lease.Memory], or a client of a fleet's API.
	Store lease.Store
	// Target names what a request is for: proxies are kept from a target that has banned them. Defaults to [Domain].
	Target func(*http.Request) string
	// Selector lists the attributes that a proxy must have. Defaults to none.
	Selector map[string]string
	// Session names a series of requests that should go through one proxy for as long as that is possible, such as those
	// of one host or of one cookie jar. An empty name is no session. Defaults to no sessions.
	Session func(*http.Request) string
	// TTL is for how long a proxy is leased at a time. What takes longer renews. Defaults to what the store is configured
	// with.
	TTL time.Duration
	// Wait is how long a request may wait for proxies, over all its attempts. Defaults to 1 minute; below zero it does not
	// wait.
	Wait time.Duration
	// Retries is how often a request may be sent again, each time through another proxy. Defaults to 3; below zero never.
	Retries int
	// Timeout is how long nothing may come: from the moment at which a proxy is leased to the header of the response, and
	// in each read of the body. Defaults to 30 seconds.
	Timeout time.Duration
	// Buffer is how many bytes of a body are read before the caller gets the response. A response that breaks off within
	// them is asked for again like one that never came, the classifier sees them, and the lease of what is not longer ends
	// before the caller has begun to read. Defaults to 1 MiB; below zero nothing, for bodies that trickle without an end.
	Buffer int
	// Classify says what came back. Defaults to that of [Signs] without any.
	Classify Classifier
	// Base has the settings of connections: certificates, headers for the proxy, how to dial, HTTP/2 and so on. Each
	// attempt uses a clone, which has no TLS sessions in common with another; Base itself is not used, nor is its Proxy.
	// Defaults to 10 seconds for dialling and for each TLS handshake, and HTTP/2 where the target speaks it.
	Base *http.Transport
	// Logger hears of attempts that failed, at level debug, and of leases that the store does not take back. Defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Target == nil {
		c.Target = Domain
	}
	if c.Classify == nil {
		c.Classify = Signs{}.Classify
	}
	if c.Base == nil {
		c.Base = &http.Transport{TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true}
	}
	if c.Base.DialContext == nil {
		c.Base = c.Base.Clone()
		c.Base.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Wait = max(cmp.Or(c.Wait, time.Minute), 0)
	c.Retries = max(cmp.Or(c.Retries, 3), 0)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Buffer = max(cmp.Or(c.Buffer, 1<<20), 0)
	return c
}

// validate returns all problems of a configuration as it was given.
func (c Config) validate() error {
	var problems []error
	if c.Store == nil {
		problems = append(problems, errors.New("leasehttp: Store is required"))
	}
	if c.TTL < 0 {
		problems = append(problems, errors.New("leasehttp: TTL must not be negative"))
	}
	if c.Timeout < 0 {
		problems = append(problems, errors.New("leasehttp: Timeout must not be negative"))
	}
	if b := c.Base; b != nil && (b.DialTLSContext != nil || b.DialTLS != nil || b.Dial != nil) { //nolint:staticcheck // deprecated, and here refused
		problems = append(problems, errors.New("leasehttp: Base must dial by DialContext, and leave TLS to net/http"))
	}
	return errors.Join(problems...)
}
