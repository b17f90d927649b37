package tracing

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// UnderParent makes a span of each request that belongs to a trace, and of no other: of those that keep a cache up to date
// there are many, and they are part of nothing that somebody waits for. Nothing of the trace goes to the server.
func UnderParent(base http.RoundTripper, spans trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(base,
		otelhttp.WithTracerProvider(spans),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsValid() }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return "kubernetes." + r.Method }),
	)
}
