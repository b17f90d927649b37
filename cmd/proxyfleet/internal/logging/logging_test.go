package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/logging"
)

func TestLinesOfATraceSaySo(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, logging.Auto, slog.LevelInfo).With("a", 1)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	log.InfoContext(trace.ContextWithSpanContext(t.Context(), span), "traced")
	log.InfoContext(t.Context(), "not traced")
	log.DebugContext(t.Context(), "not logged")

	var lines []map[string]any
	for line := range bytes.Lines(out.Bytes()) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("%q is no JSON, and nobody sits at a terminal: %v", line, err)
		}
		lines = append(lines, entry)
	}
	if len(lines) != 2 {
		t.Fatalf("there are %d lines, want 2: %v", len(lines), lines)
	}
	if lines[0]["traceID"] != "01000000000000000000000000000000" || lines[0]["spanID"] != "0200000000000000" || lines[0]["a"] != 1.0 {
		t.Errorf("the line of a trace is %v", lines[0])
	}
	if _, ok := lines[1]["traceID"]; ok {
		t.Errorf("the line of no trace is %v", lines[1])
	}
}

func TestFormat(t *testing.T) {
	var format logging.Format
	for _, text := range []string{"text", "json", "auto"} {
		if err := format.UnmarshalText([]byte(text)); err != nil || string(format) != text {
			t.Errorf("%s is read as %q, %v", text, format, err)
		}
	}
	if err := format.UnmarshalText([]byte("xml")); err == nil {
		t.Error("xml is a format")
	}
}
