package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
)

// plain is a provider without checks. Nothing here calls its methods.
type plain struct{ provider.Provider }

// checker is a provider whose check can be changed, and which counts how many of them were begun.
type checker struct {
	provider.Provider

	mu    sync.Mutex
	begun int
	check func(context.Context) []provider.TargetStatus
}

func checks(f func(context.Context) []provider.TargetStatus) *checker { return &checker{check: f} }

// says makes a checker whose check always returns these verdicts, at once.
func says(verdicts ...provider.TargetStatus) *checker {
	c := new(checker)
	c.say(verdicts...)
	return c
}

func (c *checker) say(verdicts ...provider.TargetStatus) {
	c.do(func(context.Context) []provider.TargetStatus { return verdicts })
}

func (c *checker) do(f func(context.Context) []provider.TargetStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check = f
}

func (c *checker) Check(ctx context.Context) []provider.TargetStatus {
	c.mu.Lock()
	c.begun++
	f := c.check
	c.mu.Unlock()
	return f(ctx)
}

func (c *checker) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func up(target string) provider.TargetStatus {
	return provider.TargetStatus{Target: target, Ready: true}
}

func down(target, reason string) provider.TargetStatus {
	return provider.TargetStatus{Target: target, Reason: reason, Message: "it is down"}
}

// hangs never returns before release is called, whatever its context says.
func hangs() (check func(context.Context) []provider.TargetStatus, release func(...provider.TargetStatus)) {
	answer := make(chan []provider.TargetStatus)
	check = func(context.Context) []provider.TargetStatus { return <-answer }
	return check, func(verdicts ...provider.TargetStatus) { answer <- verdicts }
}

// log keeps what a monitor wrote, a line for each record, without the time.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns the lines since the last call.
func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.buf.String())
	l.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// spans is a TracerProvider that keeps what ended.
type spans struct {
	noop.TracerProvider
	mu    sync.Mutex
	ended []*span
}

type tracer struct {
	noop.Tracer
	spans *spans
}

type span struct {
	noop.Span
	spans      *spans
	Name       string
	Attributes map[string]string
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{spans: s} }

func (t tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{spans: t.spans, Name: name, Attributes: map[string]string{}}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.Attributes[string(a.Key)] = a.Value.String()
	}
}

func (s *span) End(...trace.SpanEndOption) {
	s.spans.mu.Lock()
	defer s.spans.mu.Unlock()
	s.spans.ended = append(s.spans.ended, s)
}

// sink keeps what it is told.
type sink struct {
	mu     sync.Mutex
	told   []monitor.Result
	report func(context.Context, monitor.Result) error // after it has been kept; nil: nothing
}

func (s *sink) Report(ctx context.Context, r monitor.Result) error {
	s.mu.Lock()
	s.told = append(s.told, r)
	s.mu.Unlock()
	if s.report == nil {
		return nil
	}
	return s.report(ctx, r)
}

// take returns what it was told since the last call.
func (s *sink) take() []monitor.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

// providers makes the map of a fleet with one provider.
func providers(p provider.Provider) map[string]provider.Provider {
	return map[string]provider.Provider{"cloud": p}
}

// run runs a monitor in the bubble until the test ends, and lets its first round come as far as it can without time.
func run(t *testing.T, cfg monitor.Config) *monitor.Monitor {
	t.Helper()
	m, err := monitor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		began := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run took %v to end", took)
		}
	})
	synctest.Wait()
	return m
}

// pass lets time pass, and what it brought about come to an end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errSink = errors.New("no room")
