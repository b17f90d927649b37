package storetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
)

var deleteCases = []testCase{
	{
		name:        "delete removes a record without finalizer",
		explanation: "Delete removes the record at once where nothing keeps it; deleting an unknown name is nil.",
		run: func(f *fixture) {
			f.delete(key("a"))
			f.put(key("a"), declaration())
			f.put(key("b"), declaration())
			f.delete(key("a"))
			f.gone(key("a"))
			f.delete(key("a"))
			f.live(key("b"))
		},
	},
	{
		name:        "delete marks a record with a finalizer",
		explanation: "A finalizer keeps the record: Delete marks it and changes nothing else. A second Delete is nil and changes nothing.",
		run: func(f *fixture) {
			p := f.updateMeta(f.put(key("a"), declaration()), func(p *proxy.Proxy) { p.Finalizer = true })
			p = f.shown(f.updateStatus(p, func(s *proxy.Status) { *s = status() }))
			f.delete(key("a"))
			var now *proxy.Proxy
			f.await("Get shows the record as being deleted", func() bool {
				got, err := f.Store.Get(f.Context(), key("a"))
				if err != nil {
					f.Fatalf("Get of a record with a finalizer that was deleted: %v", err)
				}
				now = got
				return got.Deleting
			})
			want := p.Clone()
			want.Deleting = true
			f.wrote("Delete", want, now, nil)
			f.delete(key("a"))
			f.stored(now)
		},
	},
	{
		name:        "the last finalizer of a record that is being deleted removes it",
		explanation: "UpdateMeta without finalizer removes a record that is being deleted, and no other.",
		run: func(f *fixture) {
			p := f.terminating(key("a"))
			f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = false })
			f.gone(key("a"))
			f.live()

			p = f.updateMeta(f.put(key("b"), declaration()), func(p *proxy.Proxy) { p.Finalizer = true })
			p = f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = false })
			f.stored(p)
		},
	},
	{
		name:        "a record that is being deleted can be written",
		explanation: "The fleet keeps its status, and skip-cleanup comes as an annotation: both writes go on as before and do not end the deletion.",
		run: func(f *fixture) {
			p := f.terminating(key("a"))
			want := p.Clone()
			want.Status = status()
			got, err := f.Store.UpdateStatus(f.Context(), want)
			f.wrote("UpdateStatus", want, got, err)
			want = got.Clone()
			want.Annotations = map[string]string{proxy.SkipCleanupAnnotation: "true"}
			got, err = f.Store.UpdateMeta(f.Context(), want)
			f.wrote("UpdateMeta", want, got, err)
			revived := got.Clone()
			revived.Deleting = false
			revived.Annotations = nil
			want = got.Clone()
			want.Annotations = nil
			got, err = f.Store.UpdateMeta(f.Context(), revived)
			f.wrote("UpdateMeta of a record that says it is not being deleted", want, got, err)
		},
	},
	{
		name: "live holds all records as they are now",
		explanation: "Live is complete and no older than the call: records that are being deleted are in it, removed ones are " +
			"not, and each shows the instance of its last write. What is not in it is deleted in the cloud.",
		run: func(f *fixture) {
			f.live()
			external := proxy.Declaration{Spec: proxy.Spec{Mode: proxy.External,
				Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "proxy.example", Port: 3128}}}
			f.put(proxy.Key{Namespace: "other", Name: "a"}, external)
			p := f.put(key("a"), declaration())
			f.terminating(key("deleting"))
			f.live(key("a"), key("deleting"), proxy.Key{Namespace: "other", Name: "a"})
			for i := range 20 { // a cache would be caught behind
				id := fmt.Sprintf("a/p-%d", i)
				p = f.updateStatus(p, func(s *proxy.Status) { s.Phase, s.Instance.ID = proxy.Provisioning, id })
				live, err := f.Store.Live(f.Context())
				if err != nil {
					f.Fatalf("Live: %v", err)
				}
				if diff := cmp.Diff(proxy.HeldBy(p), live[p.UID]); diff != "" {
					f.Fatalf("Live after a write: -want +got:\n%s", diff)
				}
			}
			f.delete(key("a"))
			f.live(key("deleting"), proxy.Key{Namespace: "other", Name: "a"})
		},
	},
}

// live checks which records Live holds, and that it holds of each what is stored.
func (f *fixture) live(want ...proxy.Key) {
	f.Helper()
	live, err := f.Store.Live(f.Context())
	if err != nil {
		f.Fatalf("Live: %v", err)
	}
	held := map[proxy.Key]proxy.Held{}
	for uid, h := range live {
		if _, twice := held[h.Key]; twice || uid == "" {
			f.Errorf("Live holds %v twice, or under no UID", h.Key)
		}
		held[h.Key] = h
	}
	for _, k := range want {
		p, err := f.Store.Get(f.Context(), k)
		if err != nil {
			f.Fatalf("Get %v: %v", k, err)
		}
		if diff := cmp.Diff(proxy.HeldBy(p), live[p.UID]); diff != "" {
			f.Errorf("Live of %v: -want +got:\n%s", k, diff)
		}
	}
	if len(live) != len(want) {
		f.Errorf("Live holds %v, want %v", slices.SortedFunc(maps.Keys(held), proxy.Key.Compare), want)
	}
}
