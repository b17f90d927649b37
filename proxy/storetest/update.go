package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// write is one of the two writes of a store, and a change that it makes.
type write struct {
	name   string
	do     func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)
	change func(*proxy.Proxy)
}

func (f *fixture) writes() []write {
	return []write{
		{"UpdateStatus", f.Store.UpdateStatus, func(p *proxy.Proxy) { p.Status.LatencyMillis++ }},
		{"UpdateMeta", f.Store.UpdateMeta, func(p *proxy.Proxy) { p.Finalizer = !p.Finalizer }},
	}
}

var updateCases = []testCase{
	{
		name:        "a status write from a stale read conflicts",
		explanation: "UpdateStatus compares the version: of two writes from one read the second is ErrConflict and writes nothing, whatever the first one wrote.",
		run:         func(f *fixture) { f.staleWrite(f.writes()[0]) },
	},
	{
		name:        "a metadata write from a stale read conflicts",
		explanation: "UpdateMeta compares the version: of two writes from one read the second is ErrConflict and writes nothing, whatever the first one wrote.",
		run:         func(f *fixture) { f.staleWrite(f.writes()[1]) },
	},
	{
		name: "a write that changes nothing still compares",
		explanation: "It is ErrConflict from a stale read; from a current one it succeeds and keeps the version. Callers make " +
			"sure by it that what they read is what is stored, before they delete an instance.",
		run: func(f *fixture) {
			old := f.put(key("a"), declaration())
			now := f.shown(f.updateStatus(old, func(s *proxy.Status) { s.Phase = proxy.Pending }))
			stale := now.Clone()
			stale.Version = old.Version
			for _, w := range f.writes() {
				_, err := w.do(f.Context(), stale.Clone())
				f.refused(w.name+" that changes nothing, from a stale read", err, proxy.ErrConflict, now)
				got, err := w.do(f.Context(), now.Clone())
				if err != nil {
					f.Fatalf("%s that changes nothing: %v", w.name, err)
				}
				f.same(w.name+" that changes nothing", now, got)
			}
		},
	},
	{
		name:        "a status write writes nothing else",
		explanation: "UpdateStatus takes the status of its argument and leaves metadata and spec as they are stored.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			want := p.Clone()
			want.Status = status()
			got, err := f.Store.UpdateStatus(f.Context(), scribbled(p, status()))
			f.wrote("UpdateStatus", want, got, err)
		},
	},
	{
		name:        "a metadata write writes nothing else",
		explanation: "UpdateMeta takes finalizer and annotations of its argument and leaves status and spec as they are stored.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			p = f.shown(f.updateStatus(p, func(s *proxy.Status) { *s = status() }))
			edited := scribbled(p, proxy.Status{Phase: proxy.Failed})
			want := p.Clone()
			want.Finalizer, want.Annotations = edited.Finalizer, edited.Annotations
			got, err := f.Store.UpdateMeta(f.Context(), edited)
			f.wrote("UpdateMeta", want, got, err)

			edited = got.Clone()
			edited.Annotations = nil
			want = edited.Clone()
			got, err = f.Store.UpdateMeta(f.Context(), edited)
			f.wrote("UpdateMeta without annotations", want, got, err)
		},
	},
	{
		name:        "a record of an earlier life conflicts",
		explanation: "Both writes compare UID and version, and versions do not repeat: a name that was removed and declared again is not written by whoever read the earlier record.",
		run: func(f *fixture) {
			seen := map[string]bool{}
			first := f.put(key("a"), declaration())
			lives := []*proxy.Proxy{first, f.shown(f.updateStatus(first, func(s *proxy.Status) { s.Phase = proxy.Pending }))}
			f.delete(key("a"))
			f.gone(key("a"))
			now := f.put(key("a"), declaration())
			if now.Generation != 1 {
				f.Errorf("the next life begins with generation %d", now.Generation)
			}
			lives = append(lives, now)
			for _, p := range lives {
				if seen[p.Version] {
					f.Errorf("version %s names two states", p.Version)
				}
				seen[p.Version] = true
			}
			otherUID := now.Clone()
			otherUID.UID = "00000000-0000-4000-8000-000000000000"
			for _, w := range f.writes() {
				for what, p := range map[string]*proxy.Proxy{
					" from the first state of an earlier life": lives[0],
					" from the last state of an earlier life":  lives[1],
					" with the UID of another life":            otherUID,
				} {
					p = p.Clone()
					w.change(p)
					_, err := w.do(f.Context(), p)
					f.refused(w.name+what, err, proxy.ErrConflict, now)
				}
			}
		},
	},
	{
		name:        "writes of an unknown name are not found",
		explanation: "Get, UpdateStatus and UpdateMeta say ErrNotFound where there is no record, also after one was removed.",
		run: func(f *fixture) {
			notFound := func(what string, err error) {
				if !errors.Is(err, proxy.ErrNotFound) {
					f.Errorf("%s: got error %v, want ErrNotFound", what, err)
				}
			}
			_, err := f.Store.Get(f.Context(), key("a"))
			notFound("Get of a name that was never declared", err)
			p := f.put(key("a"), declaration())
			f.delete(key("a"))
			for _, w := range f.writes() {
				w.change(p)
				_, err := w.do(f.Context(), p)
				notFound(w.name+" of a removed record", err)
			}
			f.gone(key("a"))
		},
	},
	{
		name:        "of writers from one read exactly one wins",
		explanation: "Of many concurrent writes from one read one succeeds and the others are ErrConflict; of many callers of proxy.Update none is lost.",
		run:         concurrentWriters,
	},
}

