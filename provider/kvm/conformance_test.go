package kvm_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// TestConformance runs the suite over libvirt's test driver, which the real libvirtd serves through the real sshd. What that
// driver lacks, uploads, and what no libvirtd does on demand, is done by a relay in front of the socket.
func TestConformance(t *testing.T) {
	b := realBed(t)
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		d := b.testDriver(t)
		return providertest.Harness{
			Open:     d.open,
			Request:  driverRequest,
			Outlives: true,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "elsewhere" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "huge" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "unknown" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = -1 },
				"credentials":           func(r *provider.Request) { r.Credentials.Username = secret.New("a:user-with-a-colon") },
			},
			Plant:  d.plant,
			Inject: d.inject,
		}
	})
}

func driverRequest() provider.Request {
	return provider.Request{
		Port:        3128,
		CloudInit:   secret.New("#cloud-config\n# cloud-init-secret-1234\n"),
		Credentials: provider.Credentials{Username: secret.New("crawler-user-name"), Password: secret.New("correct-horse-battery")},
	}
}

// blankImage is as good as any other for a driver that starts nothing.
var blankImage = bytes.Repeat([]byte("proxyfleet"), 1<<10)

// driver is libvirt's test driver, with nothing in it but what a test makes.
type driver struct {
	bed   *bed
	relay *hypervisor.Relay
	// socket is the relay's, and url where the image is.
	socket, url string
	// real says that there is no test driver behind it, but QEMU, which has uploads.
	real bool
	// conn is held open, because what the driver knows is gone with its last connection.
	conn *libvirt.Conn
}

