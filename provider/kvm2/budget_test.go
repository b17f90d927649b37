package kvm2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

// long is a budget that no test waits for.
const long = time.Hour

func longBudgets() libvirt.Budgets {
	return libvirt.Budgets{Dial: 10 * time.Second, RPC: long, Start: long, Seed: long, Image: long}
}

// opened opens the provider with other budgets, and runs it.
func opened(t testing.TB, config []byte, b libvirt.Budgets) *machines {
	t.Helper()
	p, err := open(libvirttest.Environment(t, "fleet-one"), config, b)
	if err != nil {
		t.Fatal(err)
	}
	libvirttest.Run(t, p)
	return p
}

func driverRequest(uid string) provider.Request {
	return libvirttest.Marked(libvirttest.DriverRequest(), "fleet-one", uid)
}

// Each kind of call ends with its own budget and no other, though the operation has time; what was begun is done anew.
func TestOverruns(t *testing.T) {
	bed.WantNothingLeft(t)
	d := bed.TestDriver(t)
	for name, c := range map[string]struct {
		procedure uint32
		of        func(*libvirt.Budgets) *time.Duration
	}{
		"StorageVolCreateXML": {hypervisor.StorageVolCreateXML, func(b *libvirt.Budgets) *time.Duration { return &b.RPC }},
		"DomainCreate":        {hypervisor.DomainCreate, func(b *libvirt.Budgets) *time.Duration { return &b.Start }},
		"StorageVolUpload":    {hypervisor.StorageVolUpload, func(b *libvirt.Budgets) *time.Duration { return &b.Seed }},
	} {
		t.Run(name, func(t *testing.T) {
			b := longBudgets()
			*c.of(&b) = 4 * time.Second
			p := opened(t, d.Config(t), b)
			first := libvirttest.Made(t, p, driverRequest("uid-first")) // so that the image is there
			d.Once(c.procedure, hypervisor.Swallow)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := p.Create(ctx, driverRequest("uid-2"))
			wantFailure(t, err, provider.ErrTransient, provider.Timeout)
			if err == nil || !strings.Contains(err.Error(), name+": no answer came within 4s") {
				t.Errorf("the message does not say what gave no answer: %v", err)
			}
			second := libvirttest.Made(t, p, driverRequest("uid-2"))
			for _, in := range []provider.Instance{first, second} {
				if err := p.Delete(t.Context(), libvirttest.RefOf(in)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Libvirtd freezes. The first call that outlives its budget takes the connection along: another that is in flight, and would have
// had time, fails once as transient. Dials fail within their budget, and when libvirtd goes on, one new dial is enough.
func TestFrozenLibvirtd(t *testing.T) {
	bed.WantNothingLeft(t)
	d := bed.TestDriver(t)
	b := longBudgets()
	b.RPC, b.Dial = 5*time.Second, 5*time.Second
	d.Fetch(t)
	p := opened(t, d.Config(t), b)
	in := libvirttest.Made(t, p, driverRequest("uid-1"))
	ref, dials := libvirttest.RefOf(in), d.Relay.Calls()[hypervisor.ConnectOpen]

	getting, listing := make(chan struct{}), make(chan struct{})
	var get, list sync.Once
	d.Judge(func(procedure uint32) hypervisor.Verdict {
		switch procedure {
		case hypervisor.DomainLookupByName:
			get.Do(func() { close(getting) })
		case hypervisor.ConnectListAllDomains:
			list.Do(func() { close(listing) })
		}
		return hypervisor.Pass
	})
	signal(t, "STOP")
	defer signal(t, "CONT")
	errs := make(chan error, 1)
	go func() { _, err := p.Get(t.Context(), ref); errs <- err }()
	<-getting
	<-time.After(2 * time.Second) // so that it is not the other call whose budget ends first
	var other error
	var group sync.WaitGroup
	group.Go(func() { _, other = p.List(t.Context()) })
	<-listing
	wantFailure(t, <-errs, provider.ErrTransient, provider.Timeout)
	group.Wait()
	wantFailure(t, other, provider.ErrTransient, libvirt.ConnectionLost)

	_, silent := p.Get(t.Context(), ref)
	wantFailure(t, silent, provider.ErrTransient, libvirt.LibvirtSilent)
	signal(t, "CONT")
	d.Calm()
	got, err := p.Get(t.Context(), ref)
	for tries := 0; errors.Is(err, provider.ErrTransient) && tries < 100; tries++ { // a dial that failed is not repeated for a while
		<-time.After(100 * time.Millisecond)
		got, err = p.Get(t.Context(), ref)
	}
	if err != nil || got.Incarnation != in.Incarnation {
		t.Errorf("Get when libvirtd goes on: %+v, %v", got, err)
	}
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("List when libvirtd goes on: %v", err)
	}
	if now := d.Relay.Calls()[hypervisor.ConnectOpen]; now != dials+1 { // while it is frozen, none comes so far
		t.Errorf("there were %d dials, and are %d", dials, now)
	}
	if err := p.Delete(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// signal sends one to libvirtd.
func signal(t testing.TB, name string) {
	bed.Shell(t, "kill -"+name+" $(cat "+bed.Path("libvirtd.pid")+")")
}

// An image moves over a connection of its own: one that a call takes along is not its, and it has a budget as a whole.
func TestImageBesideCalls(t *testing.T) {
	d := bed.TestDriver(t)
	image := bytes.Repeat([]byte("an image"), 1<<10)
	half, release := make(chan struct{}, 1), make(chan struct{})
	url := libvirttest.Serve(t, "127.0.0.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		_, _ = w.Write(image[:len(image)/2])
		w.(http.Flusher).Flush()
		half <- struct{}{}
		select {
		case <-release:
			_, _ = w.Write(image[len(image)/2:])
		case <-r.Context().Done():
		}
	}))
	config := d.Config(t, func(config map[string]any) {
		config["images"] = []any{map[string]any{"name": "slow", "url": url, "sha256": libvirttest.Sum(image), "firmware": "bios"}}
	})
	asked := func(p *machines) {
		t.Helper()
		if in, err := p.Create(t.Context(), driverRequest("uid-1")); err != nil || in.Reason != libvirt.ImageTransfer {
			t.Fatalf("Create returned %+v, %v", in, err)
		}
		<-half
	}
	t.Run("too slow", func(t *testing.T) {
		b := longBudgets()
		b.Image = 10 * time.Second
		p := opened(t, config, b)
		asked(p)
		libvirttest.Await(t, time.Minute, "the transfer is given up", func() (bool, error) {
			_, err := p.Create(t.Context(), driverRequest("uid-1"))
			if err != nil {
				wantFailure(t, err, provider.ErrTransient, libvirt.ImageStalled)
			}
			return err != nil, nil
		})
	})
	t.Run("beside a call that hangs", func(t *testing.T) {
		for len(half) > 0 {
			<-half
		}
		b := longBudgets()
		b.RPC = 2 * time.Second
		p := opened(t, config, b)
		asked(p)
		d.Once(hypervisor.ConnectListAllDomains, hypervisor.Swallow)
		_, err := p.List(t.Context())
		wantFailure(t, err, provider.ErrTransient, provider.Timeout)
		close(release)
		libvirttest.Made(t, p, driverRequest("uid-1"))
		if len(half) != 0 {
			t.Error("the image was fetched twice")
		}
	})
}

// A check dials and closes a connection of its own. One that gets no answer in time disturbs no call and no later check.
func TestCheck(t *testing.T) {
	d := bed.TestDriver(t)
	p := opened(t, d.Config(t), budgets())
	if _, err := p.List(t.Context()); err != nil { // so that there is the connection that calls share
		t.Fatal(err)
	}
	open, dials := d.Relay.Open(), d.Relay.Calls()[hypervisor.ConnectOpen]
	check := func(atMost time.Duration) provider.TargetStatus {
		ctx, cancel := context.WithTimeout(t.Context(), atMost)
		defer cancel()
		return p.Check(ctx)[0]
	}
	v := check(20 * time.Second)
	for _, detail := range []string{"user", "pool", "hostname", "libvirtVersion", "poolState", "poolCapacityGiB", "poolAvailableGiB"} {
		if v.Details[detail] == "" {
			t.Errorf("the check does not say %s: %+v", detail, v)
		}
	}
	d.Once(hypervisor.StoragePoolGetInfo, hypervisor.Swallow)
	began := time.Now()
	if v := check(5 * time.Second); v.Ready || v.Reason != provider.Timeout || time.Since(began) > 20*time.Second {
		t.Errorf("the check of a silent host is %+v, after %v", v, time.Since(began))
	}
	if v := check(20 * time.Second); !v.Ready {
		t.Errorf("the check after that is %+v", v)
	}
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("List after the checks: %v", err)
	}
	if now := d.Relay.Calls()[hypervisor.ConnectOpen]; now != dials+3 {
		t.Errorf("three checks made %d dials", now-dials)
	}
	libvirttest.Await(t, 10*time.Second, "the checks' connections are closed", func() (bool, error) {
		return d.Relay.Open() == open, fmt.Errorf("%d, before %d", d.Relay.Open(), open)
	})
}

// While a machine is made, its deletion waits, no longer than it may; other machines do not.
func TestCreateAndDeleteOfOneName(t *testing.T) {
	d := bed.TestDriver(t)
	p := opened(t, d.Config(t), longBudgets())
	other := libvirttest.Made(t, p, driverRequest("uid-other"))
	reached := make(chan struct{})
	var once sync.Once
	d.Judge(func(procedure uint32) (v hypervisor.Verdict) {
		if procedure == hypervisor.DomainDefineXML {
			once.Do(func() { close(reached); v = hypervisor.Swallow })
		}
		return v
	})
	r := driverRequest("uid-1")
	id, err := p.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	ref := provider.Ref{ID: id, UID: "uid-1"}
	creating, cancel := context.WithCancel(t.Context())
	defer cancel()
	created := make(chan error, 1)
	go func() { _, err := p.Create(creating, r); created <- err }()
	<-reached
	lookups := d.Relay.Calls()[hypervisor.DomainLookupByName]
	brief, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer end()
	if err := p.Delete(brief, ref); provider.ClassOf(err) != provider.ErrTransient {
		t.Errorf("Delete beside Create returned %v, want an error because its time was over", err)
	}
	if now := d.Relay.Calls()[hypervisor.DomainLookupByName]; now != lookups {
		t.Error("Delete did not wait for Create")
	}
	if err := p.Delete(t.Context(), libvirttest.RefOf(other)); err != nil {
		t.Errorf("Delete of another machine: %v", err)
	}
	cancel()
	if err := <-created; provider.ClassOf(err) != provider.ErrCanceled {
		t.Errorf("Create returned %v, want canceled", err)
	}
	if err := p.Delete(t.Context(), ref); err != nil {
		t.Errorf("Delete when Create has ended: %v", err)
	}
}
