package storetest

import (
	"github.com/proxyfleet/fleet/proxy"
)

var restartCases = []testCase{
	{
		name:        "records survive a restart",
		explanation: "All that was acknowledged is there after a restart: spec, status with its times to the second, metadata, UID and generation, who declared it, and that it is being deleted; what was removed is not.",
		restarts:    true,
		run: func(f *fixture) {
			p := f.updateMeta(f.put(key("a"), declaration()), func(p *proxy.Proxy) { p.Finalizer, p.Annotations["added"] = true, "by API" })
			p = f.shown(f.updateStatus(p, func(s *proxy.Status) { *s = status() }))
			plain := f.put(proxy.Key{Namespace: "other", Name: "a"}, proxy.Declaration{Spec: proxy.Spec{Mode: proxy.External,
				Endpoint: &proxy.Endpoint{Scheme: proxy.HTTPS, Host: "proxy.example", Port: 443, TLS: &proxy.TLS{InsecureSkipVerify: true}}}})
			deleting := f.terminating(key("deleting"))
			f.put(key("removed"), declaration())
			f.delete(key("removed"))
			f.gone(key("removed"))
			last := f.terminating(key("let-go"))
			f.updateMeta(last, func(p *proxy.Proxy) { p.Finalizer = false })
			f.gone(last.Key)

			for range 2 {
				f.restart()
				for _, want := range []*proxy.Proxy{p, deleting, plain} {
					f.sameOverRestart(want)
				}
				f.live(key("a"), key("deleting"), plain.Key)
				f.declared(source, key("a"), plain.Key)
			}
		},
	},
	{
		name:        "the rules go on after a restart",
		explanation: "A restarted store knows what it must refuse, which annotations were declared, and whom a Secret concerns.",
		restarts:    true,
		run: func(f *fixture) {
			d := declaration()
			d.Annotations = map[string]string{"kept": "1", "dropped": "1"}
			p := f.put(key("a"), d)
			f.shown(f.updateMeta(p, func(p *proxy.Proxy) { p.Annotations["kept"] = "by API" }))
			f.terminating(key("deleting"))
			f.restart()

			now := f.stateOf(key("a"))
			_, err := f.Store.Put(f.Context(), key("a"), d, "another")
			f.refused("Put by another source after a restart", err, proxy.ErrOtherSource, now)
			_, err = f.Store.Put(f.Context(), key("deleting"), d, source)
			f.refused("Put of a name that is being deleted after a restart", err, proxy.ErrTerminating, f.stateOf(key("deleting")))
			f.same("Put of the same declaration after a restart", now, f.put(key("a"), d))
			delete(d.Annotations, "dropped")
			f.annotations("one left out after a restart", f.put(key("a"), d), map[string]string{"kept": "by API"})

			o := f.watch(nil)
			f.await("Watch delivered crawl/a at its beginning", func() bool { return o.counts()[key("a")] > 0 })
			o.wakesOnly("a Secret changed after the restart", func() { f.Secrets.Set("crawl", "login", loginSecret("x")) }, key("a"), key("deleting"))
			deleting := f.stateOf(key("deleting"))
			o.wakesOnly("the last finalizer went", func() { f.updateMeta(deleting, func(p *proxy.Proxy) { p.Finalizer = false }) }, key("deleting"))
		},
	},
	{
		name:        "versions do not repeat over a restart",
		explanation: "A version names one state of a record for all time: a write from what was read before a restart conflicts if the record changed since, also in a next life of its name.",
		restarts:    true,
		run: func(f *fixture) {
			seen := map[string]bool{}
			note := func(p *proxy.Proxy) *proxy.Proxy {
				if seen[p.Version] {
					f.Errorf("version %s names two states", p.Version)
				}
				seen[p.Version] = true
				return p
			}
			var old []*proxy.Proxy
			for range 3 {
				p := note(f.put(key("a"), declaration()))
				old = append(old, p)
				for range 3 {
					f.restart()
					p = note(f.updateStatus(f.stateOf(key("a")), func(s *proxy.Status) { s.LatencyMillis++ }))
					old = append(old, p)
				}
				f.delete(key("a"))
				f.gone(key("a"))
				f.restart()
			}
			now := f.put(key("a"), declaration())
			for _, p := range old {
				for _, w := range f.writes() {
					w.change(p)
					_, err := w.do(f.Context(), p)
					f.refused(w.name+" from a state before a restart", err, proxy.ErrConflict, now)
				}
			}
		},
	},
}

// restart ends the store and opens what it kept.
func (f *fixture) restart() {
	f.Helper()
	f.Subject = f.harness.Reopen(f.TB, f.Subject)
}

// stateOf returns the record of a key.
func (f *fixture) stateOf(k proxy.Key) *proxy.Proxy {
	f.Helper()
	var p *proxy.Proxy
	f.await("Get shows "+k.String(), func() bool {
		got, err := f.Store.Get(f.Context(), k)
		p = got
		return err == nil
	})
	return p
}

// sameOverRestart checks that a record is as it was, in that version or another.
func (f *fixture) sameOverRestart(want *proxy.Proxy) {
	f.Helper()
	got := f.stateOf(want.Key)
	want = want.Clone()
	want.Version = got.Version
	f.same("after a restart", want, got)
	f.stored(want)
}
