package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/lease"
)

// vms is a place whose proxies are virtual machines.
type vms struct {
	*place
	host   *hypervisor.Host
	kind   string // the type of the provider
	target string
	image  string // its URL
	sum    string
	socket string // of libvirtd on the host; "" is the usual one

	firmware string // "" is efi
}

// newVMs starts a hypervisor, or skips the test where there can be none.
func newVMs(t *testing.T, kind string) *vms {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	host, err := hypervisor.Start(ctx)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(host.Close)
	path, err := hypervisor.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(image)
	v := &vms{place: newPlace(t), host: host, kind: kind, sum: hex.EncodeToString(digest[:])}
	v.image = v.serve("127.0.0.1", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) })
	v.target = v.serve(host.Gateway, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = fmt.Fprint(w, "a page")
	})
	return v
}

// serve serves at an address until the test ends, and returns the URL.
func (v *vms) serve(ip string, handler http.HandlerFunc) string {
	v.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		v.t.Fatal(err)
	}
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	v.t.Cleanup(server.Close)
	return server.URL
}

func (v *vms) configuration() string {
	return fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: vm-fleet
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: vms
  type: %s
  config:
    hosts:
    - {name: one, address: %q, user: %s, keyFile: %q, knownHostsFile: %q, pool: %s, socket: %q}
    images:
    - {name: tiny, url: %q, sha256: %s, firmware: %s}
    machineTypes:
    - {name: small, cpus: 1, memoryMiB: 256}
    domainTypes: [kvm, qemu]
    proxy: none
`, v.target+"/healthz", v.kind, v.host.Address, v.host.User, v.host.KeyFile(), v.host.KnownHostsFile(), v.host.Pool,
		cmp.Or(v.socket, "/run/libvirt/libvirt-sock"), v.image, v.sum, cmp.Or(v.firmware, "efi"))
}

// documents are the configuration and a proxy whose cloud-init says how the tiny guest becomes one.
func (v *vms) documents(remark string) []string {
	init := fmt.Sprintf(`#cloud-config
# %s
write_files:
- path: /etc/tinyproxy.conf
  content: |
    Port 3128
    BasicAuth crawler %sa
runcmd:
- [tinyproxy, -c, /etc/tinyproxy.conf]
`, remark, planted)
	document := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: init, labels: {crawl.example.com/cloud-init: "true"}}
stringData: {userData: %q}
`, init)
	one := declared{name: "one", provider: "vms", more: "cloudInit: {secretRef: {name: init, key: userData}}\n" +
		"  placement: {zone: one, machineType: small, image: tiny}"}
	return []string{v.configuration(), login("a"), document, one.String()}
}

