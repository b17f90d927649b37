// Package tracing makes the binary's TracerProvider as the OTEL_* variables say. Where they say nothing, no SDK runs and a span
// costs nothing.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The variables that decide whether there are spans at all. The exporters read further ones.
const (
	disabled       = "OTEL_SDK_DISABLED"
	exporter       = "OTEL_TRACES_EXPORTER"
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// Tracing is a TracerProvider that has an end.
type Tracing struct {
	trace.TracerProvider
	close func(context.Context) error
}

// Open returns what makes the spans of this process: one that makes none, unless an exporter or an endpoint is named. It may
// be called once in a process, for the SDK tells of its troubles through global handlers, which then lead to the log.
func Open(ctx context.Context, version string, log *slog.Logger) (*Tracing, error) {
	if !wanted(log) {
		return &Tracing{noop.NewTracerProvider(), func(context.Context) error { return nil }}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn(misread, "err", gist(err)) }))
	otel.SetLogger(logr.FromSlogHandler(wordless{log.Handler()}))
	if err := os.Setenv(exporter, value(exporter)); err != nil { // as it is read here
		return nil, err
	}
	to, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s=%s with the protocol of OTEL_EXPORTER_OTLP_PROTOCOL: %w", exporter, os.Getenv(exporter), err)
	}
	who, err := describe(ctx, version)
	if err != nil {
		return nil, errors.New("OTEL_RESOURCE_ATTRIBUTES must be name=value, and more of them behind commas, with other characters percent-encoded")
	}
	spans := sdk.NewTracerProvider(sdk.WithBatcher(&impatient{SpanExporter: to, log: log}), sdk.WithResource(who))
	otel.SetErrorHandler(&troubles{log: log})
	return &Tracing{spans, spans.Shutdown}, nil
}

// Close exports the spans that have ended, for as long as ctx lasts. Spans that end later are lost.
func (t *Tracing) Close(ctx context.Context) error { return t.close(ctx) }

// wanted says whether the environment asks for spans. The exporters would not do so by themselves: they would send them to
// this machine where nothing is set, and know no switch.
func wanted(log *slog.Logger) bool {
	switch value(disabled) {
	case "true":
		return false
	case "", "false":
	default:
		log.Warn(disabled + " is neither true nor false, and counts as false")
	}
	if to := value(exporter); to != "" {
		return to != "none"
	}
	return value(endpoint) != "" || value(tracesEndpoint) != ""
}

// value is that of a variable whose values are words: in small letters, and without blanks around it.
func value(variable string) string { return strings.ToLower(strings.TrimSpace(os.Getenv(variable))) }

// describe returns what every span says of this process. The environment has the last word.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "proxyfleet"), attribute.String("service.version", version)),
		resource.WithFromEnv(),
	)
}
