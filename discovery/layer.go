package discovery

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// maxBody is how long the body of a request may be, in bytes.
const maxBody = 64 << 10

// layer serves a request that the tracing layer has seen, so that r.Pattern is the route, or empty for none. A layer is
// made by a function that takes the next one.
type layer func(w *response, r *http.Request)

// response notes what is answered.
type response struct {
	http.ResponseWriter
	code int // 0: nothing was sent yet
}

// WriteHeader notes and sends the first final status.
func (w *response) WriteHeader(code int) {
	if w.code == 0 && code >= 200 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(b []byte) (int, error) {
	w.code = cmp.Or(w.code, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// status is what the caller sees: 200 where a handler did not say.
func (w *response) status() int { return cmp.Or(w.code, http.StatusOK) }

// Unwrap lets http.ResponseController find the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// recovered turns a panic into an answer. Where part of an answer was sent already, the connection is cut, so that nobody
// takes the part for the whole.
func (a *api) recovered(next layer) layer {
	return func(w *response, r *http.Request) {
		defer func() {
			v := recover()
			switch {
			case v == nil:
				return
			case v == http.ErrAbortHandler: //nolint:errorlint // net/http compares the same way
				panic(v)
			}
			a.Logger.ErrorContext(r.Context(), "panic while serving a request", "route", routeName(r.Pattern), "panic", v, "stack", string(debug.Stack()))
			if w.code != 0 {
				panic(http.ErrAbortHandler)
			}
			writeJSON(w, http.StatusInternalServerError, wire.Error{Code: wire.Internal, Message: "the server failed; its log says why"})
		}()
		next(w, r)
	}
}

// logged tells the log and the recorder of each request. It names the route, not the path: that may hold the ID of a lease,
// and whoever knows that may end it.
func (a *api) logged(next layer) layer {
	return func(w *response, r *http.Request) {
		start := time.Now()
		code := http.StatusInternalServerError // of a panic, which is answered further out
		defer func() {
			took := time.Since(start)
			route := routeName(r.Pattern)
			a.Recorder.Requested(route, code, took)
			if a.Logger.Enabled(r.Context(), slog.LevelDebug) { // else the line is not even made
				a.Logger.DebugContext(r.Context(), "request", "method", r.Method, "route", route, "status", code, "took", took)
			}
		}()
		next(w, r)
		code = w.status()
	}
}

// bounded limits what is read of a body, and keeps answers out of caches: some hold credentials.
func bounded(next layer) layer {
	return func(w *response, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}
}
