package kvm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// What a fleet costs a host in calls of libvirt. docs/performance.md has the figures.
func TestRequests(t *testing.T) {
	b := realBed(t)
	d := b.testDriver(t)
	p := d.open(t, "fleet-count")
	run(t, p)
	calls := func() (n int) {
		for _, count := range d.relay.Calls() {
			n += count
		}
		return n
	}
	ask := func(uid string) provider.Request {
		r := driverRequest()
		r.Name, r.Marks = provider.Name("fleet-count", uid), provider.Marks{Fleet: "fleet-count", UID: uid, Hash: "v1-1"}
		return r
	}
	measure := func(what string, most int, do func() error) {
		t.Helper()
		before, began := calls(), time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		n := calls() - before
		t.Logf("%s: %d calls, %v", what, n, time.Since(began).Round(time.Millisecond))
		if n > most {
			t.Errorf("%s takes %d calls, want at most %d", what, n, most)
		}
	}
	first := made(t, p, ask("uid-0"))
	var second provider.Instance
	measure("create", 16, func() (err error) { second, err = p.Create(t.Context(), ask("uid-1")); return err })
	measure("get", 4, func() error { _, err := p.Get(t.Context(), refOf(second)); return err })
	measure("delete", 12, func() error { return p.Delete(t.Context(), refOf(second)) })
	all := []provider.Instance{first}
	for i := range 99 {
		in, err := p.Create(t.Context(), ask(fmt.Sprintf("uid-%d", i+2)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, in)
	}
	measure("poll of 100", 400, func() error {
		for _, in := range all {
			if _, err := p.Get(t.Context(), refOf(in)); err != nil {
				return err
			}
		}
		return nil
	})
	measure("list of 100", 303, func() error {
		listed, err := p.List(t.Context())
		if err == nil && len(listed) != 100 {
			err = fmt.Errorf("%d instances", len(listed))
		}
		return err
	})
}
