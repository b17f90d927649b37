package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// traces is a Tracer that keeps what it traced: each span as its path of names, with its attributes and its error.
type traces struct {
	noop.Tracer
	ended []string
}

type span struct {
	noop.Span
	traces *traces
	path   string
	says   []string
}

func (t *traces) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{traces: t, path: name}
	if parent, ok := trace.SpanFromContext(ctx).(*span); ok {
		s.path = parent.path + " > " + name
	}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) IsRecording() bool { return true }

func (s *span) SpanContext() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.says = append(s.says, string(a.Key)+"="+a.Value.String())
	}
}

func (s *span) SetStatus(code codes.Code, text string) {
	s.says = append(s.says, fmt.Sprintf("%v: %s", code, text))
}

func (s *span) End(...trace.SpanEndOption) {
	s.traces.ended = append(s.traces.ended, fmt.Sprint(s.path, " ", s.says))
}

func TestSpans(t *testing.T) {
	tests := []struct {
		name   string
		record *proxy.Proxy
		given  func(*world)
		want   []string
	}{
		{"a look", ready(time.Minute), has(there(provider.Running, "i-1")), []string{
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud]",
			"Reconcile Proxy [proxy=default/one provider=cloud]",
		}},
		{"a create", declared(), func(*world) {}, []string{
			"Reconcile Proxy > reconcile.managed > status.patch [proxy=default/one provider=cloud]",
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud]",
			"Reconcile Proxy > status.patch [proxy=default/one provider=cloud]",
			"Reconcile Proxy [proxy=default/one provider=cloud]",
		}},
		{"a replacement, by the provider that has it", ready(time.Minute, otherProvider), has(there(provider.Running, "i-1")), []string{
			"Reconcile Proxy > reconcile.managed > reconcile.replaceInstance > status.patch [proxy=default/one provider=cloud]",
			"Reconcile Proxy > reconcile.managed > reconcile.replaceInstance [proxy=default/one provider=cloud]",
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud]",
			"Reconcile Proxy [proxy=default/one provider=cloud]",
		}},
		{"a deletion", ready(time.Minute, deleting), has(there(provider.Running, "i-1")), []string{
			"Reconcile Proxy > reconcile.delete > status.patch [proxy=default/one provider=cloud]",
			"Reconcile Proxy > reconcile.delete [proxy=default/one provider=cloud]",
			"Reconcile Proxy [proxy=default/one provider=cloud]",
		}},
		{"an endpoint has no step", outside(time.Minute), func(*world) {}, []string{"Reconcile Proxy [proxy=default/one provider=]"}},
		{"a failure", ready(time.Minute), func(w *world) {
			w.cloud.get = func(context.Context) (provider.Instance, error) {
				return provider.Instance{}, failure("get", provider.ErrTransient)
			}
		}, []string{
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud outcome=error Error: get: no luck]",
			"Reconcile Proxy > status.patch [proxy=default/one provider=cloud]",
			"Reconcile Proxy [proxy=default/one provider=cloud outcome=error Error: get: no luck]",
		}},
		{"a conflict is no failure", declared(), func(w *world) { w.store.refuse = proxy.ErrConflict }, []string{
			"Reconcile Proxy > reconcile.managed > status.patch [proxy=default/one provider=cloud outcome=conflict]",
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud outcome=conflict]",
			"Reconcile Proxy [proxy=default/one provider=cloud outcome=conflict]",
		}},
		{"to be given up is no failure", ready(time.Minute), all(has(there(provider.Running, "i-1")), took3s, func(w *world) {
			time.AfterFunc(time.Second, w.cancel)
		}), []string{
			"Reconcile Proxy > reconcile.managed [proxy=default/one provider=cloud outcome=canceled]",
			"Reconcile Proxy [proxy=default/one provider=cloud outcome=canceled]",
		}},
		{"what is gone is no pass", named("another", ready(time.Minute)), func(*world) {}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, kept := newWorld(t, test.record), &traces{}
				w.reconciler.Tracer = kept
				test.given(w)
				_, _ = w.reconcile()
				if diff := cmp.Diff(test.want, kept.ended); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSpansCostNothing: a steady pass without traces allocates no more for its spans than a context for each.
func TestSpansCostNothing(t *testing.T) {
	w := newWorld(t, ready(time.Minute))
	p := w.record(t)
	allocs := testing.AllocsPerRun(100, func() {
		ctx, span := w.reconciler.start(w.ctx, "Reconcile Proxy", p)
		end(ctx, span, nil)
	})
	if allocs > 1 {
		t.Errorf("a span that nobody keeps takes %v allocations", allocs)
	}
}

// correlated is a log that keeps the trace of each line.
type correlated struct {
	slog.Handler
	lines []string
}

func (c *correlated) Handle(ctx context.Context, r slog.Record) error {
	c.lines = append(c.lines, r.Message+" "+trace.SpanContextFromContext(ctx).TraceID().String())
	return nil
}

func (c *correlated) Enabled(context.Context, slog.Level) bool { return true }

// TestFailuresAreTraced: the line of a pass that failed leads to its trace.
func TestFailuresAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newWorld(t, ready(time.Minute)), &correlated{}
		w.reconciler.Tracer = &traces{}
		w.cloud.get = func(context.Context) (provider.Instance, error) {
			return provider.Instance{}, failure("get", provider.ErrTransient)
		}
		q := newQueue(w.reconciler, func(context.Context, proxy.Key) {}, slog.New(log))
		q.pass(t.Context(), one)
		q.work.ShutDown()
		if diff := cmp.Diff([]string{"reconcile failed 01000000000000000000000000000000"}, log.lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
