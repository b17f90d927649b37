package libvirt

import (
	"bytes"
	"context"
	sha "crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

// Why a host cannot be reached is told by a stable reason, and what needs an administrator is not tried for ever.
func TestHostsThatCannotBeReached(t *testing.T) {
	host := realHost(t)
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	read := func(name string) string {
		content, err := os.ReadFile(host.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	other := strings.Fields(read("other.pub"))
	forwarding := sshd(t, host, "AllowStreamLocalForwarding no")
	for _, c := range []struct {
		name   string
		edit   func(*HostConfig)
		class  provider.Class
		reason string
		hint   string
	}{
		{"no SSH server", func(h *HostConfig) { h.Address = host.IP + ":23" }, provider.ErrTransient, HostUnreachable, "refused"},
		{"unknown host key", func(h *HostConfig) { h.KnownHostsFile = file("") }, provider.ErrPermanent, HostKeyUnknown, "known hosts"},
		{"changed host key", func(h *HostConfig) { h.KnownHostsFile = file(host.IP + " " + other[0] + " " + other[1] + "\n") },
			provider.ErrPermanent, HostKeyChanged, "another key"},
		{"wrong key", func(h *HostConfig) { h.KeyFile = host.Path("other") }, provider.ErrPermanent, AuthenticationFailed, "authenticate"},
		{"encrypted key", func(h *HostConfig) { h.KeyFile = host.Path("encrypted") }, provider.ErrPermanent, KeyEncrypted, "passphrase"},
		{"no key", func(h *HostConfig) { h.KeyFile = "/nonexistent" }, provider.ErrTransient, KeyUnreadable, "no such file"},
		{"no key in it", func(h *HostConfig) { h.KeyFile = file("nothing") }, provider.ErrTransient, KeyUnreadable, "holds no private key"},
		{"no known hosts", func(h *HostConfig) { h.KnownHostsFile = "/nonexistent" }, provider.ErrTransient, KnownHostsUnreadable, "no such file"},
		{"no forwarding", func(h *HostConfig) {
			h.Address, h.KnownHostsFile = forwarding, file("["+host.IP+"]:2223 "+hostKey(read))
		},
			provider.ErrTransient, SocketRefused, "AllowStreamLocalForwarding"},
		{"no rights on the socket", func(h *HostConfig) { h.User = host.Outsider }, provider.ErrTransient, SocketRefused, "group libvirt"},
		{"no libvirtd", func(h *HostConfig) { h.Socket = "/run/nobody" }, provider.ErrTransient, SocketRefused, "libvirtd runs"},
		{"another driver", func(h *HostConfig) { h.URI = "xyz:///system" }, provider.ErrTransient, LibvirtRefused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := configOf(host, "http://127.0.0.1/x", strings.Repeat("0", 64))
			c.edit(&config.Hosts[0])
			p := open(t, config, policy())
			_, err := p.List(t.Context())
			wantFailure(t, err, c.class, c.reason)
			if err != nil && !strings.Contains(err.Error(), c.hint) {
				t.Errorf("the message does not say %q: %v", c.hint, err)
			}
		})
	}
}

// A host that has several keys is known by whichever is in the file, and a key of the fleet's that may do nothing but forward is enough.
func TestHostsThatCanBeReached(t *testing.T) {
	host := realHost(t)
	shell(t, host, "cd "+host.Dir+" && [ -e rsa ] || ssh-keygen -q -t rsa -b 2048 -N '' -f rsa")
	address := sshd(t, host, "HostKey "+host.Path("rsa")+"\nHostKey "+host.Path("host_key"))
	authorized := host.Path("home/fleet/.ssh/authorized_keys")
	shell(t, host, "sed -i 's/^/restrict,port-forwarding /' "+authorized)
	t.Cleanup(func() { shell(t, host, "cp "+host.Path("id.pub")+" "+authorized) })
	for _, key := range []string{"rsa.pub", "host_key.pub"} {
		t.Run(key, func(t *testing.T) {
			known := filepath.Join(t.TempDir(), "known_hosts")
			content, err := os.ReadFile(host.Path(key))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(known, append([]byte("["+host.IP+"]:2223 "), content...), 0o600); err != nil {
				t.Fatal(err)
			}
			config := configOf(host, "http://127.0.0.1/x", strings.Repeat("0", 64))
			config.Hosts[0].Address, config.Hosts[0].KnownHostsFile = address, known
			if all, err := open(t, config, policy()).List(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("List returned %v, %v", all, err)
			}
		})
	}
}

func hostKey(read func(string) string) string {
	words := strings.Fields(read("host_key.pub"))
	return words[0] + " " + words[1] + "\n"
}

// sshd starts a second SSH server on the host with another setting, until the test ends.
func sshd(t *testing.T, host *hypervisor.Host, setting string) (address string) {
	t.Helper()
	config := host.Path("sshd_config_2")
	shell(t, host, fmt.Sprintf("{ printf '%s\\n'; echo 'Port 2223'; sed 's/^PidFile.*//' %s; echo 'PidFile %s.pid'; } > %s && /usr/sbin/sshd -f %s && until [ -s %s.pid ]; do sleep 0.02; done",
		setting, host.Path("sshd_config"), config, config, config, config))
	t.Cleanup(func() { shell(t, host, "kill $(cat "+config+".pid)") })
	return host.IP + ":2223"
}

func wantFailure(t testing.TB, err error, class provider.Class, reason string) {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != class || e.Reason != reason {
		t.Errorf("the error is %v (%+v), want class %s and reason %s", err, e, class, reason)
	}
}

// images are what a server of images may do.
func imageServer(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

var disk = bytes.Repeat([]byte("a disk that boots nothing. "), 1<<16)

func sumOf(content []byte) string {
	digest := sha.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// settled creates until the answer is an instance, or an error.
func settled(t *testing.T, p *Provider, r provider.Request) (provider.Instance, error) {
	t.Helper()
	var in provider.Instance
	var err error
	eventually(t, 30*time.Second, "the transfer has ended", func() bool {
		in, err = p.Create(t.Context(), r)
		return err != nil || in.Incarnation != ""
	})
	return in, err
}

// Whatever goes wrong with an image is told by the Create that asks for it again, and leaves nothing behind.
func TestImagesThatDoNotArrive(t *testing.T) {
	host := realHost(t)
	send := func(w http.ResponseWriter, announced int, content []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(announced))
		_, _ = w.Write(content)
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		sum     string
		class   provider.Class
		reason  string
	}{
		{"not there", http.NotFound, sumOf(disk), provider.ErrPermanent, ImageMissing},
		{"server in trouble", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, sumOf(disk), provider.ErrTransient, ImageUnavailable},
		{"truncated", func(w http.ResponseWriter, _ *http.Request) { send(w, len(disk), disk[:len(disk)/2]) }, sumOf(disk), provider.ErrTransient, ImageTruncated},
		{"another file", func(w http.ResponseWriter, _ *http.Request) { send(w, len(disk), disk) }, strings.Repeat("0", 64), provider.ErrPermanent, ImageChecksum},
		{"of unknown size", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); _, _ = w.Write(disk) }, sumOf(disk), provider.ErrPermanent, ImageUnusable},
		{"too large for the pool", func(w http.ResponseWriter, _ *http.Request) { send(w, 40<<30, nil) }, sumOf(disk), provider.ErrQuotaExceeded, PoolFull},
		{"leads to other files", func(w http.ResponseWriter, _ *http.Request) {
			send(w, len(overlayOfPasswd(t, host)), overlayOfPasswd(t, host))
		},
			sumOf(overlayOfPasswd(t, host)), provider.ErrPermanent, ImageUnusable},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, configOf(host, imageServer(t, c.handler), c.sum), policy())
			_, err := settled(t, p, requestFor("uid-"+c.reason))
			wantFailure(t, err, c.class, c.reason)
			eventually(t, time.Minute, "nothing of the image is left", func() bool {
				return on(t, host, "ls", "/var/lib/libvirt/images/fleet") == ""
			})
		})
	}
}

