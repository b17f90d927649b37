package storetest

import (
	"sync"

	"github.com/proxyfleet/fleet/proxy"
)

var watchCases = []testCase{
	{
		name:        "watch begins with all records",
		explanation: "Watch delivers the key of each record that exists, also of those that are being deleted; a second Watch has its own beginning.",
		run: func(f *fixture) {
			f.put(key("a"), declaration())
			f.terminating(key("deleting"))
			f.put(proxy.Key{Namespace: "other", Name: "a"}, declaration())
			for range 2 {
				o := f.watch(nil)
				for _, k := range []proxy.Key{key("a"), key("deleting"), {Namespace: "other", Name: "a"}} {
					f.await("Watch delivered "+k.String()+" at its beginning", func() bool { return o.counts()[k] > 0 })
				}
			}
		},
	},
	{
		name:        "watch delivers each kind of change of a record",
		explanation: "A record that appears, an edit, metadata, status, the mark of deletion and the removal are each followed by the key of that record and of no other.",
		run: func(f *fixture) {
			f.put(key("bystander"), declaration())
			all := []*observer{f.watch(nil), f.watch(nil)}
			// Both watches see each change. The second one is asked about what it saw before the step.
			step := func(what string, do func()) {
				f.Helper()
				all[1].settle()
				before := all[1].counts()[key("a")]
				all[0].wakesOnly(what, do, key("a"))
				f.await("a second Watch delivered the key after "+what, func() bool { return all[1].counts()[key("a")] > before })
			}
			var p *proxy.Proxy
			step("the first declaration", func() { p = f.put(key("a"), declaration()) })
			step("an edit", func() {
				d := declaration()
				d.Spec.Port = 8080
				p = f.put(key("a"), d)
			})
			step("a write of metadata", func() { p = f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = true }) })
			step("a write of the status", func() { p = f.updateStatus(p, func(s *proxy.Status) { *s = status() }) })
			step("a deletion that must wait", func() { f.delete(key("a")) })
			step("the removal", func() {
				var err error
				if p, err = f.Store.Get(f.Context(), key("a")); err != nil {
					f.Fatalf("Get: %v", err)
				}
				f.updateMeta(p, func(p *proxy.Proxy) { p.Finalizer = false })
			})
			step("the next life", func() { f.put(key("a"), declaration()) })
			step("a removal at once", func() { f.delete(key("a")) })
		},
	},
	{
		name:        "watch delivers who refers to a Secret that changed",
		explanation: "A Secret that appears, changes or goes is followed by the keys of the records that refer to it, whichever way, and of no other.",
		run: func(f *fixture) {
			initOnly, loginOnly := declaration(), declaration()
			initOnly.Spec.Credentials, loginOnly.Spec.CloudInit = nil, nil
			f.put(key("both"), declaration())
			f.put(key("init"), initOnly)
			f.put(key("login"), loginOnly)
			f.put(proxy.Key{Namespace: "other", Name: "both"}, declaration())
			o := f.watch(nil)
			o.wakesOnly("a Secret appeared", func() { f.Secrets.Set("crawl", "login", loginSecret("first")) }, key("both"), key("login"))
			o.wakesOnly("it changed", func() { f.Secrets.Set("crawl", "login", loginSecret("second")) }, key("both"), key("login"))
			o.wakesOnly("it went", func() { f.Secrets.Remove("crawl", "login") }, key("both"), key("login"))
			o.wakesOnly("another appeared", func() { f.Secrets.Set("crawl", "init", initSecret("#!")) }, key("both"), key("init"))
			o.wakesOnly("one that nobody refers to appeared", func() { f.Secrets.Set("crawl", "unused", initSecret("#!")) })
			o.wakesOnly("one of another namespace appeared", func() { f.Secrets.Set("other", "login", loginSecret("first")) },
				proxy.Key{Namespace: "other", Name: "both"})
		},
	},
	{
		name:        "watch follows the references of a record",
		explanation: "After an edit a record is delivered for the Secret that it refers to now and not for the one of before; after its removal for none; in the next life again.",
		run: func(f *fixture) {
			d := declaration()
			d.Spec.CloudInit = nil
			f.put(key("a"), d)
			o := f.watch(nil)
			rotate := func(name string) func() {
				return func() { f.Secrets.Set("crawl", name, loginSecret(name)) }
			}
			o.wakesOnly("its Secret changed", rotate("login"), key("a"))
			d.Spec.Credentials.SecretRef.Name = "login2"
			o.wakesOnly("it refers to another Secret", func() { f.put(key("a"), d) }, key("a"))
			o.wakesOnly("the Secret of before changed", rotate("login"))
			o.wakesOnly("the Secret of now changed", rotate("login2"), key("a"))
			o.wakesOnly("it was removed", func() { f.delete(key("a")); f.gone(key("a")) }, key("a"))
			o.wakesOnly("the Secret of a removed record changed", rotate("login2"))
			o.wakesOnly("it was declared again", func() { f.put(key("a"), d) }, key("a"))
			f.Secrets.Set("crawl", "login2", loginSecret("again"))
			o.wakesOnly("the Secret of the next life changed", rotate("login2"), key("a"))
		},
	},
	{
		name:        "watch never loses the last change",
		explanation: "Changes coalesce while fn is busy, but after the last one its key is delivered once more: whoever reads on delivery has read the last state.",
		run: func(f *fixture) {
			var mu sync.Mutex
			seen := map[proxy.Key]int64{}
			o := f.watch(func(k proxy.Key) {
				p, err := f.Store.Get(f.Context(), k)
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				seen[k] = p.Status.LatencyMillis
			})
			const writes = 100
			records := map[proxy.Key]*proxy.Proxy{key("a"): nil, key("b"): nil, key("c"): nil}
			for k := range records {
				records[k] = f.put(k, declaration())
			}
			for range writes {
				for k, p := range records {
					records[k] = f.updateStatus(p, func(s *proxy.Status) { s.LatencyMillis++ })
				}
			}
			for k := range records {
				f.await("who reads on delivery read the last state of "+k.String(), func() bool {
					mu.Lock()
					defer mu.Unlock()
					return seen[k] == writes
				})
			}
			o.stop()
		},
	},
	{
		name:        "watch ends with its context",
		explanation: "Watch returns nil soon after its context ends, and delivers nothing after it returned.",
		run: func(f *fixture) {
			o := f.watch(nil)
			o.wakes("a declaration", func() { f.put(key("a"), declaration()) }, key("a"))
			o.stop()
			f.await("Watch returned after its context ended", func() bool { return len(o.ended) > 0 })
			if err := <-o.ended; err != nil {
				f.Errorf("Watch returned %v after its context ended, want nil", err)
			}
			before := o.counts()[key("b")]
			f.put(key("b"), declaration())
			next := f.watch(nil)
			next.wakes("a declaration", func() { f.put(key("c"), declaration()) }, key("c"))
			if o.counts()[key("b")] != before {
				f.Error("Watch delivered a key after it returned")
			}
		},
	},
}
