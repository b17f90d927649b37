package providertest

func restart(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	b.open(ours)
	if !b.Outlives {
		b.awaitGone(refOf(in))
		if next := b.mustCreate(b.again(r)); next.Incarnation == in.Incarnation {
			b.Errorf("the incarnation %q came back with the provider", in.Incarnation)
		}
		return
	}
	now := b.awaitRunning(refOf(in))
	if now.Incarnation != in.Incarnation || now.Marks != in.Marks || now.Host != in.Host || now.Port != in.Port {
		b.Errorf("the instance was %+v, and is %+v", in, now)
	}
	if met := b.mustCreate(b.again(r)); met.Incarnation != in.Incarnation {
		b.Errorf("Create made the incarnation %q where %q outlived the provider", met.Incarnation, in.Incarnation)
	}
	b.onlyOne(in)
	b.mustDelete(refOf(in))
	b.open(ours)
	b.awaitGone(refOf(in))
}