// overlayOfPasswd is an image that shows a file of the host.
func overlayOfPasswd(t *testing.T, host *hypervisor.Host) []byte {
	t.Helper()
	path := host.Path("overlay.qcow2")
	if content, err := os.ReadFile(path); err == nil {
		return content
	}
	on(t, host, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", path)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A transfer that is cut off half way, with the host or with the process, leaves nothing that the next one does not remove, and
// tells how far it is.
func TestTransferThatIsCutOff(t *testing.T) {
	host := realHost(t)
	release := make(chan struct{})
	slow := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(disk)))
		_, _ = w.Write(disk[:len(disk)/2])
		w.(http.Flusher).Flush()
		select {
		case <-release:
			_, _ = w.Write(disk[len(disk)/2:])
		case <-r.Context().Done():
		}
	}
	p := open(t, configOf(host, imageServer(t, slow), sumOf(disk)), policy())
	r := requestFor("uid-cut")
	eventually(t, time.Minute, "a volume is being written", func() bool {
		in, err := p.Create(t.Context(), r)
		return err == nil && in.Reason == ImageTransfer && strings.Contains(in.Message, "of 1 MiB") &&
			on(t, host, "ls", "/var/lib/libvirt/images/fleet") != ""
	})
	// All connections of the SSH server are cut.
	shell(t, host, strings.ReplaceAll(cutConnections, "DIR", host.Dir))
	eventually(t, time.Minute, "the failure is told", func() bool {
		_, err := p.Create(t.Context(), r)
		e, ok := errors.AsType[*provider.Error](err)
		return ok && e.Class == provider.ErrTransient && e.Reason == ConnectionLost && strings.Contains(e.Error(), "StorageVolUpload")
	})
	close(release)
	var in provider.Instance
	var err error
	eventually(t, time.Minute, "another transfer has ended, once the failure is told no more", func() bool {
		in, err = p.Create(t.Context(), r)
		if err != nil {
			wantFailure(t, err, provider.ErrTransient, ConnectionLost)
		}
		return in.Incarnation != ""
	})
	if in.State != provider.Provisioning || in.Incarnation == "" {
		t.Errorf("the instance is %+v", in)
	}
	if err := p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: r.Marks.UID}); err != nil {
		t.Fatal(err)
	}
	dropImages(t, host)
}

