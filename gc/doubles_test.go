package gc_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
)

const fleetID = "ours"

// backend is a provider whose every instance is there for a test to arrange. Its other methods are never called.
type backend struct {
	provider.Provider
	// beforeList and beforeDelete run in their calls, outside the lock. Their error is that of the call.
	beforeList   func(context.Context) error
	beforeDelete func(context.Context, provider.Ref) error

	mu        sync.Mutex
	instances []provider.Instance
	deletes   []provider.Ref
}

// List returns what is there, also with an error: nobody may take a part for the whole.
func (b *backend) List(ctx context.Context) ([]provider.Instance, error) {
	var err error
	if b.beforeList != nil {
		err = b.beforeList(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.instances), err
}

// Delete removes an instance at once, as the contract says.
func (b *backend) Delete(ctx context.Context, ref provider.Ref) error {
	if b.beforeDelete != nil {
		if err := b.beforeDelete(ctx, ref); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deletes = append(b.deletes, ref)
	b.instances = slices.DeleteFunc(b.instances, func(in provider.Instance) bool {
		return in.ID == ref.ID && in.Marks.UID == ref.UID && (ref.Incarnation == "" || ref.Incarnation == in.Incarnation)
	})
	return nil
}

func (b *backend) add(all ...provider.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances = append(b.instances, all...)
}

// left are the incarnations that are there, in order.
func (b *backend) left() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := []string{}
	for _, in := range b.instances {
		left = append(left, in.Incarnation)
	}
	slices.Sort(left)
	return left
}

// old makes an instance of our fleet that has been there for an hour: for UID x its ID is id-x and its incarnation inc-x.
func old(uid string) provider.Instance {
	return provider.Instance{ID: "id-" + uid, Incarnation: "inc-" + uid, Marks: provider.Marks{Fleet: fleetID, UID: uid},
		State: provider.Running, Created: time.Now().Add(-time.Hour)}
}

// olds are so many, of UIDs that begin alike.
func olds(prefix string, n int) (all []provider.Instance) {
	for i := range n {
		all = append(all, old(fmt.Sprintf("%s%02d", prefix, i)))
	}
	return all
}

// records are the records that a sweeper reads.
type records struct {
	// before runs in each reading, outside the lock, with the number of readings so far. Its error is that of the reading.
	before func(context.Context, int) error

	mu   sync.Mutex
	n    int
	held map[string]gc.Held
}

func (r *records) Live(ctx context.Context) (map[string]gc.Held, error) {
	r.mu.Lock()
	n := r.n
	r.n++
	r.mu.Unlock()
	if r.before != nil {
		if err := r.before(ctx, n); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held), nil
}

// hold writes a record that holds what old makes, at a provider.
func (r *records) hold(providerName, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[string]gc.Held{}
	}
	r.held[uid] = gc.Held{Key: "default/" + uid, Provider: providerName, ID: "id-" + uid, Incarnation: "inc-" + uid}
}

// sweeper makes one over some backends, with what a test changes.
func sweeper(t *testing.T, r *records, backends map[string]*backend, change ...func(*gc.Config)) *gc.Sweeper {
	t.Helper()
	c := gc.Config{Fleet: fleetID, Providers: map[string]provider.Provider{}, Live: r.Live}
	for name, b := range backends {
		c.Providers[name] = b
	}
	for _, f := range change {
		f(&c)
	}
	s, err := gc.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func one(b *backend) map[string]*backend { return map[string]*backend{"cloud": b} }

// ledger is a recorder that keeps a line for each call.
type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) Swept(provider, result string, took time.Duration) {
	l.note("swept %s %s %v", provider, result, took)
}

func (l *ledger) Collected(provider, kind, result string) {
	l.note("collected %s %s %s", provider, kind, result)
}

func (l *ledger) Held(provider string, instances int) { l.note("held %s %d", provider, instances) }

// said returns the lines so far, in order, and forgets them.
func (l *ledger) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := append([]string{}, l.lines...)
	slices.Sort(lines)
	l.lines = nil
	return lines
}

// logged is a logger that writes without times, and what it wrote.
func logged() (*slog.Logger, *lockedText) {
	text := new(lockedText)
	return slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "created" {
			return slog.Attr{}
		}
		return a
	}})), text
}

type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}

// spans is a TracerProvider that keeps what it traced.
type spans struct {
	noop.TracerProvider
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
	Attributes map[string]int64
	Code       codes.Code
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{spans: s} }

func (t tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{spans: t.spans, Name: name, Attributes: map[string]int64{}}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.Attributes[string(a.Key)] = a.Value.AsInt64()
	}
}

func (s *span) SetStatus(code codes.Code, _ string) { s.Code = code }

func (s *span) End(...trace.SpanEndOption) { s.spans.ended = append(s.spans.ended, s) }