func (b *bed) testDriver(t testing.TB) *driver {
	t.Helper()
	socket := b.Path("relay-" + rand.Text()[:8] + ".sock")
	relay, err := hypervisor.NewRelay(socket, b.LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	d := &driver{bed: b, relay: relay, socket: socket, url: b.serve(t, content(blankImage))}
	d.calm()
	host := libvirt.Host{Name: "one", Address: b.Address, User: b.User, Socket: socket, URI: "test:///default"}
	d.conn, err = libvirt.Dial(t.Context(), host, &libvirt.Login{KeyFile: b.KeyFile(), KnownHostsFile: b.KnownHostsFile()}, libvirt.Budgets{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.conn.Close)
	return d
}

// open opens the provider over the driver.
func (d *driver) open(t testing.TB, fleet string) provider.Provider {
	return d.bed.open(t, fleet, d.url, func(config map[string]any) {
		host := config["hosts"].([]any)[0].(map[string]any)
		host["socket"], host["uri"], host["pool"] = d.socket, "test:///default", "default-pool"
		config["images"] = []any{map[string]any{"name": "blank", "url": d.url, "sha256": sum(blankImage), "firmware": "bios"}}
		config["domainTypes"] = []string{"test"}
		config["proxy"] = "squid"
	})
}

// calm passes all calls but uploads.
func (d *driver) calm() { d.relay.Rule(rule(map[uint32]hypervisor.Verdict{}, 0)) }

// rule judges the next calls of some kinds, as often as it is told, or for ever when that is 0; and takes uploads.
func rule(verdicts map[uint32]hypervisor.Verdict, times int) func(uint32) hypervisor.Verdict {
	var mu sync.Mutex
	return func(procedure uint32) hypervisor.Verdict {
		mu.Lock()
		defer mu.Unlock()
		verdict, ok := verdicts[procedure]
		switch {
		case ok && times == 1:
			delete(verdicts, procedure)
			return verdict
		case ok:
			return verdict
		case procedure == hypervisor.StorageVolUpload:
			return hypervisor.TakeUpload
		}
		return hypervisor.Pass
	}
}

func (d *driver) inject(f providertest.Fault) bool {
	from := func(verdicts map[uint32]hypervisor.Verdict, times int) {
		judge := rule(verdicts, times)
		d.relay.Rule(func(procedure uint32) hypervisor.Verdict {
			if verdict := judge(procedure); verdict != hypervisor.TakeUpload || !d.real {
				return verdict
			}
			return hypervisor.Pass
		})
	}
	once := func(procedure uint32, v hypervisor.Verdict) { from(map[uint32]hypervisor.Verdict{procedure: v}, 1) }
	switch f {
	case providertest.CreateFails:
		once(hypervisor.DomainDefineXML, hypervisor.Refuse)
	case providertest.CreateUnanswered:
		once(hypervisor.DomainDefineXML, hypervisor.Lose)
	case providertest.GetFails:
		once(hypervisor.DomainLookupByName, hypervisor.Refuse)
	case providertest.DeleteFails:
		once(hypervisor.DomainDestroy, hypervisor.Refuse)
	case providertest.DeleteUnanswered:
		once(hypervisor.DomainUndefineFlags, hypervisor.Lose)
	case providertest.ListFails:
		once(hypervisor.ConnectListAllDomains, hypervisor.Refuse)
	case providertest.CheckFails:
		from(map[uint32]hypervisor.Verdict{hypervisor.StoragePoolGetInfo: hypervisor.Refuse}, 0)
	case providertest.Hangs:
		d.relay.Rule(func(uint32) hypervisor.Verdict { return hypervisor.Swallow })
	default:
		return false
	}
	return true
}

// plant makes a machine as another fleet would, or as somebody with virsh.
func (d *driver) plant(t testing.TB, r provider.Request) {
	if r.Marks == (provider.Marks{}) {
		_, err := d.conn.Define(t.Context(), libvirtxml.Domain{
			Type: "test", Name: r.Name, Memory: &libvirtxml.DomainMemory{Unit: "MiB", Value: 64}, VCPU: &libvirtxml.DomainVCPU{Value: 1},
			OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := d.open(t, r.Marks.Fleet)
	runner, _ := provider.As[provider.Runner](p)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	made(t, p, r)
	cancel()
	<-ended
}

// TestConformanceOverQEMU runs those cases of the suite that need few machines, or, with CONFORMANCE=all, the whole of it: over
// machines that boot, a minute for what the test driver does in a second.
func TestConformanceOverQEMU(t *testing.T) {
	b := realBed(t)
	few := []string{"create", "create-unanswered", "delete-twice", "restart", "check-fails"}
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		if name := path.Base(t.Name()); os.Getenv("CONFORMANCE") != "all" && !slices.Contains(few, name) {
			t.Skip("takes long: CONFORMANCE=all runs it")
		}
		b.clear(t)
		t.Cleanup(func() { b.clear(t) })
		d := &driver{bed: b, socket: b.Path("relay-" + rand.Text()[:8] + ".sock"), url: b.serve(t, b.imageServer())}
		relay, err := hypervisor.NewRelay(d.socket, b.LibvirtSocket())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(relay.Close)
		d.relay, d.real = relay, true
		return providertest.Harness{
			Open: func(t testing.TB, fleet string) provider.Provider {
				return b.open(t, fleet, d.url, func(config map[string]any) { config["hosts"].([]any)[0].(map[string]any)["socket"] = d.socket })
			},
			Request:  func() provider.Request { return provider.Request{Port: 3128, CloudInit: secret.New(cloudInit)} },
			Outlives: true,
			Settle:   2 * time.Minute,
			Inject:   d.inject,
		}
	})
}

// clear removes all machines of the host.
func (b *bed) clear(t testing.TB) {
	t.Helper()
	const line = `for d in $(virsh list --all --name); do virsh --quiet destroy $d; virsh --quiet undefine --nvram $d; done
		rm -f /var/lib/libvirt/images/fleet/proxy-*; virsh --quiet pool-refresh fleet`
	if out, err := b.Exec(context.WithoutCancel(t.Context()), "sh", "-c", line); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
