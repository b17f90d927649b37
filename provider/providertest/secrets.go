package providertest

import (
	"context"
)

// secrets provokes errors; the bench looks for secrets in all that comes back, here and in every other case.
func secrets(b *bench) {
	r := b.request()
	if r.CloudInit.IsZero() && r.Credentials.IsZero() {
		b.Skipf("the harness makes requests without a secret")
	}
	for _, s := range b.secrets {
		if n := len(s.Reveal()); n > 0 && n < 12 {
			b.Fatalf("the harness makes requests with a secret of %d characters, which may occur by chance", n)
		}
	}
	other := b.again(r)
	other.Marks.UID = "uid-of-another-proxy"
	in := b.mustCreate(r)
	_, _ = b.create(other)
	_, _ = b.list()
	for _, edit := range b.Refused {
		bad := b.request()
		edit(&bad)
		_, _ = b.plan(bad)
		_, _ = b.create(bad)
	}
	for _, f := range []Fault{CreateFails, CreateUnanswered} {
		if b.Inject(f) {
			_, _ = b.create(b.request())
		}
	}
	if b.Inject(GetFails) {
		_, _ = b.get(refOf(in))
	}
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	for _, c := range b.calls(b.request(), in) {
		b.judge(c.op, c.do(ctx))
	}
}
