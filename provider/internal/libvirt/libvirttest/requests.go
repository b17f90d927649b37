package libvirttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// Requests counts what a fleet costs a host in calls of libvirt, of which a create may take so many. docs/performance.md has the
// figures.
func (b *Bed) Requests(t *testing.T, create int) {
	d := b.TestDriver(t)
	ask := func(uid string) provider.Request {
		return Marked(DriverRequest(), "fleet-count", uid)
	}
	d.Fetch(t)
	p := d.Open(t, "fleet-count")
	Run(t, p)
	calls := func() (n int) {
		for _, count := range d.Relay.Calls() {
			n += count
		}
		return n
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
	first := Made(t, p, ask("uid-0"))
	var second provider.Instance
	measure("create", create, func() (err error) { second, err = p.Create(t.Context(), ask("uid-1")); return err })
	measure("get", 4, func() error { _, err := p.Get(t.Context(), RefOf(second)); return err })
	measure("delete", 13, func() error { return p.Delete(t.Context(), RefOf(second)) })
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
			if _, err := p.Get(t.Context(), RefOf(in)); err != nil {
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
