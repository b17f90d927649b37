package gcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// Each request is a span under the call's, with no secret, and no header tells of it.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracers := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	cloud := gcptest.New(gcptest.Config{})
	url := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("traceparent") != "" {
			t.Error("a request has a trace header")
		}
		cloud.ServeHTTP(w, r)
	})
	p := opened(t, provider.Environment{Fleet: "f", TracerProvider: tracers}, url, nil)
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "a call")
	if _, err := p.Create(ctx, named("us-central1-a", "u")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.List(ctx); err != nil {
		t.Fatal(err)
	}
	parent.End()
	children := 0
	for _, s := range recorder.Ended() {
		if s.Parent().SpanID() == parent.SpanContext().SpanID() {
			children++
		}
		if text := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()); strings.Contains(text, "s3cret") || strings.Contains(text, "token-of") {
			t.Errorf("a span has a secret: %s", text)
		}
	}
	if children != 2 {
		t.Errorf("the call has %d spans below it, want one for the insert and one for the list", children)
	}
}
