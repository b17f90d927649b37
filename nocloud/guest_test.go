package nocloud_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

// awkward is what a careless reader or writer of documents would change: letters beyond ASCII, both kinds of line ends, and
// more of it than fits into what most clouds allow. Each line is a comment, for YAML and for a shell.
var awkward = strings.Repeat("# grüße, 你好, 🦊\r\n# \ttab, and blanks at the end  \n", 4000)

// A kernel reads the disk as it was written. The guest is a small one, which runs a script as cloud-init does.
func TestKernelReadsSeedUnchanged(t *testing.T) {
	b := newBed(t)
	script := "#!/bin/sh\ncd /run/cidata\nfor f in *-*; do echo \"sum $(sha256sum <$f) $f\"; done\necho all summed\nexit\n" + awkward
	vendor, network := "#cloud-config\r\n"+awkward, "version: 2\n"+awkward
	seed := nocloud.Seed{InstanceID: "i-1", UserData: secret.New(script), VendorData: secret.New(vendor), NetworkConfig: network}
	want := map[string]string{}
	for name, content := range map[string]string{
		"meta-data": "instance-id: \"i-1\"\n", "user-data": script, "vendor-data": vendor, "network-config": network,
	} {
		want[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	}

	image, err := hypervisor.Image(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	console := b.boot(t, guest{name: "tiny", image: image, mebibytes: 256, firmware: bios}, seed)
	until(t, 5*time.Minute, console.read, func(said string) bool { return strings.Contains(said, "all summed") })
	got := map[string]string{}
	for _, line := range regexp.MustCompile(`sum ([0-9a-f]{64})  - (\S+)`).FindAllStringSubmatch(console.read(), -1) {
		got[line[2]] = line[1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests of the files that the guest reads (-want +got):\n%s", diff)
	}
}

// A Debian that has no proxy, with the real cloud-init, becomes the proxy that is described, and does what its user's own
// document says too. It takes minutes, so it runs only if GUESTS asks for it.
func TestDebianBecomesProxy(t *testing.T) {
	if os.Getenv("GUESTS") == "" {
		t.Skip("set GUESTS=1 to boot a Debian")
	}
	b := newBed(t)
	image := command(t, 20*time.Minute, "", "../hack/testenv/libvirt/full.sh")
	mirror := b.serve(t, packages)
	target := b.serve(t, http.HandlerFunc(headers))
	p := sample()
	p.AllowedDestinations = prefixes(b.Gateway + "/32")
	setup := vendorData(t, p)
	user := b.userData(t, mirror)
	debian := b.start(t, guest{name: "debian", image: image, mebibytes: 1024, firmware: uefi}, nocloud.Seed{
		InstanceID: "proxy-kq3v7y2m5n4x6z7a", Hostname: "proxy-1", UserData: secret.New(user), VendorData: setup,
		NetworkConfig: "version: 2\nethernets: {all: {match: {name: \"e*\"}, dhcp4: true}}\n",
	})

	for _, c := range []struct{ name, command, want string }{
		{"cloud-init ends well", "cloud-init status --wait | tail -n 1", "status: done"},
		{"its source is the disk", "cut -d' ' -f2 /var/lib/cloud/instance/datasource", "DataSourceNoCloud"},
		{"nothing went wrong", "python3 -c 'import json; print(json.load(open(\"/run/cloud-init/result.json\"))[\"v1\"][\"errors\"])'", "[]"},
		{"instance", "cat /var/lib/cloud/data/instance-id", "proxy-kq3v7y2m5n4x6z7a"},
		{"hostname", "hostname", "proxy-1"},
		{"user-data", "sha256sum </var/lib/cloud/instance/user-data.txt", fmt.Sprintf("%x  -", sha256.Sum256([]byte(user)))},
		{"vendor-data", "sha256sum </var/lib/cloud/instance/vendor-data.txt", fmt.Sprintf("%x  -", sha256.Sum256([]byte(setup.Reveal())))},
		{"user's file", "od -An -tx1 /root/greeting | tr -d ' \\n'", fmt.Sprintf("%x", greeting)},
		{"user's command", "cat /root/ran", "ran once"},
		{"squid runs", "systemctl is-active squid", "active"},
		{"squid will run", "systemctl is-enabled squid", "enabled"},
		{"password file", "stat -c '%A %U:%G' /etc/squid/passwd", "-rw-r----- root:proxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := debian.run(t, c.command); got != c.want {
				t.Errorf("%s: %q, want %q", c.command, got, c.want)
			}
		})
	}
	t.Run("proxy", func(t *testing.T) { b.tryProxy(t, net.JoinHostPort(debian.address, "3128"), target) })
	t.Run("proxy after a reset", func(t *testing.T) {
		debian.run(t, "sync")
		b.virsh(t, "reset", "debian")
		until(t, 10*time.Minute, func() int {
			status, _ := get(t, net.JoinHostPort(debian.address, "3128"), owner, target)
			return status
		}, func(status int) bool { return status == http.StatusOK })
		if got := debian.run(t, "cloud-init status --wait >/dev/null; cat /root/ran"); got != "ran once" {
			t.Errorf("the user's command left %q, want it to have run at the first boot only", got)
		}
	})
	if t.Failed() {
		t.Logf("what cloud-init says:\n%s", debian.run(t, "cat /run/cloud-init/result.json; tail -n 60 /var/log/cloud-init-output.log"))
	}
}

// owner knows the password of the sample.
var owner = url.UserPassword("crawler", "hunter2 § ' \"")

// tryProxy is what a client of the proxy sees.
func (b bed) tryProxy(t *testing.T, proxy, target string) {
	for _, c := range []struct {
		name   string
		user   *url.Userinfo
		target string
		want   int
	}{
		{"allowed", owner, target, http.StatusOK},
		{"no password", nil, target, http.StatusProxyAuthRequired},
		{"wrong password", url.UserPassword("crawler", "hunter2"), target, http.StatusProxyAuthRequired},
		{"metadata", owner, "http://169.254.169.254/", http.StatusForbidden},
		{"the host's network", owner, "http://" + b.IP + "/", http.StatusForbidden},
		{"itself", owner, "http://127.0.0.1:22/", http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, body := get(t, proxy, c.user, c.target); got != c.want {
				t.Errorf("%s: %d %s; want %d", c.target, got, body, c.want)
			}
		})
	}
}

