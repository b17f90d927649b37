package kvm2

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

// seen are the spans of a provider that is open over the test driver.
type seen struct {
	*tracetest.SpanRecorder
	driver   *libvirttest.Driver
	provider provider.Provider
	tracers  *sdk.TracerProvider
}

func newSeen(t *testing.T) *seen {
	s := &seen{SpanRecorder: tracetest.NewSpanRecorder(), driver: bed.TestDriver(t)}
	s.tracers = sdk.NewTracerProvider(sdk.WithSpanProcessor(s.SpanRecorder))
	env := libvirttest.Environment(t, "fleet-one")
	env.TracerProvider = s.tracers
	p, err := New(env, s.driver.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	libvirttest.Run(t, p)
	s.provider = provider.WithTracing(p, "vms", s.tracers)
	return s
}

// under calls, and returns the spans that the call has brought about below that of the provider, or below parent.
func (s *seen) under(t *testing.T, call func(context.Context) error) []sdk.ReadOnlySpan {
	t.Helper()
	s.Reset()
	ctx, parent := s.tracers.Tracer("test").Start(t.Context(), "parent")
	if err := call(ctx); err != nil {
		t.Fatal(err)
	}
	parent.End()
	all := slices.DeleteFunc(s.Ended(), func(span sdk.ReadOnlySpan) bool { return !strings.HasPrefix(span.Name(), "kvm2.") })
	for _, span := range all {
		if span.SpanContext().TraceID() != parent.SpanContext().TraceID() {
			t.Errorf("%s is not of the trace of its caller", span.Name())
		}
		if span.SpanKind() != trace.SpanKindClient || valueOf(span, "kvm2.host") != "one" {
			t.Errorf("%s is %s of host %s, want a client's, of one", span.Name(), span.SpanKind(), valueOf(span, "kvm2.host"))
		}
	}
	return all
}

func valueOf(span sdk.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func named(all []sdk.ReadOnlySpan, name string) []sdk.ReadOnlySpan {
	return slices.DeleteFunc(slices.Clone(all), func(span sdk.ReadOnlySpan) bool { return span.Name() != name })
}

// Each call of libvirt has a span below the call of the provider, with what it is about; a dial and a transfer have one as well.
func TestSpans(t *testing.T) {
	s := newSeen(t)
	r := driverRequest("uid-first")
	libvirttest.Made(t, s.provider, r)
	libvirttest.Await(t, 10*time.Second, "the transfer's span has ended", func() (bool, error) {
		return len(named(s.Ended(), "kvm2.download")) == 1, fmt.Errorf("%d spans", len(s.Ended()))
	})
	download := named(s.Ended(), "kvm2.download")[0]
	if download.Parent().IsValid() || valueOf(download, "kvm2.host") != "one" || valueOf(download, "kvm2.image") != "blank" {
		t.Errorf("the transfer's span is %v", download)
	}
	for _, upload := range named(s.Ended(), "kvm2.StorageVolUpload") {
		if image := strings.HasPrefix(valueOf(upload, "kvm2.volume"), "proxyfleet-image-"); image != (upload.Parent().SpanID() == download.SpanContext().SpanID()) {
			t.Errorf("the upload of %s is in the wrong place", valueOf(upload, "kvm2.volume"))
		}
	}
	if dials := named(s.Ended(), "kvm2.dial"); len(dials) != 2 || valueOf(dials[0], "kvm2.host") != "one" {
		t.Errorf("there were %d dials, want one for calls and one for the image", len(dials))
	}

	second := driverRequest("uid-2")
	before := s.driver.Relay.Calls()
	all := s.under(t, func(ctx context.Context) error { _, err := s.provider.Create(ctx, second); return err })
	calls := 0
	for procedure, count := range s.driver.Relay.Calls() {
		calls += count - before[procedure]
	}
	if len(all) != calls || calls != 17 { // as docs/kvm-or-kvm2.md says
		t.Errorf("%d calls of libvirt have %d spans", calls, len(all))
	}
	for name, want := range map[string]map[attribute.Key]string{
		"kvm2.DomainDefineXML":  {"kvm2.domain": second.Name},
		"kvm2.DomainCreate":     {"kvm2.domain": second.Name},
		"kvm2.StorageVolUpload": {"kvm2.pool": "default-pool", "kvm2.volume": second.Name + "-seed.iso"},
	} {
		found := named(all, name)
		if len(found) != 1 {
			t.Errorf("there are %d spans %s", len(found), name)
			continue
		}
		for key, value := range want {
			if got := valueOf(found[0], key); got != value {
				t.Errorf("%s has %s %q, want %q", name, key, got, value)
			}
		}
	}
	for _, span := range s.Ended() {
		text := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status())
		for _, secret := range []string{"cloud-init-secret", "correct-horse", "crawler-user"} {
			if strings.Contains(text, secret) {
				t.Errorf("a span has a secret: %s", text)
			}
		}
	}
}

// A failure has libvirt's number, and marks its span; what is not there has the number and is none.
func TestSpansOfFailures(t *testing.T) {
	s := newSeen(t)
	libvirttest.Made(t, s.provider, driverRequest("uid-first"))
	s.driver.Once(hypervisor.DomainDefineXML, hypervisor.Refuse)
	all := s.under(t, func(ctx context.Context) error {
		if _, err := s.provider.Create(ctx, driverRequest("uid-2")); err == nil {
			t.Error("Create succeeds")
		}
		return nil
	})
	for name, want := range map[string]struct {
		code   string
		status codes.Code
	}{
		"kvm2.DomainDefineXML":         {"1", codes.Error},
		"kvm2.DomainLookupByName":      {"42", codes.Unset},
		"kvm2.StoragePoolLookupByName": {"", codes.Unset},
	} {
		found := named(all, name)
		if len(found) == 0 || valueOf(found[0], "kvm2.libvirt_code") != want.code || found[0].Status().Code != want.status {
			t.Errorf("the spans %s are %v, want code %q and status %s", name, found, want.code, want.status)
		}
	}
}

// A check has a dial and the four calls that it makes: version, within the dial, hostname, pool and how full it is.
func TestSpansOfChecks(t *testing.T) {
	s := newSeen(t)
	checker, _ := provider.As[provider.Checker](s.provider)
	all := s.under(t, func(ctx context.Context) error {
		if v := checker.Check(ctx)[0]; !v.Ready {
			t.Errorf("the host is %+v", v)
		}
		return nil
	})
	var names []string
	for _, span := range all {
		names = append(names, strings.TrimPrefix(span.Name(), "kvm2."))
	}
	slices.Sort(names)
	want := []string{"ConnectGetHostname", "ConnectGetLibVersion", "StoragePoolGetInfo", "StoragePoolLookupByName", "dial"}
	if !slices.Equal(names, want) {
		t.Errorf("the spans are %q, want %q", names, want)
	}
}