// dropImages removes the images of a host, which a provider never does.
func dropImages(t testing.TB, host *hypervisor.Host) {
	t.Helper()
	left := on(t, host, "ls", "/var/lib/libvirt/images/fleet")
	if strings.Count(left, "\n") > 1 || strings.Contains(left, "\n") && !strings.Contains(left, complete) {
		t.Errorf("the pool has more than one image and its marker:\n%s", left)
	}
	shell(t, host, "rm -f /var/lib/libvirt/images/fleet/proxyfleet-image-*; virsh --quiet pool-refresh fleet")
}

// withImage opens a provider on a host that has its image.
func withImage(t *testing.T, host *hypervisor.Host, edits ...func(*Config)) *Provider {
	t.Helper()
	config := configOf(host, imageServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(disk)))
		_, _ = w.Write(disk)
	}), sumOf(disk))
	for _, edit := range edits {
		edit(&config)
	}
	t.Cleanup(func() { dropImages(t, host) })
	return open(t, config, policy())
}

// Two images that are on their way to one pool do not fail each other, and the slow one holds nobody up.
func TestTransfersAtOnce(t *testing.T) {
	host := realHost(t)
	release := make(chan struct{})
	other := append(bytes.Clone(disk), "another"...)
	p := withImage(t, host, func(c *Config) {
		slow := imageServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(other)))
			_, _ = w.Write(other[:len(other)/2])
			w.(http.Flusher).Flush()
			<-release
			_, _ = w.Write(other[len(other)/2:])
		})
		c.Images = append(c.Images, Image{Name: "slow", URL: slow, SHA256: sumOf(other), Firmware: bios})
	})
	slow, quick := requestFor("uid-slow"), requestFor("uid-quick")
	slow.Placement.Image, quick.Placement.Image = "slow", "disk"
	ask := func(r provider.Request) provider.Instance {
		in, err := p.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	eventually(t, time.Minute, "the slow image is being written", func() bool {
		return strings.Contains(ask(slow).Message, "of 1 MiB") && on(t, host, "ls", "/var/lib/libvirt/images/fleet") != ""
	})
	if _, err := settled(t, p, quick); err != nil {
		t.Errorf("Create beside a transfer: %v", err)
	}
	close(release)
	for _, r := range []provider.Request{quick, slow} {
		if _, err := settled(t, p, r); err != nil {
			t.Errorf("Create: %v", err)
		}
		remove(t, p, r)
	}
	shell(t, host, "cd /var/lib/libvirt/images/fleet && [ $(ls | wc -l) = 4 ] && rm -f "+imageStem(Image{SHA256: sumOf(other)})+"*")
}

