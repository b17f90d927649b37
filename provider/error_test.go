package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

func TestClassOf(t *testing.T) {
	transient := &provider.Error{Op: "get", Class: provider.ErrTransient, Err: context.Canceled}
	for _, c := range []struct {
		name string
		err  error
		want provider.Class
	}{
		{"nil", nil, ""},
		{"another error", io.EOF, provider.ErrTransient},
		{"an Error", &provider.Error{Op: "create", Class: provider.ErrPermanent}, provider.ErrPermanent},
		{"a wrapped Error", fmt.Errorf("pass: %w", &provider.Error{Class: provider.ErrQuotaExceeded}), provider.ErrQuotaExceeded},
		{"the first of two", &provider.Error{Class: provider.ErrPermanent, Err: &provider.Error{Class: provider.ErrNotFound}}, provider.ErrPermanent},
		{"an Error without a class", &provider.Error{Op: "get"}, provider.ErrTransient},
		{"a bare class", provider.ErrNotFound, provider.ErrNotFound},
		{"a bare cancellation", context.Canceled, provider.ErrCanceled},
		{"a wrapped cancellation", fmt.Errorf("dial: %w", context.Canceled), provider.ErrCanceled},
		{"a deadline", context.DeadlineExceeded, provider.ErrTransient},
		{"the class before the cause", transient, provider.ErrTransient},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := provider.ClassOf(c.err); got != c.want {
				t.Errorf("ClassOf(%v) = %q, want %q", c.err, got, c.want)
			}
		})
	}
}

func TestError(t *testing.T) {
	for _, c := range []struct {
		name string
		err  *provider.Error
		want string
	}{
		{"class only", &provider.Error{Op: "get", Class: provider.ErrNotFound}, "get: not_found"},
		{"reason", &provider.Error{Op: "create", Class: provider.ErrPermanent, Reason: "NameTaken"}, "create: NameTaken"},
		{"cause", &provider.Error{Op: "list", Class: provider.ErrTransient, Err: io.ErrUnexpectedEOF}, "list: unexpected EOF"},
		{"both", &provider.Error{Op: "delete", Class: provider.ErrPermanent, Reason: "NotConfigured", Err: io.EOF}, "delete: NotConfigured: EOF"},
		{"missing", provider.Missing("plan", "placement.zone"), "plan: MissingField: placement.zone is required by this provider"},
		{"unsupported", provider.Unsupported("create", "cloudInit"), "create: UnsupportedField: cloudInit cannot be honoured by this provider; remove it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.err.Error(); got != c.want {
				t.Errorf("Error() = %q, want %q", got, c.want)
			}
			if !errors.Is(c.err, c.err.Class) {
				t.Errorf("errors.Is does not find the class %s", c.err.Class)
			}
			if c.err.Err != nil && !errors.Is(c.err, c.err.Err) {
				t.Errorf("errors.Is does not find the cause %v", c.err.Err)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	if err := provider.Interrupted(canceled, "get"); err != nil {
		t.Errorf("Interrupted of a living context = %v, want nil", err)
	}
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		class provider.Class
	}{
		{"canceled", canceled, provider.ErrCanceled},
		{"late", late, provider.ErrTransient},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := provider.Interrupted(c.ctx, "get")
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Op != "get" || e.Class != c.class || !errors.Is(err, c.ctx.Err()) {
				t.Errorf("Interrupted = %#v, want an Error of get with class %s and cause %v", err, c.class, c.ctx.Err())
			}
		})
	}
}
