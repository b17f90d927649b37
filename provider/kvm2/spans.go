package kvm2

import (
	"context"
	"errors"

	golibvirt "github.com/digitalocean/go-libvirt"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
)

// spans makes one of each thing that is asked of a host.
type spans struct {
	tracer trace.Tracer
}

// call makes the span of one call of libvirt.
func (s spans) call(ctx context.Context, c libvirt.Call) (context.Context, func(error)) {
	var attributes []attribute.KeyValue
	for _, a := range [][2]string{{"host", c.Host}, {"domain", c.Domain}, {"pool", c.Pool}, {"volume", c.Volume}} {
		if a[1] != "" {
			attributes = append(attributes, attribute.String("kvm2."+a[0], a[1]))
		}
	}
	return s.start(ctx, c.RPC, attributes...)
}

// dial makes the span of the SSH handshake and all that follows it until libvirt can be asked.
func (s spans) dial(ctx context.Context, host string) (context.Context, func(error)) {
	return s.start(ctx, "dial", attribute.String("kvm2.host", host))
}

// download makes the span of an image's way from its server to a host.
func (s spans) download(ctx context.Context, host, image string) (context.Context, func(error)) {
	return s.start(ctx, "download", attribute.String("kvm2.host", host), attribute.String("kvm2.image", image))
}

func (s spans) start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := s.tracer.Start(ctx, "kvm2."+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx, func(err error) { end(span, err) }
}

// end ends a span. That something is not there is an answer, and that the caller gave up is his own doing; neither marks the span
// as failed.
func end(span trace.Span, err error) {
	defer span.End()
	if err == nil {
		return
	}
	code := libvirt.Code(err)
	if code != 0 {
		span.SetAttributes(attribute.Int64("kvm2.libvirt_code", int64(code)))
	}
	if !absent(code) && !errors.Is(err, context.Canceled) {
		span.SetStatus(codes.Error, provider.Clip(err.Error()))
	}
}

// absent says whether a number of libvirt's is of something that need not be there. A pool has to be.
func absent(code uint32) bool {
	switch golibvirt.ErrorNumber(code) {
	case golibvirt.ErrNoDomain, golibvirt.ErrNoDomainMetadata, golibvirt.ErrNoStorageVol:
		return true
	}
	return false
}
