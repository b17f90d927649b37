package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// notReadyRetry is how long a caller waits before it asks again a process that does not serve leases. Whoever takes over
// does so within seconds.
const notReadyRetry = 5 * time.Second

// problem is an error that knows its answer.
type problem struct {
	status  int
	code    string
	message string
}

func (p *problem) Error() string { return p.message }

// invalid is the problem of a request that cannot be understood.
func invalid(format string, args ...any) error {
	return &problem{http.StatusBadRequest, wire.InvalidRequest, fmt.Sprintf(format, args...)}
}

// NotOffered returns an error for a Backup or a Sweeper of what this fleet does not do: the request is answered with 501, and
// the message says what to do instead.
func NotOffered(message string) error {
	return &problem{http.StatusNotImplemented, wire.NotSupported, message}
}

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if none, ok := errors.AsType[*lease.NoMatch](err); ok {
		setRetryAfter(w, none.RetryAfter)
		writeJSON(w, http.StatusConflict, noMatch(none))
		return
	}
	p := a.problem(r, err)
	if p.code == wire.NotReady && w.Header().Get("Retry-After") == "" {
		setRetryAfter(w, notReadyRetry)
	}
	writeJSON(w, p.status, wire.Error{Code: p.code, Message: p.message})
}

// problem finds the answer to an error, and tells the log of one that is not shown. What fails in a process that is not ready
// fails for that.
func (a *api) problem(r *http.Request, err error) *problem {
	p := problemOf(err)
	if p.status == http.StatusInternalServerError {
		if why := a.Ready(r.Context()); why != nil {
			return &problem{http.StatusServiceUnavailable, wire.NotReady, "not ready: " + why.Error()}
		}
		a.Logger.ErrorContext(r.Context(), "request failed", "route", routeName(r.Pattern), "error", err)
	}
	return p
}

func noMatch(e *lease.NoMatch) wire.NoMatch {
	return wire.NoMatch{
		Error:      wire.Error{Code: wire.NoMatchFound, Message: sentence(e)},
		Considered: e.Considered,
		AtCapacity: e.AtCapacity,
		InCooldown: e.InCooldown,
		Unhealthy:  e.Unhealthy,
		Eligible:   e.Eligible,

		RetryAfterSeconds: wire.Seconds(e.RetryAfter),
	}
}

// problemOf finds the answer to an error. What it does not know is an internal error, and not shown: nobody can tell what
// it quotes.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	known := []struct {
		err    error
		status int
		code   string
	}{
		{lease.ErrUnknown, http.StatusNotFound, wire.UnknownLease},
		{lease.ErrProxyGone, http.StatusGone, wire.ProxyGone},
		{lease.ErrTTL, http.StatusBadRequest, wire.InvalidTTL},
		{lease.ErrInvalidResult, http.StatusBadRequest, wire.InvalidResult},
		{lease.ErrRequestMismatch, http.StatusUnprocessableEntity, wire.RequestMismatch},
		{lease.ErrNotSupported, http.StatusNotImplemented, wire.NotSupported},
		{lease.ErrNotReady, http.StatusServiceUnavailable, wire.NotReady},
		{proxy.ErrNotFound, http.StatusNotFound, wire.UnknownProxy},
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return &problem{k.status, k.code, sentence(err)}
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{http.StatusServiceUnavailable, wire.Timeout, "the request ended before it was done"}
	}
	return &problem{http.StatusInternalServerError, wire.Internal, "the server failed; its log says why"}
}

// sentence returns what an error says without the name of its package, which means nothing to whoever calls an API.
func sentence(err error) string { return strings.TrimPrefix(err.Error(), "lease: ") }

// maxMessage bounds what an answer quotes of what others wrote, in characters.
const maxMessage = 1024

// textOf returns what an error that is part of an answer says. It quotes no secret: providers promise that.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return clip(err.Error(), maxMessage)
}

// instant returns a moment as answers have it: in UTC, exact to the millisecond. None stays none.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// showEach returns what answers have of each of all. It is never null.
func showEach[T, S any](all []T, show func(T) S) []S {
	shown := make([]S, 0, len(all))
	for _, one := range all {
		shown = append(shown, show(one))
	}
	return shown
}

// setRetryAfter says when to try again, in whole seconds and never too early. 0 is not known.
func setRetryAfter(w http.ResponseWriter, d time.Duration) {
	if d > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(wire.Seconds(d), 10))
	}
}

// writeJSON answers with a document. URLs in it stay readable: it is no part of a web page.
func writeJSON(w http.ResponseWriter, status int, v any) { sendJSON(w, status, encode(v)) }

// encode returns a document as it is sent.
func encode(v any) []byte {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("answer cannot be encoded: %v", err))
	}
	return body.Bytes()
}

// sendJSON answers with a document that is encoded.
func sendJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
