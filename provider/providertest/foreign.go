package providertest

import (
	"errors"

	"github.com/proxyfleet/fleet/provider"
)

func createForeignFleet(b *bench) {
	r := b.request()
	foreign := r
	foreign.Marks = provider.Marks{Fleet: theirs, UID: r.Marks.UID, Hash: r.Marks.Hash}
	b.plant(foreign)
	b.notOurs(r)
	b.notListed(r)
	if b.Plant != nil {
		return
	}
	b.open(theirs)
	b.stays(b.awaitRunning(provider.Ref{ID: b.planned(r).ID, UID: r.Marks.UID}))
}

func createOtherUID(b *bench) {
	r := b.request()
	other := b.again(r)
	other.Marks.UID = "uid-of-another-proxy"
	in := b.mustCreate(other)
	b.notOurs(r)
	b.stays(in)
}

func createUnmarked(b *bench) {
	if b.Plant == nil {
		b.Skipf("the harness cannot plant an instance without marks")
	}
	r := b.request()
	unmarked := r
	unmarked.Marks = provider.Marks{}
	b.plant(unmarked)
	b.notOurs(r)
	b.notListed(r)
}

// plant puts an instance into the backend that is not ours, and opens the provider for our fleet again.
func (b *bench) plant(r provider.Request) {
	b.Helper()
	if b.Plant != nil {
		b.Plant(b.TB, r)
		return
	}
	if !b.Outlives {
		b.Skipf("the harness cannot plant an instance, and its own do not outlive the provider")
	}
	b.open(theirs)
	b.mustCreate(r)
	b.open(ours)
}

// notOurs says that the instance under the name of r is not treated as ours, by any method, and stays.
func (b *bench) notOurs(r provider.Request) {
	b.Helper()
	ref := b.planned(r)
	taken := func() {
		b.Helper()
		_, err := b.create(b.again(r))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != provider.NameTaken {
			b.Errorf("Create under a name that is taken returned %v, want a permanent %s", err, provider.NameTaken)
		}
	}
	taken()
	if in, err := b.get(ref); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Get of what is not ours returned %+v and %v, want NotFound", in, err)
	}
	if err := b.delete(ref); err != nil {
		b.Errorf("Delete of what is not ours returned %v, want nil", err)
	}
	taken()
}

// notListed says that List has nothing under the ID of r.
func (b *bench) notListed(r provider.Request) {
	b.Helper()
	if in, ok := b.mustList()[b.planned(r).ID]; ok {
		b.Errorf("List has an instance that is not of our fleet: %+v", in)
	}
}