const greeting = "grüße, 你好, 🦊\r\nzwei\n"

// userData is a document of 200 KiB with line ends as on Windows. It lets the test in, gets packages from the mirror, writes a
// file and runs a command.
func (b bed) userData(t *testing.T, mirror string) string {
	t.Helper()
	key, err := os.ReadFile(b.KeyFile() + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	document := fmt.Sprintf(`#cloud-config
ssh_authorized_keys: [%q]
ssh_genkeytypes: [ed25519]
apt: {http_proxy: %q}
write_files: [{path: /root/greeting, content: "grüße, 你好, 🦊\r\nzwei\n"}]
runcmd: ["echo ran once >>/root/ran"]
`, strings.TrimSpace(string(key)), mirror)
	return strings.ReplaceAll(document, "\n", "\r\n") + awkward
}

// packages hands requests for packages on to where this machine gets its own.
var packages = &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}

// bed is a hypervisor of the test's own.
type bed struct{ *hypervisor.Host }

func newBed(t *testing.T) bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	host, err := hypervisor.Start(ctx)
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	t.Cleanup(host.Close)
	return bed{host}
}

// serve answers requests on the address that guests reach, and returns the URL.
func (b bed) serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(b.Gateway, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// until looks again and again until what it sees will do, and returns that.
func until[T any](t *testing.T, patience time.Duration, look func() T, enough func(T) bool) T {
	t.Helper()
	for deadline, again := time.After(patience), time.Tick(200*time.Millisecond); ; {
		seen := look()
		if enough(seen) {
			return seen
		}
		select {
		case <-deadline:
			t.Fatalf("after %v there is only: %v", patience, seen)
		case <-again:
		}
	}
}

// guest is a virtual machine.
type guest struct {
	name      string
	image     string // of its disk
	mebibytes int
	firmware  string // bios or uefi
}

// The opening of what libvirt is told of how a guest boots. The images of the tests are not signed.
const (
	bios = "<os>"
	uefi = "<os firmware='efi'><firmware><feature name='secure-boot' enabled='no'/></firmware>"
)

// domain is what libvirt is told of a guest: its name, memory, firmware and the folder with its files.
const domain = `<domain type='qemu'>
  <name>%[1]s</name><memory unit='MiB'>%[2]d</memory><vcpu>1</vcpu>
  %[3]s<type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='%[4]s/%[1]s.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <controller type='scsi' model='virtio-scsi'/>
    <disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='%[4]s/%[1]s.iso'/><target dev='sda' bus='scsi'/><readonly/></disk>
    <interface type='network'><source network='default'/><model type='virtio'/></interface>
    <serial type='file'><source path='%[4]s/%[1]s.log'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
`

// console is the file that a guest's serial console is written to.
type console string

func (c console) read() string {
	said, _ := os.ReadFile(string(c))
	return string(said)
}

// boot starts a guest.
func (b bed) boot(t *testing.T, g guest, seed nocloud.Seed) console {
	t.Helper()
	const folder = "/var/lib/libvirt/images"
	path := func(extension string) string { return filepath.Join(b.Dir, folder, g.name+extension) }
	command(t, time.Minute, "", "cp", g.image, path(".qcow2"))
	for name, content := range map[string][]byte{
		path(".iso"): build(t, seed),
		path(".xml"): fmt.Appendf(nil, domain, g.name, g.mebibytes, g.firmware, folder),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.virsh(t, "create", filepath.Join(folder, g.name+".xml"))
	serial := console(path(".log"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of %s:\n%s", g.name, serial.read())
		}
	})
	return serial
}

func (b bed) virsh(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said, err := b.Exec(ctx, append([]string{"virsh", "--quiet"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// login is a guest that runs commands over SSH.
type login struct {
	address, key string
}

var ipv4 = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

// start boots a guest and waits until it lets the test in.
func (b bed) start(t *testing.T, g guest, seed nocloud.Seed) login {
	t.Helper()
	b.boot(t, g, seed)
	address := until(t, 10*time.Minute, func() string {
		return ipv4.FindString(b.virsh(t, "domifaddr", g.name, "--source", "lease"))
	}, func(address string) bool { return address != "" })
	until(t, 10*time.Minute, func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, "22"), 10*time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, func(err error) bool { return err == nil })
	return login{address: address, key: b.KeyFile()}
}

// run runs a command as root and returns what it says.
func (l login) run(t *testing.T, script string) string {
	t.Helper()
	return command(t, 15*time.Minute, script, "ssh", "-F", "none", "-i", l.key, "-o", "BatchMode=yes", "-o", "ConnectTimeout=30",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "debian@"+l.address, "sudo sh -s")
}

// command runs a program of this machine and returns what it says.
func command(t *testing.T, patience time.Duration, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &errs
	output, err := cmd.Output()
	if err != nil {
		t.Errorf("%s %q: %v\n%s%s", name, args, err, output, errs.String())
	}
	return strings.TrimSpace(string(output))
}
