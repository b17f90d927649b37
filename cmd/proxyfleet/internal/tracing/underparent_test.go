package tracing_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/tracing"
)

// Requests that belong to nothing make no spans, and no server hears of a trace.
func TestUnderParent(t *testing.T) {
	var headers []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header.Get("Traceparent"))
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	ended := tracetest.NewSpanRecorder()
	spans := sdk.NewTracerProvider(sdk.WithSpanProcessor(ended))
	c := &http.Client{Transport: tracing.UnderParent(&http.Transport{DisableKeepAlives: true}, spans)}
	ask := func(r *http.Request) {
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	r := httptest.NewRequest(http.MethodPatch, server.URL+"/apis", nil)
	r.RequestURI = ""
	ask(r)
	if n := len(ended.Ended()); n > 0 {
		t.Errorf("%d spans without a parent", n)
	}
	ctx, pass := spans.Tracer("test").Start(t.Context(), "pass")
	ask(r.WithContext(ctx))
	pass.End()
	got := ended.Ended()
	if len(got) != 2 || got[0].Name() != "kubernetes.PATCH" || got[0].Parent().SpanID() != pass.SpanContext().SpanID() || got[0].Status().Code != codes.Error {
		t.Errorf("the spans are %v", got)
	}
	for _, h := range headers {
		if h != "" {
			t.Errorf("the server is told of %s", h)
		}
	}
}
