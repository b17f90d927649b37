package providertest

import (
	"context"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// call is one method with a context.
type call struct {
	op string
	do func(context.Context) error
}

// calls are the methods that go to the backend: a Create of r, and the others for in.
func (b *bench) calls(r provider.Request, in provider.Instance) []call {
	return []call{
		{"create", func(ctx context.Context) error { _, err := b.provider.Create(ctx, r); return err }},
		{"get", func(ctx context.Context) error { _, err := b.provider.Get(ctx, refOf(in)); return err }},
		{"delete", func(ctx context.Context) error { return b.provider.Delete(ctx, refOf(in)) }},
		{"list", func(ctx context.Context) error { _, err := b.provider.List(ctx); return err }},
	}
}

func canceled(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	b.sendsNothing(ctx, provider.ErrCanceled)
}

func deadlinePassed(b *bench) {
	ctx, cancel := context.WithDeadline(b.Context(), time.Now().Add(-time.Minute))
	defer cancel()
	b.sendsNothing(ctx, provider.ErrTransient)
}

// sendsNothing says that calls with a context that has ended fail with that class and change nothing.
func (b *bench) sendsNothing(ctx context.Context, class provider.Class) {
	b.Helper()
	in, r := b.mustCreate(b.request()), b.request()
	ref := b.planned(r)
	for _, c := range b.calls(r, in) {
		err := b.ends(c.op, func() error { return c.do(ctx) })
		if provider.ClassOf(err) != class {
			b.Errorf("%s with a context that has ended returned %v, want the class %s", c.op, err, class)
		}
	}
	if made, err := b.get(ref); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Create with a context that has ended made something: Get returns %+v and %v", made, err)
	}
	b.onlyOne(in)
}

func canceledUnderWay(b *bench) {
	in, r := b.mustCreate(b.request()), b.request()
	b.inject(Hangs)
	for _, c := range b.calls(r, in) {
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(2*pollEvery, cancel)
		err := b.ends(c.op, func() error { return c.do(ctx) })
		if err == nil && c.op == "get" {
			continue // it was answered from what the provider had seen a moment ago
		}
		if provider.ClassOf(err) != provider.ErrCanceled {
			b.Errorf("%s that was canceled while the backend hung returned %v, want the class %s", c.op, err, provider.ErrCanceled)
		}
	}
}

func withoutRun(b *bench) {
	if _, ok := provider.As[provider.Runner](b.provider); !ok {
		b.Skipf("the provider has no Run")
	}
	in := b.mustCreate(b.request())
	b.close()
	b.endByContext(in, "after Run")
	b.openOnly(ours)
	b.endByContext(in, "before Run")
}

// endByContext says that calls end soon after their context, whatever they return.
func (b *bench) endByContext(in provider.Instance, when string) {
	b.Helper()
	b.Logf("Calls %s", when)
	for _, c := range b.calls(b.request(), in) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*pollEvery)
		_ = b.ends(c.op, func() error { return c.do(ctx) })
		cancel()
	}
}