// A machine goes with all that libvirt keeps for it.
func TestDeleteTakesAll(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	r := requestFor("uid-all")
	if _, err := settled(t, p, r); err != nil {
		t.Fatal(err)
	}
	on(t, host, "virsh", "--quiet", "snapshot-create-as", r.Name, "one")
	on(t, host, "virsh", "--quiet", "managedsave", r.Name)
	remove(t, p, r)
	if left := shell(t, host, "find /var/lib/libvirt /etc/libvirt -name '*"+r.Name+"*'"); left != "" {
		t.Errorf("of the machine there is still:\n%s", left)
	}
}

// A libvirtd that answers nothing holds no call longer than its context, and the next calls work when it goes on.
func TestFrozenLibvirtd(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	in, err := settled(t, p, requestFor("uid-frozen"))
	if err != nil {
		t.Fatal(err)
	}
	ref := provider.Ref{ID: in.ID, UID: in.Marks.UID}
	pid := "$(cat " + host.Path("libvirtd.pid") + ")"
	for name, do := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error { _, err := p.Create(ctx, requestFor("uid-frozen-2")); return err },
		"get":    func(ctx context.Context) error { _, err := p.Get(ctx, ref); return err },
		"delete": func(ctx context.Context) error { return p.Delete(ctx, ref) },
		"list":   func(ctx context.Context) error { _, err := p.List(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.List(t.Context()); err != nil { // so that there is a connection
				t.Fatal(err)
			}
			shell(t, host, "kill -STOP "+pid)
			began := time.Now()
			for range 2 { // on the connection that was there, and at the next dial
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				err := do(ctx)
				cancel()
				wantFailure(t, err, provider.ErrTransient, "")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("two calls of half a second took %v", took)
			}
			eventually(t, time.Minute, "the calls have let go of their connections while libvirtd is still frozen", func() bool {
				return connections(t, host) == 0
			})
			shell(t, host, "kill -CONT "+pid)
			if _, err := p.Get(t.Context(), ref); err != nil {
				t.Errorf("Get when libvirtd goes on: %v", err)
			}
		})
	}
	if err := p.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	removeBegun(t, p, requestFor("uid-frozen-2"))
}

// What kills a connection fails the calls on it once, and the next ones dial anew.
func TestConnectionsThatBreak(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	in, err := settled(t, p, requestFor("uid-break"))
	if err != nil {
		t.Fatal(err)
	}
	ref := provider.Ref{ID: in.ID, UID: in.Marks.UID}
	for name, line := range map[string]string{
		"sshd killed":        cutConnections,
		"libvirtd restarted": restartLibvirtd,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.Get(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			shell(t, host, strings.ReplaceAll(line, "DIR", host.Dir))
			eventually(t, time.Minute, "the connection is broken", func() bool { return connections(t, host) == 0 })
			eventually(t, time.Minute, "Get works again", func() bool {
				got, err := p.Get(t.Context(), ref)
				if err != nil && provider.ClassOf(err) != provider.ErrTransient {
					t.Errorf("Get: %v", err)
				}
				return err == nil && got.Incarnation == in.Incarnation
			})
		})
	}
	t.Run("cut by a firewall", func(t *testing.T) {
		shell(t, host, "iptables -I INPUT -p tcp --dport 22 -j DROP")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Get(ctx, ref)
		wantFailure(t, err, provider.ErrTransient, "")
		shell(t, host, "iptables -D INPUT -p tcp --dport 22 -j DROP")
		if _, err := p.Get(t.Context(), ref); err != nil {
			t.Errorf("Get when the firewall lets it through: %v", err)
		}
	})
	if err := p.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
}

