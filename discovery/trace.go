package discovery

import (
	"net/http"
	"path"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traced finds the route of a request and serves it in a span of that name, below the caller's span if there is one.
func (a *api) traced(next layer) http.Handler {
	tracer := a.TracerProvider.Tracer("github.com/proxyfleet/fleet/discovery")
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw}
		route := a.route(r)
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		if !public(route) {
			var span trace.Span
			ctx, span = tracer.Start(ctx, routeName(route), trace.WithSpanKind(trace.SpanKindServer))
			defer func() { finish(span, r.Method, route, w.status()) }()
		}
		routed := r.WithContext(ctx)
		routed.Pattern = route
		next(w, routed)
	})
}

// route returns the pattern that a request matches, or none. The mux also matches what it would redirect to another path:
// the API has one path for each thing, and redirects nobody.
func (a *api) route(r *http.Request) string {
	if r.URL.EscapedPath() != path.Clean("/"+r.URL.EscapedPath()) {
		return ""
	}
	_, route := a.mux.Handler(r)
	return route
}

// finish ends the span of a request.
func finish(span trace.Span, method, route string, code int) {
	span.SetAttributes(attribute.String("http.request.method", method), attribute.Int("http.response.status_code", code))
	if _, template, ok := strings.Cut(routeName(route), " "); ok {
		span.SetAttributes(attribute.String("http.route", template))
	}
	if code >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(code))
	}
	span.End()
}
