package libvirttest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// Driver is a libvirtd behind a relay, which can do with single calls what no libvirtd does on demand: libvirt's test driver, with
// nothing in it but what a test makes, or QEMU.
type Driver struct {
	Relay *hypervisor.Relay
	// Conn is one to the test driver that is held open, because what that knows is gone with its last connection.
	Conn *libvirt.Conn

	bed *Bed
	url string // of the image
	// uploads says that the relay takes them, because libvirtd's test driver has none.
	uploads bool
}

// TestDriver returns libvirt's test driver, which the real libvirtd serves through the real sshd.
func (b *Bed) TestDriver(t testing.TB) *Driver {
	t.Helper()
	b.Start(t)
	d := &Driver{bed: b, Relay: b.relay(t), url: ServeImage(t, BlankImage()), uploads: true}
	d.Calm()
	host := libvirt.Host{Name: "one", Address: b.Address, User: b.User, Socket: d.Relay.Path(), URI: "test:///default"}
	login := &libvirt.Login{KeyFile: b.KeyFile(), KnownHostsFile: b.KnownHostsFile()}
	var err error
	if d.Conn, err = libvirt.Dial(t.Context(), host, login, libvirt.Budgets{}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Conn.Close)
	return d
}

// QEMU returns the real driver, whose machines boot.
func (b *Bed) QEMU(t testing.TB) *Driver {
	t.Helper()
	b.Start(t)
	return &Driver{bed: b, Relay: b.relay(t), url: ServeImage(t, b.Image)}
}

func (b *Bed) relay(t testing.TB) *hypervisor.Relay {
	t.Helper()
	relay, err := hypervisor.NewRelay(b.Path("relay-"+rand.Text()[:8]+".sock"), b.LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	return relay
}

// Config is a configuration for the driver, with edits.
func (d *Driver) Config(t testing.TB, edits ...func(config map[string]any)) json.RawMessage {
	t.Helper()
	ours := []func(map[string]any){EditHost(func(host map[string]any) { host["socket"] = d.Relay.Path() })}
	if d.uploads {
		ours = append(ours, EditHost(func(host map[string]any) { host["uri"], host["pool"] = "test:///default", "default-pool" }),
			func(config map[string]any) {
				config["images"] = []any{map[string]any{"name": "blank", "url": d.url, "sha256": Sum(BlankImage()), "firmware": "bios"}}
				config["domainTypes"], config["proxy"] = []string{"test"}, "squid"
			})
	}
	return d.bed.Config(t, d.url, append(ours, edits...)...)
}

// Open opens the provider over the driver.
func (d *Driver) Open(t testing.TB, fleet string) provider.Provider {
	t.Helper()
	return d.bed.Open(t, fleet, d.Config(t))
}

// Fetch has the image arrive, and ends whoever fetched it: the calls that follow are those of who makes them.
func (d *Driver) Fetch(t *testing.T) {
	t.Run("the image arrives", func(t *testing.T) {
		p := d.Open(t, "fleet-image")
		Run(t, p)
		in := Made(t, p, Marked(DriverRequest(), "fleet-image", "uid-image"))
		if err := p.Delete(t.Context(), RefOf(in)); err != nil {
			t.Fatal(err)
		}
	})
}

// DriverRequest asks the test driver for a machine. The suite, or [Marked], fills in whose it is.
func DriverRequest() provider.Request {
	return provider.Request{
		Port:        3128,
		CloudInit:   secret.New("#cloud-config\n# cloud-init-secret-1234\n"),
		Credentials: provider.Credentials{Username: secret.New("crawler-user-name"), Password: secret.New("correct-horse-battery")},
	}
}

// Calm ends what [Driver.Judge] and [Driver.Once] do.
func (d *Driver) Calm() { d.Judge(nil) }

// Once does something with the next call of a kind.
func (d *Driver) Once(procedure uint32, v hypervisor.Verdict) {
	var once sync.Once
	d.Judge(func(called uint32) (verdict hypervisor.Verdict) {
		if called == procedure {
			once.Do(func() { verdict = v })
		}
		return verdict
	})
}

// Judge says what becomes of each call. Nil passes all.
func (d *Driver) Judge(judge func(procedure uint32) hypervisor.Verdict) {
	d.Relay.Rule(func(procedure uint32) (verdict hypervisor.Verdict) {
		if judge != nil {
			verdict = judge(procedure)
		}
		if verdict == hypervisor.Pass && procedure == hypervisor.StorageVolUpload && d.uploads {
			return hypervisor.TakeUpload
		}
		return verdict
	})
}

// inject does what the conformance suite asks for.
func (d *Driver) inject(f providertest.Fault) bool {
	switch f {
	case providertest.CreateFails:
		d.Once(hypervisor.DomainDefineXML, hypervisor.Refuse)
	case providertest.CreateUnanswered:
		d.Once(hypervisor.DomainDefineXML, hypervisor.Lose)
	case providertest.GetFails:
		d.Once(hypervisor.DomainLookupByName, hypervisor.Refuse)
	case providertest.DeleteFails:
		d.Once(hypervisor.DomainDestroy, hypervisor.Refuse)
	case providertest.DeleteUnanswered:
		d.Once(hypervisor.DomainUndefineFlags, hypervisor.Lose)
	case providertest.ListFails:
		d.Once(hypervisor.ConnectListAllDomains, hypervisor.Refuse)
	case providertest.CheckFails:
		d.Judge(func(procedure uint32) hypervisor.Verdict {
			if procedure == hypervisor.StoragePoolGetInfo {
				return hypervisor.Refuse
			}
			return hypervisor.Pass
		})
	case providertest.Hangs:
		d.Judge(func(uint32) hypervisor.Verdict { return hypervisor.Swallow })
	default:
		return false
	}
	return true
}

// plant makes a machine as another fleet would, or as somebody with virsh.
func (d *Driver) plant(t testing.TB, r provider.Request) {
	if r.Marks == (provider.Marks{}) {
		_, err := d.Conn.Define(t.Context(), libvirtxml.Domain{
			Type: "test", Name: r.Name, Memory: &libvirtxml.DomainMemory{Unit: "MiB", Value: 64}, VCPU: &libvirtxml.DomainVCPU{Value: 1},
			OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := d.Open(t, r.Marks.Fleet)
	runner, _ := provider.As[provider.Runner](p)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	Made(t, p, r)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
