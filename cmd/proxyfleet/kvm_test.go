package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
)

// vms is a place whose proxies are virtual machines.
type vms struct {
	*place
	hosts  []*hypervisor.Host // called one and two
	kinds  []string           // types of providers, each of which is there once and has its type for a name
	images []vmImage
	target string
	socket string // of libvirtd on the hosts; "" is the usual one
}

// vmImage is an image of the providers.
type vmImage struct{ name, url, sum, firmware string }

// hostNames are what the providers call the hosts.
var hostNames = []string{"one", "two"}

// newVMs starts hypervisors, or skips the test where there can be none. They have the image "tiny", which is a guest that can be
// a proxy, and "blank", which boots nothing.
func newVMs(t *testing.T, hosts int, kinds ...string) *vms {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	v := &vms{kinds: kinds}
	for range hosts {
		host, err := hypervisor.Start(ctx)
		if err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
		t.Cleanup(host.Close)
		v.hosts = append(v.hosts, host)
	}
	path, err := hypervisor.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tiny, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v.place = newPlace(t)
	v.images = []vmImage{v.image("tiny", tiny, "efi", whole(tiny)), v.image("blank", blank, "bios", whole(blank))}
	v.target = v.serve(v.hosts[0].Gateway, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = fmt.Fprint(w, "a page")
	})
	return v
}

// blank is a disk that boots nothing.
var blank = make([]byte, 4<<20)

// image is one that a server has.
func (v *vms) image(name string, content []byte, firmware string, server http.HandlerFunc) vmImage {
	v.t.Helper()
	digest := sha256.Sum256(content)
	return vmImage{name, v.serve("127.0.0.1", server), hex.EncodeToString(digest[:]), firmware}
}

// whole serves content as it should be.
func whole(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
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
	var hosts, images, b strings.Builder
	for i, host := range v.hosts {
		fmt.Fprintf(&hosts, "    - {name: %s, address: %q, user: %s, keyFile: %q, knownHostsFile: %q, pool: %s, socket: %q}\n", hostNames[i],
			host.Address, host.User, host.KeyFile(), host.KnownHostsFile(), host.Pool, cmp.Or(v.socket, "/run/libvirt/libvirt-sock"))
	}
	for _, i := range v.images {
		fmt.Fprintf(&images, "    - {name: %s, url: %q, sha256: %s, firmware: %s}\n", i.name, i.url, i.sum, i.firmware)
	}
	fmt.Fprintf(&b, `apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: vm-fleet
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
`, v.target+"/healthz")
	for _, kind := range v.kinds {
		fmt.Fprintf(&b, `- name: %s
  type: %[1]s
  config:
    hosts:
%s    images:
%s    machineTypes:
    - {name: small, cpus: 1, memoryMiB: 256}
    domainTypes: [kvm, qemu]
    proxy: none
`, kind, &hosts, &images)
	}
	return b.String()
}

// vm is a document of a proxy. Its attribute "name" is its name.
type vm struct{ name, kind, zone, image string }

func (m vm) String() string {
	more := fmt.Sprintf("placement: {zone: %s, image: %s}\n  attributes: {name: %s}", cmp.Or(m.zone, "one"), m.image, m.name)
	if m.image == "tiny" {
		more += "\n  cloudInit: {secretRef: {name: init, key: userData}}"
	}
	return declared{name: m.name, provider: m.kind, more: more}.String()
}

