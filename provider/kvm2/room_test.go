package kvm2

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

const (
	// poolSize is that of the test driver's pool, and seedRoom what is kept for a seed.
	poolSize = 100 << 30
	seedRoom = 16 << 20
)

// imageOf announces an image of some size, and sends nothing of it.
func imageOf(t testing.TB, size int64, asked *atomic.Int64) string {
	return libvirttest.Serve(t, "127.0.0.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Length", fmt.Sprint(size))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
}

// Image, disk and seed must fit together, before anything is made.
func TestRoomBeforeTheImageIsThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		image int64
		disk  int64 // GiB
		fits  bool
		asks  int64 // how often the image's server is asked
	}{
		{"all of it fits exactly", 60<<30 - seedRoom, 40, true, 1},
		{"each fits, and not their sum", 60<<30 - seedRoom + 1, 40, false, 1},
		{"the image and the seed alone", poolSize/2 - seedRoom, 0, true, 1},
		{"the disk alone is too large", 1 << 20, 100, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := bed.TestDriver(t)
			var asked atomic.Int64
			url := imageOf(t, c.image, &asked)
			p := opened(t, d.Config(t, func(config map[string]any) {
				config["images"] = []any{map[string]any{"name": "large", "url": url, "sha256": strings.Repeat("0", 64), "firmware": "bios"}}
			}), budgets())
			pool, err := d.Conn.Pool(t.Context(), "default-pool")
			if err != nil || pool.Available != poolSize {
				t.Fatalf("the pool is %+v, %v, want one of 100 GiB", pool, err)
			}
			r := driverRequest("uid-1")
			r.Placement.DiskSizeGb = c.disk
			libvirttest.Await(t, 20*time.Second, "the transfer has begun, or was refused", func() (bool, error) {
				in, err := p.Create(t.Context(), r)
				volumes, listErr := d.Conn.Volumes(t.Context(), pool)
				if listErr != nil {
					t.Fatal(listErr)
				}
				if err == nil {
					return c.fits && len(volumes) == 1, fmt.Errorf("%+v, and the pool has %q", in, volumes)
				}
				if c.fits {
					t.Fatalf("Create: %v", err)
				}
				wantFailure(t, err, provider.ErrQuotaExceeded, libvirt.PoolFull)
				if len(volumes) > 0 {
					t.Errorf("the pool has %q", volumes)
				}
				return true, nil
			})
			if n := asked.Load(); n != c.asks {
				t.Errorf("the image's server was asked %d times, want %d", n, c.asks)
			}
			if domains, err := d.Conn.Domains(t.Context()); err != nil || len(domains) != 1 { // one that the driver always has
				t.Errorf("the host has %v, %v", domains, err)
			}
		})
	}
}

// Of an image that is there, only the disk and the seed are counted.
func TestRoomWhenTheImageIsThere(t *testing.T) {
	d := bed.TestDriver(t)
	p := opened(t, d.Config(t), budgets())
	libvirttest.Made(t, p, driverRequest("uid-first"))
	pool, err := d.Conn.Pool(t.Context(), "default-pool")
	if err != nil {
		t.Fatal(err)
	}
	before, err := d.Conn.Volumes(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	r := driverRequest("uid-1")
	r.Placement.DiskSizeGb = 100
	_, err = p.Create(t.Context(), r)
	wantFailure(t, err, provider.ErrQuotaExceeded, libvirt.PoolFull)
	after, err := d.Conn.Volumes(t.Context(), pool)
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("volumes, %v (-before +after):\n%s", err, diff)
	}
	r.Placement.DiskSizeGb = 99
	d.Once(hypervisor.StoragePoolRefresh, hypervisor.Refuse) // as a pool does that is worked on
	if in, err := p.Create(t.Context(), r); err != nil || in.Incarnation == "" {
		t.Errorf("Create of one that fits: %+v, %v", in, err)
	}
}

// What something else has written into a pool counts, though libvirt has not looked since. The same machine then says in which order
// its address was asked for: agent, neighbour table, lease.
func TestRoomThatOthersTook(t *testing.T) {
	bed.Start(t)
	p := opened(t, bed.Config(t, libvirttest.ServeImage(t, libvirttest.BlankImage()), func(config map[string]any) {
		config["images"].([]any)[0].(map[string]any)["sha256"] = libvirttest.Sum(libvirttest.BlankImage())
	}), budgets())
	first := libvirttest.Made(t, p, libvirttest.Request("fleet-one", "uid-first"))
	const ballast = "/var/lib/libvirt/images/fleet/ballast"
	bed.Shell(t, "fallocate -l $(($(df --output=avail -B1 /var/lib/libvirt/images/fleet | tail -1) - 8000000)) "+ballast)
	r := libvirttest.Request("fleet-one", "uid-1")
	_, err := p.Create(t.Context(), r)
	wantFailure(t, err, provider.ErrQuotaExceeded, libvirt.PoolFull)
	bed.WantNothingOf(t, r.Name)
	bed.Shell(t, "rm "+ballast)
	in := libvirttest.Made(t, p, r)

	in, err = p.Get(t.Context(), libvirttest.RefOf(in))
	if err != nil || in.Reason != libvirt.NoAddress {
		t.Fatalf("Get returned %+v, %v", in, err)
	}
	var order []string
	for part := range strings.SplitSeq(in.Message, "; ") {
		source, _, _ := strings.Cut(strings.TrimPrefix(part, "no address is known yet: "), ":")
		order = append(order, source)
	}
	if diff := cmp.Diff([]string{libvirt.Agent, libvirt.ARP, libvirt.Lease}, order); diff != "" {
		t.Errorf("sources (-want +got):\n%s\n%s", diff, in.Message)
	}
	for _, in := range []provider.Instance{first, in} {
		if err := p.Delete(t.Context(), libvirttest.RefOf(in)); err != nil {
			t.Error(err)
		}
	}
}
