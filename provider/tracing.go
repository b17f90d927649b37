package provider

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// WithTracing makes a span of each call that goes to the backend: provider.create, provider.get, provider.delete and
// provider.list, with the name of the provider, the ID of the instance, and class and reason of a failure. It goes
// outermost, so that a span covers all that the others do. Plan goes nowhere and has no span.
func WithTracing(p Provider, name string, tracers trace.TracerProvider) Provider {
	return &traced{p, name, tracers.Tracer("github.com/proxyfleet/fleet/provider")}
}

type traced struct {
	Provider
	name   string
	tracer trace.Tracer
}

func (t *traced) Unwrap() Provider { return t.Provider }

func (t *traced) Create(ctx context.Context, r Request) (Instance, error) {
	ctx, span := t.start(ctx, "create", attribute.String("provider.instance.name", r.Name))
	in, err := t.Provider.Create(ctx, r)
	if in.ID != "" {
		span.SetAttributes(attribute.String("provider.instance.id", in.ID))
	}
	end(span, err)
	return in, err
}

func (t *traced) Get(ctx context.Context, ref Ref) (Instance, error) {
	ctx, span := t.start(ctx, "get", attribute.String("provider.instance.id", ref.ID))
	in, err := t.Provider.Get(ctx, ref)
	end(span, err)
	return in, err
}

func (t *traced) Delete(ctx context.Context, ref Ref) error {
	ctx, span := t.start(ctx, "delete", attribute.String("provider.instance.id", ref.ID))
	err := t.Provider.Delete(ctx, ref)
	end(span, err)
	return err
}

func (t *traced) List(ctx context.Context) ([]Instance, error) {
	ctx, span := t.start(ctx, "list")
	all, err := t.Provider.List(ctx)
	if err == nil {
		span.SetAttributes(attribute.Int("provider.instances", len(all)))
	}
	end(span, err)
	return all, err
}

func (t *traced) start(ctx context.Context, op string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	attributes = append(attributes, attribute.String("provider.name", t.name))
	return t.tracer.Start(ctx, "provider."+op, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
}

// end ends the span of a call. That an instance is not there is an answer, and that the caller gave up is his own doing:
// both have their class, and neither marks the span as failed.
func end(span trace.Span, err error) {
	defer span.End()
	if err == nil {
		return
	}
	class := ClassOf(err)
	span.SetAttributes(attribute.String("provider.error.class", string(class)))
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != "" {
		span.SetAttributes(attribute.String("provider.error.reason", e.Reason))
	}
	if class != ErrNotFound && class != ErrCanceled {
		span.SetStatus(codes.Error, Clip(err.Error()))
	}
}
