package fleet

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/proxyfleet/fleet/proxy"
)

// wake decides which changes of a record call for a pass at once. A pass writes the status of its record, and that alone is
// no reason for another: the pass has said when the next one is due. If it were, an error whose text differs each time, by a
// port or the ID of a request, would have the provider asked without a pause. It is used by one goroutine.
type wake struct {
	store proxy.Store
	seed  maphash.Seed
	seen  map[proxy.Key]uint64 // a digest of what others than the reconciler decide
}

func newWake(s proxy.Store) *wake {
	return &wake{store: s, seed: maphash.MakeSeed(), seen: map[proxy.Key]uint64{}}
}

// up says whether a change of a record is more than one of its status. What cannot be read is left to a pass.
func (w *wake) up(ctx context.Context, k proxy.Key) bool {
	p, err := w.store.Get(ctx, k)
	if err != nil {
		delete(w.seen, k)
		return true
	}
	sum := w.digest(ctx, p)
	last, known := w.seen[k]
	w.seen[k] = sum
	return !known || sum != last
}

// digest is of what somebody else has written: the declaration, its annotations, and what it refers to.
func (w *wake) digest(ctx context.Context, p *proxy.Proxy) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	write := func(parts ...any) {
		for _, part := range parts {
			maphash.WriteComparable(&h, part)
		}
	}
	write(p.UID, p.Generation, p.Deleting, p.Finalizer)
	for _, name := range slices.Sorted(maps.Keys(p.Annotations)) {
		write(name, p.Annotations[name])
	}
	in, err := w.store.Inputs(ctx, p)
	if input, ok := errors.AsType[*proxy.InputError](err); ok {
		write(input.Reason, input.Error())
	}
	write(in.CloudInit.Reveal(), in.Username.Reveal(), in.Password.Reveal())
	return h.Sum64()
}
