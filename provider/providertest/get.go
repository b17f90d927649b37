package providertest

import (
	"github.com/proxyfleet/fleet/provider"
)

func getNeverMade(b *bench) {
	if in, err := b.get(b.planned(b.request())); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Get returned %+v and %v, want NotFound", in, err)
	}
}

func getFails(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(GetFails)
	got, err := b.get(refOf(in))
	if b.retried(err) && got.Incarnation != in.Incarnation {
		b.Errorf("Get returned the incarnation %q, want %q", got.Incarnation, in.Incarnation)
	}
	b.stays(in)
}

func getIgnoresIncarnation(b *bench) {
	in := b.mustCreate(b.request())
	ref := refOf(in)
	ref.Incarnation = "another-incarnation"
	for _, ref := range []provider.Ref{ref, anyOf(in)} {
		if got, err := b.get(ref); err != nil || got.Incarnation != in.Incarnation {
			b.Errorf("Get with the incarnation %q returned %q and %v, want %q", ref.Incarnation, got.Incarnation, err, in.Incarnation)
		}
	}
}
