package providertest

import (
	"fmt"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

func create(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	if in.Marks != r.Marks {
		b.Errorf("the instance has the marks %+v, want %+v", in.Marks, r.Marks)
	}
	if in.Incarnation == "" {
		b.Errorf("the instance is Running without an incarnation")
	}
	if in.Host == "" {
		b.Errorf("the instance is Running without a host")
	}
	if in.Port < 0 || in.Port > 65535 || (in.Port == 0 && r.Port == 0) {
		b.Errorf("the instance has the port %d, and the request %d: nobody knows where it listens", in.Port, r.Port)
	}
	if age := time.Since(in.Created); !in.Created.IsZero() && (age < -time.Hour || age > time.Hour) {
		b.Errorf("an instance made just now says it was made at %v", in.Created)
	}
}

func createTwice(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	for _, repeat := range []provider.Request{r, b.again(r)} {
		met, err := b.create(repeat)
		if err != nil {
			b.Fatalf("Create of an instance that is there: %v", err)
		}
		if met.ID != in.ID || met.Incarnation != in.Incarnation {
			b.Errorf("Create returned %s/%s where %s/%s is", met.ID, met.Incarnation, in.ID, in.Incarnation)
		}
	}
	b.onlyOne(in)
}

// onlyOne says that in is the one instance of our fleet.
func (b *bench) onlyOne(in provider.Instance) {
	b.Helper()
	b.stays(in)
	b.listsOnly(in)
}

// listsOnly says that List comes to have in and nothing else.
func (b *bench) listsOnly(in provider.Instance) {
	b.Helper()
	b.eventually("List has the one instance and no other", func() error {
		all, err := b.list()
		if err == nil && (len(all) != 1 || all[0].Incarnation != in.Incarnation) {
			err = fmt.Errorf("it has %+v", all)
		}
		return err
	})
}

func createMeetsOtherHash(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	edited := b.again(r)
	edited.Marks.Hash = "v1-fedcba9876543210"
	met, err := b.create(edited)
	if err != nil {
		b.Fatalf("Create of an instance that is there with another hash: %v", err)
	}
	if met.Marks != r.Marks {
		b.Errorf("Create returned the marks %+v, want those of the instance, %+v", met.Marks, r.Marks)
	}
	b.stays(in)
	if now := b.awaitRunning(refOf(in)); now.Marks != r.Marks {
		b.Errorf("Create changed the marks of the instance that it met to %+v", now.Marks)
	}
}

func createFails(b *bench) {
	r := b.request()
	ref := b.planned(r)
	b.inject(CreateFails)
	_, err := b.create(r)
	if b.retried(err) {
		b.onlyOne(b.mustCreate(b.again(r)))
		return
	}
	b.awaitGone(ref)
	b.onlyOne(b.mustCreate(b.again(r)))
}

// retried says whether a provider got over a fault by itself, which it may. Else the error is to be transient.
func (b *bench) retried(err error) bool {
	b.Helper()
	if err != nil && provider.ClassOf(err) != provider.ErrTransient {
		b.Errorf("while its backend was in trouble, a method returned %v, want success after all or a transient error", err)
	}
	return err == nil
}

func createUnanswered(b *bench) {
	r := b.request()
	b.inject(CreateUnanswered)
	half, err := b.create(r)
	b.retried(err)
	in := b.mustCreate(b.again(r))
	if half.Incarnation != "" && half.Incarnation != in.Incarnation {
		b.Errorf("the first Create returned the incarnation %q, and the second %q", half.Incarnation, in.Incarnation)
	}
	b.onlyOne(in)
}
