package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
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

// wordless leaves out the attributes of a line. The SDK's own lines quote the variables that it could not read, and those hold
// passwords for collectors.
type wordless struct{ slog.Handler }

func (w wordless) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, "OpenTelemetry: "+r.Message, r.PC)
	return w.Handler.Handle(ctx, line)
}

func (w wordless) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w wordless) WithGroup(string) slog.Handler { return w }
