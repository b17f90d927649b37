package provider_test

import (
	"context"
	"testing"

	"github.com/proxyfleet/fleet/provider"
)

// plain has no abilities, and runner has one.
type plain struct{ provider.Provider }

type runner struct{ plain }

func (runner) Run(context.Context) error { return nil }

type wrapper struct{ provider.Provider }

func (w wrapper) Unwrap() provider.Provider { return w.Provider }

func TestAs(t *testing.T) {
	for _, c := range []struct {
		name string
		p    provider.Provider
		want bool
	}{
		{"nil", nil, false},
		{"without the ability", plain{}, false},
		{"with the ability", runner{}, true},
		{"behind decorators", wrapper{wrapper{runner{}}}, true},
		{"behind decorators, without", wrapper{plain{}}, false},
		{"behind what cannot be unwrapped", plain{runner{}}, false},
		{"a decorator of nothing", wrapper{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ok := provider.As[provider.Runner](c.p)
			if ok != c.want || (r != nil) != c.want {
				t.Errorf("As = %v, %v, want %v", r, ok, c.want)
			}
		})
	}
}

func TestAsReturnsTheOutermost(t *testing.T) {
	inner := wrapper{plain{}}
	got, ok := provider.As[wrapper](wrapper{inner})
	if want := (wrapper{inner}); !ok || got != want {
		t.Errorf("As = %v, %v, want the outermost of two", got, ok)
	}
}

func TestCredentialsIsZero(t *testing.T) {
	if !(provider.Credentials{}).IsZero() {
		t.Error("the zero value asks for something")
	}
}
