package provider_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// answer is a provider that takes a second for every call and then returns what it is told to.
type answer struct{ err error }

func (a answer) wait(context.Context) error { time.Sleep(time.Second); return a.err }

func (a answer) Plan(r provider.Request) (string, error) { return "zones/z/" + r.Name, a.err }

func (a answer) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	return provider.Instance{ID: "zones/z/" + r.Name}, a.wait(ctx)
}

func (a answer) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	return provider.Instance{ID: ref.ID}, a.wait(ctx)
}

func (a answer) Delete(ctx context.Context, ref provider.Ref) error { return a.wait(ctx) }

func (a answer) List(ctx context.Context) ([]provider.Instance, error) {
	return []provider.Instance{{}, {}}, a.wait(ctx)
}

// callAll calls each method once and says which errors came back.
func callAll(ctx context.Context, p provider.Provider) []error {
	r := provider.Request{Name: "n", CloudInit: secret.New("hunter2"), Credentials: provider.Credentials{Password: secret.New("hunter2")}}
	ref := provider.Ref{ID: "zones/z/n", UID: "u"}
	_, plan := p.Plan(r)
	_, create := p.Create(ctx, r)
	_, get := p.Get(ctx, ref)
	deleted := p.Delete(ctx, ref)
	_, list := p.List(ctx)
	return []error{plan, create, get, deleted, list}
}

// call is one that a recorder was told of.
type call struct {
	Provider, Op string
	Class        provider.Class
	Took         time.Duration
}

type calls struct{ all []call }

func (c *calls) Called(provider, op string, class provider.Class, took time.Duration) {
	c.all = append(c.all, call{provider, op, class, took})
}

func TestWithRecorder(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want []provider.Class // one for each method, or none
	}{
		{"success", nil, []provider.Class{""}},
		{"a class", &provider.Error{Class: provider.ErrQuotaExceeded}, []provider.Class{provider.ErrQuotaExceeded}},
		{"an error of another type", errors.New("eh"), []provider.Class{provider.ErrTransient}},
		{"the caller gave up", fmt.Errorf("call: %w", context.Canceled), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got calls
				errs := callAll(t.Context(), provider.WithRecorder(answer{c.err}, "cloud", &got))
				if i := slices.IndexFunc(errs, func(err error) bool { return err != c.err }); i >= 0 {
					t.Errorf("call %d returned %v, want %v as it is", i, errs[i], c.err)
				}
				var want []call
				for _, op := range []string{"create", "get", "delete", "list"} {
					for _, class := range c.want {
						want = append(want, call{"cloud", op, class, time.Second})
					}
				}
				if diff := cmp.Diff(want, got.all); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
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
	Kind       trace.SpanKind
	Attributes map[string]string
	Code       codes.Code
	Text       string
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{spans: s} }

func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	config := trace.NewSpanStartConfig(options...)
	s := &span{spans: t.spans, Name: name, Kind: config.SpanKind(), Attributes: map[string]string{}}
	s.SetAttributes(config.Attributes()...)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.Attributes[string(a.Key)] = a.Value.String()
	}
}

func (s *span) SetStatus(code codes.Code, text string) { s.Code, s.Text = code, text }

func (s *span) End(...trace.SpanEndOption) { s.spans.ended = append(s.spans.ended, s) }

func TestWithTracing(t *testing.T) {
	name := map[string]string{"provider.name": "cloud"}
	named := map[string]string{"provider.name": "cloud", "provider.instance.name": "n", "provider.instance.id": "zones/z/n"}
	id := map[string]string{"provider.name": "cloud", "provider.instance.id": "zones/z/n"}
	counted := map[string]string{"provider.name": "cloud", "provider.instances": "2"}
	for _, c := range []struct {
		name  string
		err   error
		extra map[string]string
		code  codes.Code
	}{
		{"success", nil, nil, codes.Unset},
		{"failure", &provider.Error{Op: "x", Class: provider.ErrPermanent, Reason: "NameTaken"},
			map[string]string{"provider.error.class": "permanent", "provider.error.reason": "NameTaken"}, codes.Error},
		{"an error of another type", errors.New("eh"), map[string]string{"provider.error.class": "transient"}, codes.Error},
		{"a whole page", errors.New(strings.Repeat("<p>", 1<<20)), map[string]string{"provider.error.class": "transient"}, codes.Error},
		{"an answer", &provider.Error{Op: "get", Class: provider.ErrNotFound}, map[string]string{"provider.error.class": "not_found"}, codes.Unset},
		{"the caller gave up", context.Canceled, map[string]string{"provider.error.class": "canceled"}, codes.Unset},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := new(spans)
				callAll(t.Context(), provider.WithTracing(answer{c.err}, "cloud", got))
				listed := counted
				if c.err != nil {
					listed = name
				}
				want := []map[string]string{named, id, id, listed}
				if len(got.ended) != len(want) {
					t.Fatalf("%d spans ended, want %d", len(got.ended), len(want))
				}
				for i, op := range []string{"create", "get", "delete", "list"} {
					s := got.ended[i]
					attributes := map[string]string{}
					for _, m := range []map[string]string{want[i], c.extra} {
						maps.Copy(attributes, m)
					}
					if diff := cmp.Diff(attributes, s.Attributes); diff != "" {
						t.Errorf("attributes of %s (-want +got):\n%s", op, diff)
					}
					if s.Name != "provider."+op || s.Kind != trace.SpanKindClient || s.Code != c.code {
						t.Errorf("span %d is %s, %v, %v; want provider.%s, client, %v", i, s.Name, s.Kind, s.Code, op, c.code)
					}
					if len(s.Text) > 1024 {
						t.Errorf("the span of %s has a status of %d bytes", op, len(s.Text))
					}
					if strings.Contains(fmt.Sprint(s.Attributes, s.Text), "hunter2") {
						t.Errorf("the span of %s shows a secret", op)
					}
				}
			})
		})
	}
}

// seesSpan says whether calls come with a span in their context.
type seesSpan struct {
	answer
	saw bool
}

func (s *seesSpan) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	_, s.saw = trace.SpanFromContext(ctx).(*span)
	return provider.Instance{}, nil
}

func TestWithTracingHandsTheSpanOn(t *testing.T) {
	p := new(seesSpan)
	if _, err := provider.WithTracing(p, "cloud", new(spans)).Get(t.Context(), provider.Ref{}); err != nil || !p.saw {
		t.Errorf("the decorated provider saw a span: %v, %v; want true", p.saw, err)
	}
}

func TestDecoratorsShowAbilities(t *testing.T) {
	p := provider.WithTracing(provider.WithRecorder(runner{}, "cloud", new(calls)), "cloud", noop.NewTracerProvider())
	if _, ok := provider.As[provider.Runner](p); !ok {
		t.Error("As does not find the Runner behind both decorators")
	}
	if _, ok := provider.As[provider.Delayer](p); ok {
		t.Error("As finds a Delayer where there is none")
	}
}

// A decorated provider keeps the contract.
func TestDecoratedConformance(t *testing.T) {
	providertest.Run(t, func(testing.TB) providertest.Harness {
		h := new(providertest.Memory).Harness()
		open := h.Open
		h.Open = func(t testing.TB, fleet string) provider.Provider {
			p := provider.WithRecorder(open(t, fleet), "cloud", discard{})
			return provider.WithTracing(p, "cloud", noop.NewTracerProvider())
		}
		return h
	})
}

type discard struct{}

func (discard) Called(string, string, provider.Class, time.Duration) {}
