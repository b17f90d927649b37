// Package logging makes the logger of the binary.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/trace"
)

// Format is how lines of the log are written.
type Format string

// The formats.
const (
	// Auto is Text for people at a terminal and JSON for everybody else.
	Auto Format = "auto"
	Text Format = "text"
	JSON Format = "json"
)

// UnmarshalText reads the name of a format.
func (f *Format) UnmarshalText(text []byte) error {
	switch Format(text) {
	case Auto, Text, JSON:
		*f = Format(text)
		return nil
	}
	return fmt.Errorf("must be text, json or auto, not %q", text)
}

// MarshalText returns the name of a format.
func (f Format) MarshalText() ([]byte, error) { return []byte(f), nil }

// New returns a logger that writes lines of at least the given level to w. A line that belongs to a trace says so, so that
// whoever looks at the one finds the other.
func New(w io.Writer, format Format, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == Text || format == Auto && isTerminal(w) {
		return slog.New(traced{slog.NewTextHandler(w, options)})
	}
	return slog.New(traced{slog.NewJSONHandler(w, options)})
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// traced adds the IDs of the trace and the span that are in the context.
type traced struct{ slog.Handler }

func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("traceID", span.TraceID().String()), slog.String("spanID", span.SpanID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }

func (t traced) WithGroup(name string) slog.Handler { return traced{t.Handler.WithGroup(name)} }
