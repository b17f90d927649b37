package kvm_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
	"github.com/proxyfleet/fleet/secret"
)

func TestLifeOfAMachine(t *testing.T) { bed.Life(t) }

// A machine whose disk cannot be written to any more is paused by QEMU; the fleet is told why, and replaces it.
func TestDiskFull(t *testing.T) {
	bed.Start(t)
	p := bed.Open(t, "fleet-full", bed.Config(t, libvirttest.ServeImage(t, bed.Image)))
	libvirttest.Run(t, p)
	r := libvirttest.Request("fleet-full", "uid-full")
	r.CloudInit = secret.New("#cloud-config\nruncmd:\n- dd if=/dev/zero of=/dev/vda bs=1M count=100 conv=fsync\n")
	r.Placement.DiskSizeGb = 1
	in := libvirttest.Made(t, p, r)
	const ballast = `cd /var/lib/libvirt/images/fleet; free=$(df --output=avail -k . | tail -1); dd if=/dev/zero of=ballast bs=1k count=$((free - 40000)) status=none`
	if out, err := bed.Exec(t.Context(), "sh", "-c", ballast); err != nil {
		t.Fatal(err, out)
	}
	defer func() {
		_, _ = bed.Exec(context.WithoutCancel(t.Context()), "rm", "-f", "/var/lib/libvirt/images/fleet/ballast")
	}()
	libvirttest.Await(t, 5*time.Minute, "the machine is paused", func() (_ bool, err error) {
		in, err = p.Get(t.Context(), libvirttest.RefOf(in))
		return in.State == provider.Stopped, fmt.Errorf("%s %s: %w", in.State, in.Reason, err)
	})
	if in.Reason != "DiskFull" {
		t.Errorf("the machine is stopped for %s: %s", in.Reason, in.Message)
	}
	if err := p.Delete(t.Context(), libvirttest.RefOf(in)); err != nil {
		t.Fatal(err)
	}
	bed.WantNothingOf(t, r.Name)
}