// setup is a cloud-init with which the tiny guest becomes a proxy, after some commands.
func setup(commands ...string) string {
	init := fmt.Sprintf(`#cloud-config
write_files:
- path: /etc/tinyproxy.conf
  content: |
    Port 3128
    BasicAuth crawler %sa
runcmd:
- %s
- [tinyproxy, -c, /etc/tinyproxy.conf]
`, planted, strings.Join(commands, "\n- "))
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: init, labels: {crawl.example.com/cloud-init: "true"}}
stringData: {userData: %q}
`, init)
}

// declare writes what there is to be.
func (v *vms) declare(setup string, machines ...vm) {
	v.t.Helper()
	documents := []string{v.configuration(), login("a"), setup}
	for _, m := range machines {
		documents = append(documents, m.String())
	}
	v.write("fleet.yaml", documents...)
}

// on runs a line of shell on a host.
func (v *vms) on(host int, line string) string {
	v.t.Helper()
	out, err := v.hosts[host].Exec(v.t.Context(), "sh", "-c", line)
	if err != nil {
		v.t.Fatal(err)
	}
	return out
}

// left returns what a host has of machines, other than images.
func (v *vms) left(host int) string {
	v.t.Helper()
	return v.on(host, `virsh list --all --name; ls /var/lib/libvirt/images/fleet /var/lib/libvirt/qemu/nvram 2>/dev/null | grep proxy- || true`)
}

// domain is what the domain of a proxy is called.
func domain(uid string) string { return provider.Name("vm-fleet", uid) }

// incarnation returns the UUID of a domain, or "".
func (v *vms) incarnation(host int, domain string) string {
	v.t.Helper()
	return v.on(host, "virsh domuuid "+domain+" 2>/dev/null || true")
}

// starts returns how often a domain of that name was ever started.
func (v *vms) starts(host int, domain string) string {
	v.t.Helper()
	return v.on(host, "grep --count 'starting up' /var/log/libvirt/qemu/"+domain+".log || true")
}

// crawl leases a proxy by its name and uses it as a crawler would.
func (v *vms) crawl(s *server, name string) {
	v.t.Helper()
	granted, err := s.client.Acquire(v.t.Context(), lease.Request{Selector: map[string]string{"name": name}, Wait: 30 * time.Second}) // the store hears of it a moment later
	if err != nil {
		v.t.Fatalf("a lease of %s: %v", name, err)
	}
	curl := exec.CommandContext(v.t.Context(), "curl", "--silent", "--max-time", "20", "--proxy", granted.Leases[0].Proxy.RevealURL().String(), v.target)
	if out, err := curl.CombinedOutput(); err != nil || string(out) != "a page" {
		v.t.Errorf("curl through the leased proxy %s: %v, %q", name, err, out)
	}
	if err := s.client.Release(v.t.Context(), granted.Leases[0].ID); err != nil {
		v.t.Error(err)
	}
}

// eventually asks with the patience that it takes to emulate machines while others work, and to believe that one is gone. It asks
// seldom, for the processor has other things to do.
func (v *vms) eventually(missing func() string) {
	v.t.Helper()
	within(v.t, 8*time.Minute, 500*time.Millisecond, missing)
}

// start runs the fleet with intervals that leave the processor to the machines.
func (v *vms) start(args ...string) *server {
	v.t.Helper()
	return v.place.start(append([]string{"--documents-poll", "200ms", "--provisioning-poll", "500ms", "--deletion-poll", "500ms",
		"--drift-poll", "2s"}, args...)...)
}

// ready waits until all these proxies are, and returns them by name.
func (v *vms) ready(s *server, machines ...vm) map[string]client.Proxy {
	v.t.Helper()
	var all map[string]client.Proxy
	v.eventually(func() string {
		all = s.list()
		for _, m := range machines {
			if p := all[m.name]; p.Phase != "Ready" {
				return fmt.Sprintf("%s is not Ready: %+v", m.name, p)
			}
		}
		return ""
	})
	return all
}

// ofEach returns one machine for each type of provider, on the first host.
func (v *vms) ofEach(image string) []vm {
	var all []vm
	for _, kind := range v.kinds {
		all = append(all, vm{name: "of-" + kind, kind: kind, image: image})
	}
	return all
}

// The tests of virtual machines wait most of the time: for a machine that boots, or until it is proven that none is on its way. So
// they all run at once, and take the place of one test among those of this package. Their machines are emulated, and too many of
// them starve everything: beside the life of machines, SEED draws one of the others, and all run with at least 100 KILLS.
func TestKVM(t *testing.T) {
	t.Parallel()
	troubles := map[string]func(*testing.T){
		"Killed":     func(t *testing.T) { killedVMs(t, "kvm") },
		"Killed2":    func(t *testing.T) { killedVMs(t, "kvm2") },
		"TwoHosts":   vmsOnTwoHosts,
		"DiskFull":   vmsOnAFullDisk,
		"ImageStuck": imagesOfVMs,
	}
	seed := number("SEED", int(time.Now().UnixNano()%1e9))
	drawn := slices.Sorted(maps.Keys(troubles))[seed%len(troubles)]
	t.Logf("SEED=%d: %s", seed, drawn)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { t.Run("Life", lifeOfVMs) })
	for name, test := range troubles {
		if name == drawn || number("KILLS", 0) >= 100 {
			group.Go(func() { t.Run(name, test) })
		}
	}
}

// Documents become virtual machines under UEFI, whose seeds make them proxies; they are probed through themselves, leased and used.
// Their cloud-init is edited, and they are replaced; they are deleted, and nothing is left. Both types of providers do so on one
// host at once, and neither touches the other's.
func lifeOfVMs(t *testing.T) {
	v := newVMs(t, 1, "kvm", "kvm2")
	machines := v.ofEach("tiny")
	v.declare(setup("echo first"), machines...)
	s := v.start()
	began := time.Now()
	for _, m := range machines {
		v.ready(s, m)
		t.Logf("%s from the document to Ready, with the others: %v", m.name, time.Since(began).Round(100*time.Millisecond))
	}
	first := map[string]string{}
	for name, p := range s.list() {
		v.crawl(s, name)
		first[name] = v.incarnation(0, domain(p.UID))
	}

	v.declare(setup("echo second"), machines...)
	v.eventually(func() string {
		for name, p := range s.list() {
			if now := v.incarnation(0, domain(p.UID)); now == first[name] || now == "" {
				return name + " is not replaced: " + now
			}
		}
		return ""
	})
	v.ready(s, machines...)
	for _, m := range machines {
		v.crawl(s, m.name)
	}
	if list := s.cli("get", "providers"); strings.Count(list.stdout, "1/1") != len(v.kinds) {
		t.Errorf("the host is not ready: %s%s", list.stdout, list.stderr)
	}

	v.declare(setup("echo second"))
	v.eventually(func() string { // their records take a while longer: until it is proven that no create is on its way
		if left := v.left(0); left != "" {
			return "of what is deleted there is still: " + left
		}
		return ""
	})
	for name, p := range s.list() {
		if !p.Deleting {
			t.Errorf("%s is to be deleted, and is %+v", name, p)
		}
	}
}