// What is wrong with a pool, a network or a domain is told by a reason of its own.
func TestHostsThatLackSomething(t *testing.T) {
	host := realHost(t)
	for _, c := range []struct {
		name   string
		edit   func(*Config)
		before string // a line of shell on the host
		after  string
		class  provider.Class
		reason string
	}{
		{"pool missing", func(c *Config) { c.Hosts[0].Pool = "nowhere" }, "", "", provider.ErrPermanent, PoolMissing},
		{"pool inactive", nil, "virsh --quiet pool-destroy fleet", "virsh --quiet pool-start fleet", provider.ErrTransient, PoolInactive},
		{"network missing", func(c *Config) { c.Hosts[0].Network = "nowhere" }, "", "", provider.ErrPermanent, NetworkMissing},
		{"network inactive", nil, "virsh --quiet net-destroy default", "virsh --quiet net-start default", provider.ErrTransient, NetworkDown},
		{"no domain type", func(c *Config) { c.DomainTypes = []string{"kvm"} }, "", "", provider.ErrPermanent, NoDomainType},
		{"no UEFI", func(c *Config) { c.Images[0].Firmware = efi }, "", "", provider.ErrPermanent, FirmwareMissing},
		{"start fails", nil, breakStart, mendStart, provider.ErrTransient, StartFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			edits := []func(*Config){}
			if c.edit != nil {
				edits = append(edits, c.edit)
			}
			p := withImage(t, host, edits...)
			r := requestFor("uid-lack")
			if c.reason == FirmwareMissing {
				shell(t, host, "mount -t tmpfs tmpfs /usr/share/qemu/firmware")
				defer shell(t, host, "umount /usr/share/qemu/firmware")
			}
			if c.before != "" {
				if c.reason != PoolInactive { // the image is there before the trouble begins
					if _, err := settled(t, p, requestFor("uid-first")); err != nil {
						t.Fatal(err)
					}
					defer remove(t, p, requestFor("uid-first"))
				}
				shell(t, host, c.before)
			}
			_, err := settled(t, p, r)
			if c.after != "" {
				shell(t, host, c.after)
			}
			wantFailure(t, err, c.class, c.reason)
			if c.reason != PoolMissing {
				remove(t, p, r)
			}
		})
	}
}

// A domain under our name that is not ours is left alone, and one of ours that was paused is Stopped, with the reason.
func TestDomainsThatAreThere(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	r := requestFor("uid-there")
	define := func(metadata string) {
		xml := fmt.Sprintf("<domain type='qemu'><name>%s</name><memory>65536</memory><os><type>hvm</type></os>%s</domain>", r.Name, metadata)
		shell(t, host, fmt.Sprintf("printf %%s %q > %s; virsh --quiet define %[2]s", xml, host.Path("domain.xml")))
	}
	for name, has := range map[string]marks{
		"without marks":   {},
		"another fleet's": {Marks: provider.Marks{Fleet: "fleet-two", UID: "uid-there", Hash: "v1-1"}},
		"another proxy's": {Marks: provider.Marks{Fleet: "fleet-one", UID: "uid-other", Hash: "v1-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := ""
			if has != (marks{}) {
				metadata = "<metadata>" + has.document(policy().Namespace) + "</metadata>"
			}
			define(metadata)
			_, err := p.Create(t.Context(), r)
			wantFailure(t, err, provider.ErrPermanent, provider.NameTaken)
			remove(t, p, r)
			if names := on(t, host, "virsh", "list", "--all", "--name"); !strings.Contains(names, r.Name) {
				t.Errorf("the domain is gone: %q", names)
			}
			on(t, host, "virsh", "--quiet", "undefine", r.Name)
		})
	}
	in, err := settled(t, p, r)
	if err != nil {
		t.Fatal(err)
	}
	on(t, host, "virsh", "--quiet", "suspend", r.Name)
	in, err = p.Get(t.Context(), provider.Ref{ID: in.ID, UID: r.Marks.UID})
	if err != nil || in.State != provider.Stopped || in.Reason != Paused {
		t.Errorf("a paused machine is %+v, %v", in, err)
	}
	remove(t, p, r)
}

