package kvm_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

// Of two hosts one goes down: its machines are neither there nor gone, those of the other go on, and nobody takes a part of the
// fleet for the whole.
func TestTwoHosts(t *testing.T) {
	bed.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other, err := hypervisor.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p := bed.Open(t, "fleet-two", bed.Config(t, libvirttest.ServeImage(t, libvirttest.BlankImage()), func(config map[string]any) {
		config["images"].([]any)[0].(map[string]any)["sha256"] = libvirttest.Sum(libvirttest.BlankImage())
		config["hosts"] = append(config["hosts"].([]any), libvirttest.HostConfig("two", other))
	}))
	libvirttest.Run(t, p)
	at := func(host, uid string) provider.Request {
		r := libvirttest.Request("fleet-two", uid)
		r.Placement.Zone = host
		return r
	}
	if _, err := p.Plan(at("", "uid-0")); err == nil || !strings.Contains(err.Error(), "placement.zone") {
		t.Errorf("Plan without a zone where there are two: %v", err)
	}
	first, second := libvirttest.Made(t, p, at("one", "uid-1")), libvirttest.Made(t, p, at("two", "uid-2"))
	for host, name := range map[*hypervisor.Host]string{bed.Host: provider.Name("fleet-two", "uid-1"), other: provider.Name("fleet-two", "uid-2")} {
		if names, err := host.Exec(t.Context(), "virsh", "list", "--name"); err != nil || strings.TrimSpace(names) != name {
			t.Errorf("a host runs %q, %v, want %s", names, err, name)
		}
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("List returned %+v, %v, want both", all, err)
	}

	other.Close()
	brief, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if all, err := p.List(brief); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("List with a host down returned %+v and %v, want an error that names the host", all, err)
	}
	if _, err := p.Get(brief, libvirttest.RefOf(second)); provider.ClassOf(err) != provider.ErrTransient {
		t.Errorf("Get of a machine whose host is down returned %v, want a transient error", err)
	}
	if in, err := p.Get(t.Context(), libvirttest.RefOf(first)); err != nil || in.Incarnation != first.Incarnation {
		t.Errorf("Get of a machine of the other host returned %+v, %v", in, err)
	}
	checker, _ := provider.As[provider.Checker](p)
	verdicts := checker.Check(brief)
	if len(verdicts) != 2 || !verdicts[0].Ready || verdicts[1].Ready {
		t.Errorf("Check returned %+v", verdicts)
	}
	if err := p.Delete(t.Context(), libvirttest.RefOf(first)); err != nil {
		t.Error(err)
	}
}

// A check that libvirtd does not answer costs other calls nothing, and there is never more than one such check.
func TestCheckOfASilentHost(t *testing.T) {
	d := bed.TestDriver(t)
	p := d.Open(t, "fleet-check")
	libvirttest.Run(t, p)
	checker, _ := provider.As[provider.Checker](p)
	check := func(atMost time.Duration) provider.TargetStatus {
		ctx, cancel := context.WithTimeout(t.Context(), atMost)
		defer cancel()
		return checker.Check(ctx)[0]
	}
	if v := check(10 * time.Second); !v.Ready || v.Details["pool"] != "default-pool" || v.Details["libvirtVersion"] == "" {
		t.Fatalf("the host is %+v", v)
	}
	before := d.Relay.Open()
	d.Once(hypervisor.StoragePoolGetInfo, hypervisor.Swallow)
	if v := check(2 * time.Second); v.Ready || v.Reason != provider.Timeout {
		t.Errorf("a silent host is %+v", v)
	}
	began := time.Now()
	if v := check(10 * time.Second); v.Reason != provider.Timeout || time.Since(began) > 5*time.Second {
		t.Errorf("the check after an abandoned one is %+v, after %v", v, time.Since(began))
	}
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("List beside an abandoned check: %v", err)
	}
	if now := d.Relay.Open(); now != before {
		t.Errorf("there were %d connections and are %d: the check has cost one", before, now)
	}
}

// A pool that is worked on when an image is fetched, and when it has arrived, refuses to be looked at. The image is fetched all the same,
// and not again for that.
func TestImageInABusyPool(t *testing.T) {
	d := bed.TestDriver(t)
	p := d.Open(t, "fleet-busy")
	libvirttest.Run(t, p)
	var refusals atomic.Int32
	d.Judge(func(procedure uint32) hypervisor.Verdict {
		if procedure == hypervisor.StoragePoolRefresh && refusals.Add(1) <= 3 {
			return hypervisor.Refuse
		}
		return hypervisor.Pass
	})
	libvirttest.Made(t, p, libvirttest.Marked(libvirttest.DriverRequest(), "fleet-busy", "uid-1"))
	if calls := d.Relay.Calls(); calls[hypervisor.StoragePoolRefresh] != 4 || calls[hypervisor.StorageVolUpload] != 2 {
		t.Errorf("there were %d looks at the pool, want one before the image and 3 after it, and %d uploads, want one of the image and one of the seed",
			calls[hypervisor.StoragePoolRefresh], calls[hypervisor.StorageVolUpload])
	}
}
