package libvirt

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
)

// Libvirtd freezes at each call that a machine's life takes, one after the other. The operation ends with its context, and when
// libvirtd goes on, so does the life; nothing is left of it.
func TestFrozenAtEachCall(t *testing.T) {
	host := realHost(t)
	relay, err := hypervisor.NewRelay(host.Path("relay-"+rand.Text()[:8]+".sock"), host.LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	socket := relay.Path()
	p := withImage(t, host, func(c *Config) { c.Hosts[0].Socket = socket })
	life := func(ctx func() (context.Context, context.CancelFunc), uid string) error {
		r := requestFor(uid)
		var in provider.Instance
		for _, do := range []func(context.Context) error{
			func(ctx context.Context) (err error) { in, err = p.Create(ctx, r); return err },
			func(ctx context.Context) error { _, err := p.Get(ctx, provider.Ref{ID: in.ID, UID: uid}); return err },
			func(ctx context.Context) error { _, err := p.List(ctx); return err },
			func(ctx context.Context) error { return p.Delete(ctx, provider.Ref{ID: in.ID, UID: uid}) },
		} {
			bound, cancel := ctx()
			err := do(bound)
			cancel()
			if err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := settled(t, p, requestFor("uid-first")); err != nil {
		t.Fatal(err)
	}
	remove(t, p, requestFor("uid-first"))
	before := relay.Calls()
	unbounded := func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }
	if err := life(unbounded, "uid-calm"); err != nil {
		t.Fatal(err)
	}
	var procedures []uint32
	for procedure, count := range relay.Calls() {
		if count > before[procedure] {
			procedures = append(procedures, procedure)
		}
	}
	slices.Sort(procedures)
	if len(procedures) < 12 {
		t.Fatalf("a life takes the calls %v, which are too few to be all", procedures)
	}
	for _, procedure := range procedures {
		t.Run(fmt.Sprint(procedure), func(t *testing.T) {
			var once sync.Once
			relay.Rule(func(called uint32) hypervisor.Verdict {
				if called == procedure {
					once.Do(func() { signal(t, host, "STOP") })
				}
				return hypervisor.Pass
			})
			began := time.Now()
			err := life(func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 1500*time.Millisecond)
			}, "uid-frozen")
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %v", took)
			}
			wantFailure(t, err, provider.ErrTransient, "")
			relay.Rule(nil)
			signal(t, host, "CONT")
			removeBegun(t, p, requestFor("uid-frozen"))
		})
	}
}

// A leader that stands still in the middle of a call, and does not know that it is none any more when it goes on, leaves alone what
// the next one has made under the same name meanwhile: it neither takes the disk of a machine nor stops it.
func TestLeaderThatWakesUp(t *testing.T) {
	host := realHost(t)
	relay, err := hypervisor.NewRelay(host.Path("relay-"+rand.Text()[:8]+".sock"), host.LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	next := withImage(t, host)
	if _, err := settled(t, next, requestFor("uid-first")); err != nil {
		t.Fatal(err)
	}
	remove(t, next, requestFor("uid-first"))
	old := withImage(t, host, func(c *Config) { c.Hosts[0].Socket = relay.Path() })
	r := requestFor("uid-again")
	var now provider.Instance
	replace := func() {
		if err := next.Delete(t.Context(), refOf(t, next, r)); err != nil {
			t.Error(err)
		}
		if now, err = next.Create(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	start := func() {
		if now, err = next.Create(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	creation := func() error { _, err := old.Create(t.Context(), r); return err }
	deletion := func() error { return old.Delete(t.Context(), refOf(t, old, r)) }
	for _, c := range []struct {
		name      string
		made      bool
		do        func() error
		at        func(call, last uint32) bool
		meanwhile func()
	}{
		{"before it stops the machine", true, deletion, func(call, _ uint32) bool { return call == hypervisor.DomainDestroy }, replace},
		{"when it has stopped the machine", true, deletion, func(_, last uint32) bool { return last == hypervisor.DomainDestroy }, replace},
		{"before it starts the machine", false, creation, func(call, _ uint32) bool { return call == hypervisor.DomainCreate }, start},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.made {
				start()
			}
			var last uint32
			var stood bool
			relay.Rule(func(call uint32) hypervisor.Verdict {
				if !stood && c.at(call, last) {
					stood = true
					c.meanwhile()
				}
				last = call
				return hypervisor.Pass
			})
			err := c.do()
			relay.Rule(nil)
			if !stood || (err == nil) != c.made {
				t.Errorf("the old leader's call ends with %v", err)
			}
			if is, err := next.Get(t.Context(), refOf(t, next, r)); err != nil || is.Incarnation != now.Incarnation || is.State == provider.Stopped {
				t.Errorf("the machine is %+v, %v, want %s", is, err, now.Incarnation)
			}
			if volumes := shell(t, host, "ls /var/lib/libvirt/images/fleet"); !strings.Contains(volumes, diskOf(r.Name)) || !strings.Contains(volumes, seedOf(r.Name)) {
				t.Errorf("the pool has:\n%s", volumes)
			}
			remove(t, next, r)
		})
	}
}

// removeBegun deletes what a request made, or is about to make: libvirtd may not be done with it yet.
func removeBegun(t testing.TB, p *Provider, r provider.Request) {
	t.Helper()
	eventually(t, time.Minute, "the machine is deleted", func() bool {
		err := p.Delete(t.Context(), refOf(t, p, r))
		if err != nil && provider.ClassOf(err) != provider.ErrTransient {
			t.Fatal(err)
		}
		return err == nil
	})
}

// signal sends one to libvirtd.
func signal(t testing.TB, host *hypervisor.Host, name string) {
	shell(t, host, "kill -"+name+" $(cat "+host.Path("libvirtd.pid")+")")
}