// What is left of an attempt, whatever it is, is made anew by the next one, under the same incarnation if it got that far.
func TestHalfACreate(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	r := requestFor("uid-half")
	shell(t, host, fmt.Sprintf("cd /var/lib/libvirt/images/fleet && echo broken > %s && echo broken > %s", diskOf(r.Name), seedOf(r.Name)))
	in, err := settled(t, p, r)
	if err != nil {
		t.Fatal(err)
	}
	if out := on(t, host, "qemu-img", "info", "--force-share", "/var/lib/libvirt/images/fleet/"+diskOf(r.Name)); !strings.Contains(out, "backing file: ") {
		t.Errorf("the disk is no overlay:\n%s", out)
	}
	// As after a kill between define and start.
	on(t, host, "virsh", "--quiet", "destroy", r.Name)
	shell(t, host, strings.ReplaceAll(restartLibvirtd, "DIR", host.Dir))
	eventually(t, time.Minute, "the machine is seen", func() bool {
		got, err := p.Get(t.Context(), provider.Ref{ID: in.ID, UID: r.Marks.UID})
		return err == nil && got.State == provider.Stopped && got.Reason == NotStarted
	})
	again, err := p.Create(t.Context(), r)
	if err != nil || again.Incarnation != in.Incarnation {
		t.Errorf("Create made %+v, %v, where %s was to be started", again, err, in.Incarnation)
	}
	remove(t, p, r)
	if err := p.Delete(t.Context(), provider.Ref{ID: "hosts/gone/domains/x", UID: "u"}); err == nil {
		t.Error("Delete on a host that is not configured succeeds")
	} else {
		wantFailure(t, err, provider.ErrPermanent, provider.NotConfigured)
	}
}

// Where the pool of a host is edited, the machines that were made before have their volumes in the old one: there they are deleted,
// and what never ran is made anew, in the new one.
func TestPoolThatIsEdited(t *testing.T) {
	host := realHost(t)
	const first, second = "/var/lib/libvirt/images/fleet", "/var/lib/libvirt/images/second"
	shell(t, host, "mkdir "+second+"; virsh --quiet pool-define-as second dir --target "+second+"; virsh --quiet pool-start second")
	t.Cleanup(func() {
		shell(t, host, "virsh --quiet pool-destroy second; virsh --quiet pool-undefine second; rm -r "+second)
	})
	before := withImage(t, host)
	made, half := requestFor("uid-made"), requestFor("uid-half")
	var was provider.Instance
	for _, r := range []provider.Request{made, half} {
		var err error
		if was, err = settled(t, before, r); err != nil {
			t.Fatal(err)
		}
	}
	on(t, host, "virsh", "--quiet", "destroy", half.Name) // as after a kill between define and start
	shell(t, host, strings.ReplaceAll(restartLibvirtd, "DIR", host.Dir))
	after := withImage(t, host, func(c *Config) { c.Hosts[0].Pool = "second" })
	eventually(t, time.Minute, "libvirtd is there again", func() bool {
		_, err := after.List(t.Context())
		return err == nil
	})

	remove(t, after, made)
	is, err := settled(t, after, half)
	if err != nil || is.Incarnation == was.Incarnation {
		t.Errorf("Create made %+v, %v, want another than %s", is, err, was.Incarnation)
	}
	if out := shell(t, host, "virsh domstate "+half.Name+"; virsh dumpxml "+half.Name); !strings.Contains(out, "running") || strings.Count(out, "pool='second'") != 2 {
		t.Errorf("the machine is:\n%s", out)
	}
	if left := shell(t, host, "ls "+first+" | grep -v "+imagePrefix+" || true"); left != "" {
		t.Errorf("the old pool still has:\n%s", left)
	}
	remove(t, after, half)
	if left := shell(t, host, "ls "+second+" | grep -v "+imagePrefix+" || true"); left != "" {
		t.Errorf("the new pool still has:\n%s", left)
	}
}

// A fleet that has no room for files, of which a seed is built, is no fault of the request: it says which file, and nothing of what
// was to be in it, and the next Create goes on.
func TestSeedThatCannotBeWritten(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	if _, err := settled(t, p, requestFor("uid-first")); err != nil {
		t.Fatal(err)
	}
	remove(t, p, requestFor("uid-first"))
	r := requestFor("uid-seed")
	r.CloudInit = secret.New("#cloud-config\n# hunter2\n")
	t.Run("no folder for files", func(t *testing.T) {
		t.Setenv("TMPDIR", "/nonexistent/folder")
		_, err := p.Create(t.Context(), r)
		wantFailure(t, err, provider.ErrTransient, SeedFailed)
		if err == nil || !strings.Contains(err.Error(), "/nonexistent/folder") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error is %v, want one that names the folder and no secret", err)
		}
	})
	if _, err := p.Create(t.Context(), r); err != nil {
		t.Errorf("Create when files can be written again: %v", err)
	}
	remove(t, p, r)
}

