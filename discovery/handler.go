package discovery

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// The patterns of routes that are treated differently.
const (
	healthzRoute = "GET /healthz"
	readyzRoute  = "GET /readyz"
	backupRoute  = "GET /v1/backup"
	planRoute    = "GET /v1/gc/plan"
)

// public says whether a route is for probes of the process: they know no token and would drown all other traces.
func public(route string) bool { return route == healthzRoute || route == readyzRoute }

// routeName is the name of a route in logs, metrics and traces: its pattern, without what tells the mux to match no more.
func routeName(route string) string { return cmp.Or(strings.TrimSuffix(route, "{$}"), "unmatched") }

// api is the handler.
type api struct {
	Config
	mux          *http.ServeMux
	pages        *pages
	lists, plans turns
}

// New makes a handler of the API. Its error names all that is wrong with the configuration.
func New(c Config) (http.Handler, error) {
	gate, gateErr := newGate(c.Token, c.AnyHost)
	if err := errors.Join(c.validate(), gateErr); err != nil {
		return nil, err
	}
	a := &api{
		Config: c.withDefaults(), mux: http.NewServeMux(), pages: newPages(c.Name),
		lists: make(turns, listTurns), plans: make(turns, planTurns),
	}
	a.mux.HandleFunc(healthzRoute, healthz)
	a.mux.HandleFunc(readyzRoute, a.answering(a.readyz))
	a.mux.HandleFunc("GET /{$}", a.showing(a.ledPage(a.fleetPage)))
	a.mux.HandleFunc("GET /proxies/{namespace}/{name}", a.showing(a.ledPage(withoutQuery(a.proxyPage))))
	for pattern, serve := range map[string]endpoint{
		"GET /v1/proxies":                                  a.listProxies,
		"GET /v1/proxies/{namespace}/{name}":               withoutQuery(a.getProxy),
		"POST /v1/proxies/{namespace}/{name}/skip-cleanup": withoutQuery(a.skipCleanup),
		"POST /v1/proxies/{namespace}/{name}/retry":        withoutQuery(a.retry),
		"GET /v1/proxies/{namespace}/{name}/explain":       a.led(explainTimeout, withoutQuery(a.explain)),
		"POST /v1/leases":                                  a.led(0, withoutQuery(a.acquire)),
		"POST /v1/leases/{id}/renew":                       a.led(0, withoutQuery(a.renew)),
		"POST /v1/leases/{id}/report":                      a.led(0, withoutQuery(a.report)),
		"DELETE /v1/leases/{id}":                           a.led(0, withoutQuery(a.release)),
		"GET /v1/providers":                                a.led(0, withoutQuery(a.listProviders)),
		planRoute:                                          a.led(sweepTimeout, withoutQuery(a.planSweep)),
		"POST /v1/gc/sweep":                                a.led(sweepTimeout, withoutQuery(a.sweep)),
		"POST /v1/gc/allow":                                a.led(0, withoutQuery(a.allowSweep)),
		backupRoute:                                        withoutQuery(a.backup),
	} {
		a.mux.HandleFunc(pattern, a.answering(serve))
	}
	// The outermost layer stands first.
	return a.traced(a.recovered(a.logged(bounded(gate.guarded(a.routed))))), nil
}

// endpoint serves one route. It answers, or returns an error and has written nothing.
type endpoint func(w http.ResponseWriter, r *http.Request) error

func (a *api) answering(serve endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			a.fail(w, r, err)
		}
	}
}

// withoutQuery refuses every query parameter: one that has no effect is a misunderstanding.
func withoutQuery(serve endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := readQuery(r, func(string) bool { return false }); err != nil {
			return err
		}
		return serve(w, r)
	}
}

// routed serves what the patterns match. What they do not match is told in JSON, which the mux does not do by itself.
func (a *api) routed(w *response, r *http.Request) {
	if r.Pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	unmatched, _ := a.mux.Handler(r)
	plain := headersOnly{}
	unmatched.ServeHTTP(plain, r)
	if allow := plain.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		a.fail(w, r, &problem{http.StatusMethodNotAllowed, wire.MethodNotAllowed, "this path takes " + allow + " only"})
		return
	}
	a.fail(w, r, &problem{http.StatusNotFound, wire.NotFound, "the API has no such path"})
}

// headersOnly takes an answer and keeps its headers.
type headersOnly http.Header

func (h headersOnly) Header() http.Header         { return http.Header(h) }
func (h headersOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h headersOnly) WriteHeader(int)             {}

// healthz says that the process runs.
func healthz(w http.ResponseWriter, _ *http.Request) { writeOK(w) }

// readyz says whether it serves.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := a.ready(w, r); err != nil {
		return err
	}
	writeOK(w)
	return nil
}

// ready returns the answer of a process that cannot serve yet, and nil if it can.
func (a *api) ready(w http.ResponseWriter, r *http.Request) error {
	err := a.Ready(r.Context())
	if err == nil {
		return nil
	}
	setRetryAfter(w, time.Second)
	return &problem{http.StatusServiceUnavailable, wire.NotReady, "not ready: " + err.Error()}
}

func writeOK(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}