// staleWrite makes each kind of write, and then w from what was read before it.
func (f *fixture) staleWrite(w write) {
	f.Helper()
	old := f.put(key("a"), declaration())
	stale := func(what string, now *proxy.Proxy) {
		f.Helper()
		f.shown(now)
		p := old.Clone()
		w.change(p)
		_, err := w.do(f.Context(), p)
		f.refused(w.name+" from what was read before "+what, err, proxy.ErrConflict, now)
		old = now
	}
	stale("a status write", f.updateStatus(old, func(s *proxy.Status) { s.Phase = proxy.Failed }))
	stale("a metadata write", f.updateMeta(old, func(p *proxy.Proxy) { p.Annotations = map[string]string{"a": "b"} }))
	d := declaration()
	d.Spec.Port = 8080
	stale("an edit", f.put(key("a"), d))
}

// scribbled returns p with another value in every part.
func scribbled(p *proxy.Proxy, s proxy.Status) *proxy.Proxy {
	c := p.Clone()
	c.Created = proxy.At(c.Created.Std().Add(-time.Hour))
	c.Generation += 10
	c.Deleting, c.Finalizer = !c.Deleting, !c.Finalizer
	c.Annotations = map[string]string{"scribbled": "yes"}
	c.Spec.Port = 1
	c.Spec.Attributes = map[string]string{"scribbled": "yes"}
	c.Status = s
	return c
}

// wrote checks what a write returned, but for its version, which is new, and that it is stored.
func (f *fixture) wrote(what string, want, got *proxy.Proxy, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
	if got.Version == want.Version {
		f.Errorf("%s kept version %s", what, got.Version)
	}
	want = want.Clone()
	want.Version = got.Version
	f.same(what, want, got)
	f.stored(want)
}

func concurrentWriters(f *fixture) {
	const writers, rounds = 8, 5
	p := f.put(key("a"), declaration())
	for _, w := range f.writes() {
		results := make([]error, writers)
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				q := p.Clone()
				w.change(q)
				_, results[i] = w.do(f.Context(), q)
			})
		}
		group.Wait()
		won := 0
		for _, err := range results {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, proxy.ErrConflict):
				f.Errorf("%s: got error %v, want none or ErrConflict", w.name, err)
			}
		}
		if won != 1 {
			f.Fatalf("%s: %d of %d writers from one read won", w.name, won, writers)
		}
		var err error
		if p, err = f.Store.Get(f.Context(), key("a")); err != nil {
			f.Fatalf("Get: %v", err)
		}
	}

	before := p.Status.LatencyMillis
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range rounds {
				_, err := proxy.Update(f.Context(), f.Store, key("a"), f.Store.UpdateStatus, func(p *proxy.Proxy) error {
					p.Status.LatencyMillis++
					return nil
				})
				if err != nil {
					f.Errorf("Update: %v", err)
				}
			}
		})
	}
	group.Wait()
	p, err := f.Store.Get(f.Context(), key("a"))
	if err != nil {
		f.Fatalf("Get: %v", err)
	}
	if got := p.Status.LatencyMillis - before; got != writers*rounds {
		f.Errorf("%d of %d increments are stored", got, writers*rounds)
	}
}