// A pool that is full is a wait, whether it is noticed when a volume is written or, where the policy says so, before any is made.
func TestFullPool(t *testing.T) {
	host := realHost(t)
	p := withImage(t, host)
	if _, err := settled(t, p, requestFor("uid-full")); err != nil {
		t.Fatal(err)
	}
	remove(t, p, requestFor("uid-full"))
	shell(t, host, fillPool)
	t.Cleanup(func() {
		shell(t, host, "rm -f /var/lib/libvirt/images/fleet/ballast; virsh --quiet pool-refresh fleet")
	})
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked before %v", asked), func(t *testing.T) {
			p.policy.CheckRoom = asked
			_, err := p.Create(t.Context(), requestFor("uid-full"))
			wantFailure(t, err, provider.ErrQuotaExceeded, PoolFull)
			if domains := on(t, host, "virsh", "list", "--all", "--name"); domains != "" {
				t.Errorf("something is left: %s", domains)
			}
			remove(t, p, requestFor("uid-full"))
		})
	}
}

// Room that was made since libvirt last looked at a pool is room for an image, whoever made it: somebody on the host, or the transfer
// itself, by deleting what an earlier one left.
func TestRoomThatWasMade(t *testing.T) {
	host := realHost(t)
	leftover := newVolume(Image{SHA256: sumOf(disk)}, open(t, configOf(host, "http://127.0.0.1/", sumOf(disk)), policy()).owner)
	for name, c := range map[string]struct{ file, made string }{
		"by somebody":     {"ballast", "rm /var/lib/libvirt/images/fleet/ballast"},
		"by the transfer": {leftover, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			p := withImage(t, host)
			shell(t, host, strings.ReplaceAll(fillPool, "ballast", c.file))
			shell(t, host, c.made)
			if _, err := settled(t, p, requestFor("uid-room")); err != nil {
				t.Errorf("Create where there is room again: %v", err)
			}
			remove(t, p, requestFor("uid-room"))
			shell(t, host, "rm -f /var/lib/libvirt/images/fleet/"+c.file+"; virsh --quiet pool-refresh fleet")
		})
	}
}

const (
	// cutConnections ends the processes of the SSH server that serve somebody. Those that end meanwhile need no end.
	cutConnections = "for p in $(ps -o pid= --ppid $(cat DIR/sshd.pid)); do kill -KILL $(ps -o pid= --ppid $p) $p || true; done"
	// restartLibvirtd ends libvirtd and starts it again.
	restartLibvirtd = `pid=$(cat DIR/libvirtd.pid); kill $pid; while [ -e DIR/libvirtd.pid ]; do sleep 0.05; done
		libvirtd --daemon --pid-file DIR/libvirtd.pid; until virsh --quiet uri >/dev/null 2>&1; do sleep 0.05; done`
	// fillPool leaves no block of it free.
	fillPool = `cd /var/lib/libvirt/images/fleet; dd if=/dev/zero of=ballast bs=1M status=none 2>/dev/null
		dd if=/dev/zero of=ballast bs=4k oflag=append conv=notrunc status=none 2>/dev/null; virsh --quiet pool-refresh fleet`
	// breakStart takes the firmware from QEMU, on this host alone.
	breakStart = "mount -t tmpfs tmpfs /usr/share/seabios"
	mendStart  = "umount /usr/share/seabios"
)

// remove deletes what a request made.
func remove(t testing.TB, p *Provider, r provider.Request) {
	t.Helper()
	if err := p.Delete(context.WithoutCancel(t.Context()), refOf(t, p, r)); err != nil {
		t.Error(err)
	}
}

func refOf(t testing.TB, p *Provider, r provider.Request) provider.Ref {
	t.Helper()
	id, err := p.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	return provider.Ref{ID: id, UID: r.Marks.UID}
}
