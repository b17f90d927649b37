package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/lease"
)

// APIError is what a server answered instead of what it was asked for.
type APIError struct {
	// Status is the HTTP status.
	Status int
	// Code is the stable word for the error. Empty where somebody other than the fleet answered, such as a gateway.
	Code string
	// Message is for people.
	Message string
	// RetryAfter is how long to wait before another attempt. 0 is not known.
	RetryAfter time.Duration

	err error // what the code stands for, or nil
}

// Error says what the server said.
func (e *APIError) Error() string {
	return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, cmp.Or(e.Code, http.StatusText(e.Status)))
}

// Unwrap returns the error of package lease that this one stands for, if any.
func (e *APIError) Unwrap() error { return e.err }

// notReady says whether the server can do nothing yet, and has said when to ask again.
func (e *APIError) notReady() bool {
	return e.Status == http.StatusServiceUnavailable && e.RetryAfter > 0
}

// apiError makes an error of an answer.
func apiError(resp *http.Response, body []byte) *APIError {
	e := &APIError{Status: resp.StatusCode}
	if s, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64); err == nil && s > 0 {
		e.RetryAfter = wire.Duration(s)
	}
	var said wire.NoMatch
	if err := json.Unmarshal(body, &said); err != nil || said.Code == "" {
		e.Message = "the server answered with an error that it does not explain"
		return e
	}
	e.Code, e.Message = said.Code, said.Message
	e.err = e.meaning(said)
	return e
}

// meaning returns the error of package lease that a code stands for, or nil.
func (e *APIError) meaning(said wire.NoMatch) error {
	switch said.Code {
	case wire.NoMatchFound:
		return &lease.NoMatch{
			Considered: said.Considered,
			Unhealthy:  said.Unhealthy,
			AtCapacity: said.AtCapacity,
			InCooldown: said.InCooldown,
			Eligible:   said.Eligible,
			RetryAfter: e.RetryAfter,
		}
	case wire.UnknownLease:
		return lease.ErrUnknown
	case wire.ProxyGone:
		return lease.ErrProxyGone
	case wire.InvalidTTL:
		return lease.ErrTTL
	case wire.InvalidResult:
		return lease.ErrInvalidResult
	case wire.RequestMismatch:
		return lease.ErrRequestMismatch
	case wire.NotSupported:
		return lease.ErrNotSupported
	case wire.NotReady:
		return lease.ErrNotReady
	}
	return nil
}
