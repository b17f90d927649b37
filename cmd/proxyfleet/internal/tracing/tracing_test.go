package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// received is what a collector was sent: the names of spans, and the attributes of who sent them.
type received struct {
	spans    []string
	resource map[string]string
}

// collect opens a tracing with some variables set, makes a span, closes it, and returns what came of that.
func collect(t *testing.T, variables map[string]string, log io.Writer) (got received, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &sent); err != nil {
			t.Error(err)
		}
		got.resource = map[string]string{}
		for _, of := range sent.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				got.resource[a.Key] = a.Value.GetStringValue()
			}
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					got.spans = append(got.spans, span.Name)
				}
			}
		}
	}))
	defer server.Close()
	for _, name := range []string{disabled, exporter, endpoint, tracesEndpoint, "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
		"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} {
		t.Setenv(name, strings.ReplaceAll(variables[name], "SERVER", server.URL))
	}
	made, err := Open(t.Context(), "v1", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return got, err
	}
	_, span := made.Tracer("test").Start(t.Context(), "one")
	span.End()
	if err := made.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return got, nil
}

func TestEnvironmentDecides(t *testing.T) {
	tests := []struct {
		name      string
		variables map[string]string
		spans     int
		log       string
	}{
		{name: "nothing is set"},
		{name: "an endpoint", variables: map[string]string{endpoint: "SERVER"}, spans: 1},
		{name: "an endpoint for traces", variables: map[string]string{tracesEndpoint: "SERVER/v1/traces"}, spans: 1},
		{name: "an endpoint and otlp", variables: map[string]string{endpoint: "SERVER", exporter: "otlp"}, spans: 1},
		{name: "none", variables: map[string]string{endpoint: "SERVER", exporter: "none"}},
		{name: "none, as people type", variables: map[string]string{endpoint: "SERVER", exporter: " NONE "}},
		{name: "otlp, as people type", variables: map[string]string{endpoint: "SERVER", exporter: " OTLP "}, spans: 1},
		{name: "disabled, as people type", variables: map[string]string{endpoint: "SERVER", disabled: " True "}},
		{name: "disabled", variables: map[string]string{endpoint: "SERVER", disabled: "TRUE"}},
		{name: "not disabled", variables: map[string]string{endpoint: "SERVER", disabled: "false"}, spans: 1},
		{name: "perhaps disabled", variables: map[string]string{endpoint: "SERVER", disabled: "yes"}, spans: 1,
			log: "OTEL_SDK_DISABLED is neither true nor false"},
		{name: "sampled away", variables: map[string]string{endpoint: "SERVER", "OTEL_TRACES_SAMPLER": "always_off"}},
		{name: "sampled who knows how", variables: map[string]string{endpoint: "SERVER", "OTEL_TRACES_SAMPLER": "sometimes"}, spans: 1,
			log: "unsupported sampler"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			got, err := collect(t, test.variables, &log)
			if err != nil || len(got.spans) != test.spans {
				t.Errorf("the collector got %v, %v, want %d spans", got.spans, err, test.spans)
			}
			if !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() > 0 {
				t.Errorf("the log is %q, want %q in it", log.String(), test.log)
			}
		})
	}
}

func TestSpansSayWhoSentThem(t *testing.T) {
	got, err := collect(t, map[string]string{endpoint: "SERVER"}, io.Discard)
	if err != nil || got.resource["service.name"] != "proxyfleet" || got.resource["service.version"] != "v1" {
		t.Errorf("the resource is %v, %v", got.resource, err)
	}
	got, err = collect(t, map[string]string{endpoint: "SERVER", "OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "zone=eu"}, io.Discard)
	if err != nil || got.resource["service.name"] != "mine" || got.resource["zone"] != "eu" {
		t.Errorf("the resource is %v, %v", got.resource, err)
	}
}

func TestWhatIsUnknownIsRefusedByName(t *testing.T) {
	for _, variables := range []map[string]string{
		{exporter: "zipkin"},
		{exporter: "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"},
		{endpoint: "SERVER", "OTEL_RESOURCE_ATTRIBUTES": "zone"},
	} {
		_, err := collect(t, variables, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "OTEL_") {
			t.Errorf("%v: %v", variables, err)
		}
	}
}

// What the SDK could not read may be a password, so that only the fact is logged.
func TestVariablesAreNotLogged(t *testing.T) {
	for _, test := range []struct {
		variables map[string]string
		log       string
	}{
		{map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "Planted"}, "OpenTelemetry: parse headers"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "Planted"}, "OpenTelemetry: parse duration"},
		{map[string]string{disabled: "Planted"}, disabled},
		{map[string]string{"OTEL_TRACES_SAMPLER": "Planted"}, "unsupported sampler"},
		{map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "Planted"}, "parsing sampler argument"},
		{map[string]string{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "Planted"}, ""},
		{map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "Planted"}, ""}, // an error
	} {
		var log bytes.Buffer
		test.variables[endpoint] = "SERVER"
		_, err := collect(t, test.variables, &log)
		if text := log.String() + fmt.Sprint(err); !strings.Contains(text, test.log) || strings.Contains(strings.ToLower(text), "planted") {
			t.Errorf("%v: the log is %q, the error %v", test.variables, log.String(), err)
		}
	}
}

// exports is an exporter that takes its time.
type exports struct{ takes time.Duration }

func (e *exports) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.takes):
		return nil
	}
}

func (*exports) Shutdown(context.Context) error { return nil }

// A collector that cannot be reached is heard of while the first export still tries, and once.
func TestExportsThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		to := &exports{takes: time.Hour}
		spans := &impatient{SpanExporter: to, log: slog.New(slog.NewTextHandler(&log, nil))}
		export := func(takes time.Duration, lines int) {
			t.Helper()
			to.takes = takes
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_ = spans.ExportSpans(ctx, nil)
			if got := strings.Count(log.String(), "the collector has not taken spans yet"); got != lines {
				t.Errorf("the log says so %d times, want %d:\n%s", got, lines, log.String())
			}
		}
		export(time.Second, 0)
		export(time.Hour, 1)
		export(time.Hour, 1)
		export(time.Second, 1) // it is back
		export(time.Hour, 2)
	})
}

// The log hears of it before the export has failed.
func TestExportsThatTakeLongAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		spans := &impatient{SpanExporter: &exports{takes: time.Hour}, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- spans.ExportSpans(ctx, nil) }()
		time.Sleep(patience)
		synctest.Wait()
		if log.Len() == 0 {
			t.Error("nothing is logged while the export tries")
		}
		cancel()
		<-ended
	})
}

func TestTroublesAreLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		said := &troubles{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 10 {
			said.Handle(errors.New("no collector"))
			time.Sleep(quiet / 5)
		}
		if lines := strings.Count(log.String(), "no collector"); lines != 2 || !strings.Contains(log.String(), "silenced=4") {
			t.Errorf("ten troubles within two minutes are logged as:\n%s", log.String())
		}
	})
}

// A collector that never answers does not keep the process from ending.
func TestCloseIsBounded(t *testing.T) {
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	defer server.Close()
	defer close(silent)
	t.Setenv(endpoint, server.URL)
	made, err := Open(t.Context(), "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := made.Tracer("test").Start(t.Context(), "one")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := made.Close(ctx); err == nil {
		t.Error("spans that nobody took count as exported")
	}
}
