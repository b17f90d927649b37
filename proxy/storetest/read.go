package storetest

import (
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

var readCases = []testCase{
	{
		name:        "get never goes back behind an own write",
		explanation: "An answer may be stale, but within one process it is never older than what the store answered or wrote before: what a write returned, the next Get and List show.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			for i := range 50 {
				if i%2 == 0 {
					p = f.updateStatus(p, func(s *proxy.Status) { s.LatencyMillis++ })
				} else {
					p = f.updateMeta(p, func(p *proxy.Proxy) { p.Annotations = map[string]string{"n": fmt.Sprint(i)} })
				}
				got, err := f.Store.Get(f.Context(), key("a"))
				if err != nil {
					f.Fatalf("Get: %v", err)
				}
				f.same("Get after a write", p, got)
				f.list(p)
			}
		},
	},
	{
		name:        "list returns all records in order",
		explanation: "List is in the order of the keys, by namespace and then name, with records that are being deleted; one name in two namespaces is two records.",
		run: func(f *fixture) {
			f.list()
			deleting := f.terminating(key("m"))
			other := f.put(proxy.Key{Namespace: "other", Name: "a"}, declaration())
			z := f.put(key("z"), declaration())
			a := f.put(key("a"), declaration())
			if a.UID == other.UID || a.UID == z.UID {
				f.Errorf("different names have one UID: %s", a.UID)
			}
			f.list(a, deleting, z, other)
		},
	},
	{
		name:        "results belong to the caller",
		explanation: "Whatever a caller does to what it was given, or to what it gave, changes nothing in the store.",
		run: func(f *fixture) {
			d := declaration()
			p := f.put(key("a"), d)
			want := p.Clone()
			scribble(&proxy.Proxy{Annotations: d.Annotations, Spec: d.Spec})
			scribble(p)
			f.stored(want)
			f.same("Put of the same declaration", want, f.put(key("a"), declaration()))

			given := want.Clone()
			given.Status = status()
			written, err := f.Store.UpdateStatus(f.Context(), given)
			if err != nil {
				f.Fatalf("UpdateStatus: %v", err)
			}
			want = written.Clone()
			scribble(given)
			scribble(written)
			f.stored(want)

			given = want.Clone()
			given.Annotations = map[string]string{"new": "1"}
			if written, err = f.Store.UpdateMeta(f.Context(), given); err != nil {
				f.Fatalf("UpdateMeta: %v", err)
			}
			want = written.Clone()
			scribble(given)
			scribble(written)
			f.stored(want)

			for what, read := range map[string]func() (*proxy.Proxy, error){
				"Get": func() (*proxy.Proxy, error) { return f.Store.Get(f.Context(), key("a")) },
				"List": func() (*proxy.Proxy, error) {
					all, err := f.Store.List(f.Context())
					if err != nil || len(all) != 1 {
						return nil, errors.Join(err, fmt.Errorf("%d records, want 1", len(all)))
					}
					return all[0], nil
				},
				"a write that changes nothing": func() (*proxy.Proxy, error) { return f.Store.UpdateStatus(f.Context(), want.Clone()) },
			} {
				got, err := read()
				if err != nil {
					f.Fatalf("%s: %v", what, err)
				}
				scribble(got)
				f.stored(want)
				f.list(want)
			}
		},
	},
	{
		name:        "inputs are what the Secrets hold now",
		explanation: "Inputs resolves the references of a spec. One that leads nowhere is an InputError with its reason; a rotated Secret is seen.",
		run: func(f *fixture) {
			p := f.put(key("a"), declaration())
			f.Secrets.Set("other", "init", initSecret("of another namespace"))
			f.unresolved(p, proxy.CloudInitError)
			f.Secrets.Set("crawl", "init", initSecret("#cloud-config"))
			f.unresolved(p, proxy.CredentialsError)
			f.Secrets.Set("crawl", "login", loginSecret("first"))
			f.resolved(p, proxy.Inputs{CloudInit: secret.New("#cloud-config"), Username: secret.New("crawler"), Password: secret.New("first")})
			f.Secrets.Set("crawl", "login", loginSecret("second"))
			f.resolved(p, proxy.Inputs{CloudInit: secret.New("#cloud-config"), Username: secret.New("crawler"), Password: secret.New("second")})
			f.Secrets.Remove("crawl", "init")
			f.unresolved(p, proxy.CloudInitError)
		},
	},
}

// list checks what List returns.
func (f *fixture) list(want ...*proxy.Proxy) {
	f.Helper()
	got, err := f.Store.List(f.Context())
	if err != nil {
		f.Fatalf("List: %v", err)
	}
	var wantKeys, gotKeys []string
	for _, p := range want {
		wantKeys = append(wantKeys, p.String()+" "+p.Version)
	}
	for _, p := range got {
		gotKeys = append(gotKeys, p.String()+" "+p.Version)
	}
	if diff := cmp.Diff(wantKeys, gotKeys); diff != "" {
		f.Fatalf("List: -want +got:\n%s", diff)
	}
	for i := range got {
		f.same("List", want[i], got[i])
	}
}

// scribble edits all that a caller can reach from p.
func scribble(p *proxy.Proxy) {
	p.UID, p.Version, p.Status.Phase = "scribbled", "scribbled", proxy.Failed
	p.Annotations["scribbled"] = "yes"
	p.Spec.Provider = "scribbled"
	p.Spec.CloudInit.SecretRef.Name = "scribbled"
	p.Spec.Credentials.SecretRef.Name = "scribbled"
	p.Spec.Attributes["scribbled"] = "yes"
	p.Spec.HealthCheck.ExpectedStatus[0] = 599
	p.Spec.HealthCheck.TLS.ServerName = "scribbled"
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].Reason = "Scribbled"
	}
}

// unresolved waits until the references of p fail for a reason.
func (f *fixture) unresolved(p *proxy.Proxy, reason string) {
	f.Helper()
	f.await("Inputs fail with "+reason, func() bool {
		_, err := f.Store.Inputs(f.Context(), p)
		e, ok := errors.AsType[*proxy.InputError](err)
		return ok && e.Reason == reason
	})
}

// resolved waits until the references of p lead to what is wanted.
func (f *fixture) resolved(p *proxy.Proxy, want proxy.Inputs) {
	f.Helper()
	f.await("Inputs show the Secrets as they are", func() bool {
		got, err := f.Store.Inputs(f.Context(), p)
		return err == nil && got.CloudInit.Equal(want.CloudInit) && got.Username.Equal(want.Username) && got.Password.Equal(want.Password)
	})
}