// left returns what the host has of machines, other than images.
func (v *vms) left() string {
	v.t.Helper()
	list := `virsh list --all --name; ls /var/lib/libvirt/images/fleet /var/lib/libvirt/qemu/nvram 2>/dev/null | grep proxy- || true`
	out, err := v.host.Exec(v.t.Context(), "sh", "-c", list)
	if err != nil {
		v.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// A document becomes a virtual machine under UEFI, whose seed makes it a proxy; it is probed through itself, leased and used.
// Its cloud-init is edited, and it is replaced; it is deleted, and nothing is left.
func TestKVM(t *testing.T) { virtualMachines(t, "kvm") }

func virtualMachines(t *testing.T, kind string) {
	v := newVMs(t, kind)
	v.write("fleet.yaml", v.documents("first")...)
	s := v.start()
	began := time.Now()
	s.await(1, "Ready")
	t.Logf("from the document to Ready: %v", time.Since(began).Round(100*time.Millisecond))
	v.crawl(s)
	uuid := func() string {
		out, _ := v.host.Exec(t.Context(), "virsh", "list", "--all", "--uuid")
		return out
	}
	first := uuid()

	v.write("fleet.yaml", v.documents("second")...)
	eventually(t, func() string {
		if now := uuid(); now == first || now == "" {
			return "it is not replaced: " + now
		}
		return ""
	})
	s.await(1, "Ready")
	v.crawl(s)

	v.write("fleet.yaml", v.configuration(), login("a"))
	s.await(0, "")
	if left := v.left(); left != "" {
		t.Errorf("of what was deleted there is still:\n%s", left)
	}
	if list := s.cli("get", "providers"); !strings.Contains(list.stdout, "1/1") {
		t.Errorf("the host is not ready: %s%s", list.stdout, list.stderr)
	}
}

// crawl leases a proxy and uses it as a crawler would.
func (v *vms) crawl(s *server) {
	v.t.Helper()
	granted, err := s.client.Acquire(v.t.Context(), lease.Request{})
	if err != nil {
		v.t.Fatal(err)
	}
	curl := exec.CommandContext(v.t.Context(), "curl", "--silent", "--max-time", "20", "--proxy", granted.Leases[0].Proxy.RevealURL().String(), v.target)
	if out, err := curl.CombinedOutput(); err != nil || string(out) != "a page" {
		v.t.Errorf("curl through the leased proxy: %v, %q", err, out)
	}
	if err := s.client.Release(v.t.Context(), granted.Leases[0].ID); err != nil {
		v.t.Error(err)
	}
}

// The fleet is killed while an image is fetched, and around each call that makes or removes something. The next start goes on from
// there: there is one machine, and after a deletion nothing of it; of the image there is one copy.
func TestKVMKilled(t *testing.T) { killedVirtualMachines(t, "kvm") }

func killedVirtualMachines(t *testing.T, kind string) {
	v := newVMs(t, kind)
	v.socket = v.host.Path("relay.sock")
	relay, err := hypervisor.NewRelay(v.socket, v.host.LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	// Nothing is to boot: the disks are blank.
	blank := make([]byte, 4<<20)
	digest := sha256.Sum256(blank)
	v.sum, v.firmware = hex.EncodeToString(digest[:]), "bios"
	whole := v.serve("127.0.0.1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(blank)))
		_, _ = w.Write(blank)
	})
	var names []string
	write := func() {
		documents := []string{v.configuration(), login("a")}
		for _, name := range names {
			documents = append(documents, declared{name: name, provider: "vms"}.String())
		}
		v.write("fleet.yaml", documents...)
	}

	half := make(chan struct{}, 1)
	v.image, names = v.halfAnImage(half), []string{"proxy-0"}
	write()
	s := v.start()
	<-half
	s.kill()
	v.image = whole
	for i, point := range []killPoint{
		{"during the upload of the image", hypervisor.StorageVolUpload, hypervisor.Swallow},
		{"before define", hypervisor.DomainDefineXML, hypervisor.Swallow},
		{"after define", hypervisor.DomainDefineXML, hypervisor.Lose},
		{"after a volume was made", hypervisor.StorageVolCreateXML, hypervisor.Lose},
		{"before start", hypervisor.DomainCreate, hypervisor.Swallow},
		{"after start", hypervisor.DomainCreate, hypervisor.Lose},
	} {
		names = append(names, fmt.Sprintf("proxy-%d", i+1))
		write()
		v.killAt(relay, point)
	}
	s = v.start()
	v.machines(len(names))
	s.kill()

	for _, point := range []killPoint{
		{"after destroy", hypervisor.DomainDestroy, hypervisor.Lose},
		{"after a volume was deleted", hypervisor.StorageVolDelete, hypervisor.Lose},
		{"before undefine", hypervisor.DomainUndefineFlags, hypervisor.Swallow},
		{"after undefine", hypervisor.DomainUndefineFlags, hypervisor.Lose},
	} {
		names = names[1:]
		write()
		v.killAt(relay, point)
	}
	v.start()
	v.machines(len(names))
	images, err := v.host.Exec(t.Context(), "sh", "-c", "ls /var/lib/libvirt/images/fleet | grep proxyfleet-image")
	if err != nil || len(strings.Fields(images)) != 2 {
		t.Errorf("of the image there is more or less than one copy and its marker: %q, %v", images, err)
	}
}

// killPoint is a call at which a fleet is killed, and what becomes of the call.
type killPoint struct {
	what string
	call uint32
	how  hypervisor.Verdict
}

// halfAnImage serves half of the image and no more, and tells when it has.
func (v *vms) halfAnImage(half chan<- struct{}) string {
	return v.serve("127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2000000")
		_, _ = w.Write(make([]byte, 1000000))
		w.(http.Flusher).Flush()
		half <- struct{}{}
		<-r.Context().Done()
	})
}

// killAt starts the fleet and kills it when it makes a call.
func (v *vms) killAt(relay *hypervisor.Relay, point killPoint) {
	v.t.Helper()
	made := make(chan struct{}, 1)
	relay.Rule(func(procedure uint32) hypervisor.Verdict {
		if procedure != point.call {
			return hypervisor.Pass
		}
		select {
		case made <- struct{}{}:
		default:
		}
		return point.how
	})
	s := v.start()
	select {
	case <-made:
	case <-time.After(patience):
		v.t.Fatalf("it does not come to be killed %s", point.what)
	}
	s.kill()
	relay.Rule(nil)
}

// machines waits until the host runs so many machines, each with its disk and its seed, and has nothing else.
func (v *vms) machines(count int) {
	v.t.Helper()
	eventually(v.t, func() string {
		out, err := v.host.Exec(v.t.Context(), "virsh", "list", "--name")
		if left := strings.Fields(v.left()); err != nil || len(strings.Fields(out)) != count || len(left) != 3*count {
			return fmt.Sprintf("the host runs %q, and has %q: %v", out, left, err)
		}
		return ""
	})
}
