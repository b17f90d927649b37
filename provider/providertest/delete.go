package providertest

import (
	"github.com/proxyfleet/fleet/provider"
)

func deleteCase(b *bench) {
	r := b.request()
	in, other := b.mustCreate(r), b.mustCreate(b.request())
	b.mustDelete(refOf(in))
	if next := b.mustCreate(b.again(r)); next.Incarnation == in.Incarnation {
		b.Errorf("the successor has the incarnation of the instance that is gone, %q", in.Incarnation)
	}
	b.stays(other)
}

func deleteNeverMade(b *bench) {
	if err := b.delete(b.planned(b.request())); err != nil {
		b.Errorf("Delete returned %v, want nil", err)
	}
}

func deleteTwice(b *bench) {
	in := b.mustCreate(b.request())
	for range 2 {
		if err := b.delete(refOf(in)); err != nil {
			b.Errorf("Delete of an instance that goes returned %v, want nil", err)
		}
	}
	b.awaitGone(refOf(in))
	for _, ref := range []provider.Ref{refOf(in), anyOf(in)} {
		if err := b.delete(ref); err != nil {
			b.Errorf("Delete of an instance that is gone returned %v, want nil", err)
		}
	}
}

func deleteAny(b *bench) {
	in := b.mustCreate(b.request())
	b.mustDelete(anyOf(in))
}

func deleteLate(b *bench) {
	r := b.request()
	old := b.mustCreate(r)
	b.mustDelete(refOf(old))
	next := b.mustCreate(b.again(r))
	if err := b.delete(refOf(old)); err != nil {
		b.Errorf("Delete of the instance that went before returned %v, want nil", err)
	}
	b.stays(next)
	b.onlyOne(next)
}

func deleteFails(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(DeleteFails)
	if b.retried(b.delete(refOf(in))) {
		b.awaitGone(refOf(in))
		return
	}
	b.stays(in)
	b.mustDelete(refOf(in))
}

func deleteUnanswered(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(DeleteUnanswered)
	b.retried(b.delete(refOf(in)))
	b.mustDelete(refOf(in))
}
