package leasehttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Party is who failed.
type Party string

const (
	// Proxy failed: it could not be reached, did not let the caller in, refused the target or hung up.
	Proxy Party = "proxy"
	// Target failed: the proxy could not reach it, its certificate is bad, it did not answer in time or broke off. Behind a
	// proxy the two cannot always be told apart; this is where the proxy has done what can be seen of its work.
	Target Party = "target"
	// Client failed: the request cannot be sent, its body could not be read, or its context has ended.
	Client Party = "client"
	// Fleet had no proxy for the request. The error has the store's in its tree, such as [*lease.NoMatch].
	Fleet Party = "fleet"
)

// Error is why there is no response, or no more of its body.
type Error struct {
	By Party
	// Doing is what was being done, for people.
	Doing string
	// Proxy is the name of the last proxy that was tried, as namespace/name. Empty where there was none.
	Proxy string
	// Target is what the proxy was leased for.
	Target string
	// Attempts is how many proxies were tried, this one included.
	Attempts int
	// Status is the HTTP status by which the proxy refused. 0 where it did not.
	Status int
	// Err is the cause.
	Err error
}

// Error says who failed at what, and why.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "leasehttp: the %s failed, %s", e.By, e.Doing)
	if e.Proxy != "" {
		fmt.Fprintf(&b, " through %s", e.Proxy)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (attempt %d)", e.Attempts)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout says whether something took too long, as in [net.Error].
func (e *Error) Timeout() bool { return timedOut(e.Err) }

// refusal is a proxy's answer that is not the target's.
type refusal struct {
	status int
	reason string
}

func (e *refusal) Error() string { return "the proxy answered " + e.reason }

// by says who failed: a gateway says by a status from 500 on that it is the target which could not be reached.
func (e *refusal) by() Party {
	if e.status >= http.StatusInternalServerError {
		return Target
	}
	return Proxy
}

// saysError says whether a response tells that a proxy has made it because it could not do its work: in a field of RFC 9209,
// or as Squid and tinyproxy do.
func saysError(resp *http.Response) bool {
	h := resp.Header
	return h.Get("X-Squid-Error") != "" || strings.Contains(h.Get("Proxy-Status"), "error=") ||
		resp.StatusCode >= http.StatusBadRequest && strings.HasPrefix(h.Get("Server"), "tinyproxy/")
}

// silence is the cause of an attempt that ended because nothing came.
type silence struct{ time.Duration }

func (s silence) Error() string { return fmt.Sprintf("nothing came for %v", s.Duration) }
func (s silence) Timeout() bool { return true }

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
