package tracing

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// quiet is how long the log hears nothing after it heard of a trouble: a collector that is gone fails every few seconds.
const quiet = time.Minute

// troubles logs what goes wrong with spans, at most once in a while.
type troubles struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	silent int
}

var _ otel.ErrorHandler = (*troubles)(nil)

// Handle logs an error, or counts it.
func (t *troubles) Handle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.last.IsZero() || now.Sub(t.last) >= quiet {
		t.log.Warn("tracing does not work as it should", "err", err, "silenced", t.silent)
		t.last, t.silent = now, 0
		return
	}
	t.silent++
}

// misread says that a variable was not understood. The SDK then takes what it takes where nothing is set.
const misread = "an OTEL_* variable cannot be read, and counts as not set"

// gist is what an error says before it quotes the variable that it is about.
func gist(err error) string {
	what, _, _ := strings.Cut(err.Error(), ":")
	return what
}

// patience is how long an export may take before the log hears of it. One to a collector that cannot be reached tries again
// for long, and is only known to have failed when a process may have ended.
const patience = 3 * time.Second

// impatient is an exporter that tells the log of an export that takes long: of the first in a row.
type impatient struct {
	sdk.SpanExporter
	log *slog.Logger

	told bool // exports come one at a time
}

// ExportSpans exports spans.
func (i *impatient) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	late := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(late)
		if !i.told {
			i.log.Warn("the collector has not taken spans yet: it may be out of reach", "waited", patience.String())
		}
	})
	err := i.SpanExporter.ExportSpans(ctx, spans)
	if timer.Stop() {
		i.told = i.told && err != nil
		return err
	}
	<-late
	i.told = true
	return err
}

// wordless leaves out the attributes of a line. The SDK's own lines quote the variables that it could not read, and those hold
// passwords for collectors.
type wordless struct{ slog.Handler }

func (w wordless) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, "OpenTelemetry: "+r.Message, r.PC)
	return w.Handler.Handle(ctx, line)
}

func (w wordless) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w wordless) WithGroup(string) slog.Handler { return w }
