package storetest

import (
	"errors"
	"maps"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/proxy"
)

var declareCases = []testCase{
	{
		name: "put makes a record",
		explanation: "Put of a new name returns a record with a UID, a version, the time of its creation, generation 1, the canonical " +
			"spec, the declared annotations and an empty status, and Get shows the same.",
		run: func(f *fixture) {
			d := declaration()
			p := f.put(key("a"), d)
			if off := time.Since(p.Created.Std()).Abs(); off > patience {
				f.Errorf("Put: created %v, which is off by %v", p.Created, off)
			}
			if p.UID == "" || p.Version == "" {
				f.Errorf("Put: UID %q and version %q, want both", p.UID, p.Version)
			}
			want := &proxy.Proxy{Key: key("a"), UID: p.UID, Created: p.Created, Version: p.Version, Generation: 1, Annotations: d.Annotations, Spec: d.Spec.Canonical()}
			f.same("Put", want, p)
			f.stored(want)
		},
	},
	{
		name:        "put of the same declaration writes nothing",
		explanation: "A declaration that means the same, however it is spelled, leaves version and generation as they are.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			spelled := declaration()
			spelled.Spec = spelled.Spec.Canonical()
			f.same("Put of the canonical spec", p, f.put(key("a"), spelled))
			f.same("Put of the short spec", p, f.put(key("a"), declaration()))
			f.stored(p)
		},
	},
	{
		name:        "the generation rises with the spec alone",
		explanation: "Each edit of the canonical spec raises the generation by one; annotations, finalizer and status do not.",
		run: func(f *fixture) {
			d := declaration()
			p := f.put(key("a"), d)
			want := int64(1)
			step := func(what string, got *proxy.Proxy) {
				if got.Generation != want {
					f.Fatalf("after %s the generation is %d, want %d", what, got.Generation, want)
				}
				if got.Version == p.Version {
					f.Fatalf("after %s the version is still %s", what, p.Version)
				}
				p = f.shown(got)
				f.stored(p)
			}
			d.Annotations = map[string]string{"team": "ads"}
			step("other annotations", f.put(key("a"), d))
			step("a finalizer", f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = true }))
			step("a status", f.updateStatus(p, func(s *proxy.Status) { *s = status() }))
			want = 2
			d.Spec.Attributes = map[string]string{"region": "us"}
			step("an edit of the attributes", f.put(key("a"), d))
			want = 3
			d.Spec.CloudInit = nil
			step("an edit that leaves something out", f.put(key("a"), d))
		},
	},
	{
		name:        "put writes neither status nor finalizer",
		explanation: "A declaration is about spec and annotations; what the fleet knows of the proxy stays.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			p = f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = true })
			p = f.shown(f.updateStatus(p, func(s *proxy.Status) { *s = status() }))
			d := declaration()
			d.Spec.Port = 8080
			d.Annotations = nil
			got := f.put(key("a"), d)
			want := p.Clone()
			want.Version, want.Generation, want.Spec, want.Annotations = got.Version, 2, d.Spec.Canonical(), nil
			f.same("Put", want, got)
			f.stored(want)
		},
	},
	{
		name:        "put refuses what is not valid",
		explanation: "A spec that Validate refuses and a key that ValidateKey refuses are an error with a FieldError, and change nothing.",
		run: func(f *fixture) {
			bad := declaration()
			bad.Spec.Port = 70000
			_, err := f.Store.Put(f.Context(), key("new"), bad, source)
			f.fieldError("an invalid spec for a new name", err)
			_, err = f.Store.Put(f.Context(), key("Not_A_Label"), declaration(), source)
			f.fieldError("an invalid name", err)
			if keys, err := f.Store.Declared(f.Context(), source); err != nil || len(keys) != 0 {
				f.Errorf("Declared: %v, %v; want nothing", keys, err)
			}
			p := f.put(key("a"), declaration())
			_, err = f.Store.Put(f.Context(), key("a"), bad, source)
			f.fieldError("an invalid edit", err)
			f.stored(p)
		},
	},
	{
		name:        "put refuses another mode",
		explanation: "An edit that ValidateUpdate refuses is an error in whose tree ErrImmutable is, and changes nothing.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			external := proxy.Declaration{Spec: proxy.Spec{Mode: proxy.External,
				Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "proxy.example", Port: 3128}}}
			_, err := f.Store.Put(f.Context(), key("a"), external, source)
			f.refused("Put of mode External over Managed", err, proxy.ErrImmutable, p)
		},
	},
	{
		name:        "put refuses the name of another source",
		explanation: "A record belongs to the source that first declared it: ErrOtherSource for others, and nothing changes.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			d := declaration()
			d.Spec.Port = 8080
			_, err := f.Store.Put(f.Context(), key("a"), d, "another")
			f.refused("Put by another source", err, proxy.ErrOtherSource, p)
			_, err = f.Store.Put(f.Context(), key("a"), declaration(), "another")
			f.refused("Put of the same declaration by another source", err, proxy.ErrOtherSource, p)
		},
	},
	{
		name:        "put refuses a name that is being deleted",
		explanation: "ErrTerminating until the earlier proxy is gone, and nothing changes; then the name is free, for any source.",
		run: func(f *fixture) {
			p := f.terminating(key("a"))
			_, err := f.Store.Put(f.Context(), key("a"), declaration(), source)
			f.refused("Put of a name that is being deleted", err, proxy.ErrTerminating, p)
			f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = false })
			f.gone(key("a"))
			if _, err := f.Store.Put(f.Context(), key("a"), declaration(), "another"); err != nil {
				f.Errorf("Put after it is gone: %v", err)
			}
		},
	},
	{
		name: "annotations that others set survive a declaration",
		explanation: "What the API wrote stays when the document is declared again, also where it wrote over a declared " +
			"annotation; only a document that itself changed an annotation changes it.",
		run: func(f *fixture) {
			d := declaration()
			d.Annotations = map[string]string{"declared": "1", "overwritten": "1"}
			p := f.put(key("a"), d)
			p = f.shown(f.updateMeta(p, func(p *proxy.Proxy) {
				p.Annotations = map[string]string{"declared": "1", "overwritten": "by API", "added": "by API"}
			}))
			f.same("the same declaration", p, f.put(key("a"), d))
			d.Annotations = map[string]string{"declared": "2", "overwritten": "1"}
			f.annotations("a changed value", f.put(key("a"), d), map[string]string{"declared": "2", "overwritten": "by API", "added": "by API"})
			d.Annotations = map[string]string{"declared": "2", "overwritten": "3"}
			p = f.put(key("a"), d)
			f.annotations("a changed value over the API's", p, map[string]string{"declared": "2", "overwritten": "3", "added": "by API"})
			f.shown(f.updateMeta(p, func(p *proxy.Proxy) { p.Annotations["overwritten"] = "by API" }))
			delete(d.Annotations, "overwritten")
			f.annotations("one left out that the API wrote over", f.put(key("a"), d), map[string]string{"declared": "2", "overwritten": "by API", "added": "by API"})
		},
	},
	{
		name:        "annotations that a declaration leaves out are removed",
		explanation: "Put removes what its source declared before and leaves out now, and nothing else.",
		run: func(f *fixture) {
			d := declaration()
			d.Annotations = map[string]string{"kept": "1", "dropped": "1"}
			p := f.put(key("a"), d)
			f.shown(f.updateMeta(p, func(p *proxy.Proxy) { p.Annotations["added"] = "by API" }))
			delete(d.Annotations, "dropped")
			f.annotations("one left out", f.put(key("a"), d), map[string]string{"kept": "1", "added": "by API"})
			d.Annotations = nil
			f.annotations("all left out", f.put(key("a"), d), map[string]string{"added": "by API"})
		},
	},
	{
		name:        "declared lists the keys of a source",
		explanation: "Declared returns the keys of one source in order, without those that are being deleted: a name that it does not return may be declared, one that it does may be deleted.",
		run: func(f *fixture) {
			f.terminating(key("deleting"))
			for _, k := range []proxy.Key{key("b"), {Namespace: "other", Name: "a"}, key("a")} {
				f.put(k, declaration())
			}
			p, err := f.Store.Put(f.Context(), key("c"), declaration(), "another")
			if err != nil {
				f.Fatalf("Put: %v", err)
			}
			f.shown(p)
			f.declared(source, key("a"), key("b"), proxy.Key{Namespace: "other", Name: "a"})
			f.declared("another", key("c"))
			f.declared("nobody")
			f.delete(key("a"))
			f.gone(key("a"))
			f.declared(source, key("b"), proxy.Key{Namespace: "other", Name: "a"})
		},
	},
}

// fieldError checks that an error names a field.
func (f *fixture) fieldError(what string, err error) {
	f.Helper()
	if _, ok := errors.AsType[*proxy.FieldError](err); !ok {
		f.Errorf("%s: got error %v, want a FieldError", what, err)
	}
}

// annotations checks those of a record that Put returned, and that they are stored.
func (f *fixture) annotations(what string, p *proxy.Proxy, want map[string]string) {
	f.Helper()
	if !maps.Equal(p.Annotations, want) {
		f.Fatalf("Put with %s: annotations %v, want %v", what, p.Annotations, want)
	}
	f.stored(p)
}

// declared checks what Declared returns.
func (f *fixture) declared(source string, want ...proxy.Key) {
	f.Helper()
	got, err := f.Store.Declared(f.Context(), source)
	if err != nil {
		f.Fatalf("Declared: %v", err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		f.Errorf("Declared(%q): -want +got:\n%s", source, diff)
	}
}
