package kvm2

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

// keyPair writes a key that no host knows, and known hosts without any.
func keyPair(t testing.TB) (key, known string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, known = filepath.Join(t.TempDir(), "id"), filepath.Join(t.TempDir(), "known_hosts")
	write(t, key, pem.EncodeToMemory(block))
	write(t, known, nil)
	return key, known
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// What somebody has to see to is permanent, what may come by itself is not; and whatever it was, it is over as soon as the files are
// right, without a restart.
func TestLogin(t *testing.T) {
	d := bed.TestDriver(t)
	goodKey, goodKnown := read(t, bed.KeyFile()), read(t, bed.KnownHostsFile())
	otherKey := read(t, bed.Path("other"))
	words := strings.Fields(string(read(t, bed.Path("other.pub"))))
	otherKnown := []byte(bed.IP + " " + words[0] + " " + words[1] + "\n")
	for _, c := range []struct {
		name       string
		key, known []byte // nil: no such file
		class      provider.Class
		reason     string
	}{
		{"a key that the host does not take", otherKey, goodKnown, provider.ErrPermanent, libvirt.AuthenticationFailed},
		{"a key behind a passphrase", read(t, bed.Path("encrypted")), goodKnown, provider.ErrPermanent, libvirt.KeyEncrypted},
		{"no key for the host", goodKey, []byte{}, provider.ErrPermanent, libvirt.HostKeyUnknown},
		{"another key for the host", goodKey, otherKnown, provider.ErrPermanent, libvirt.HostKeyChanged},
		{"no key file", nil, goodKnown, provider.ErrTransient, libvirt.KeyUnreadable},
		{"half a key", goodKey[:40], goodKnown, provider.ErrTransient, libvirt.KeyUnreadable},
		{"no known hosts file", goodKey, nil, provider.ErrTransient, libvirt.KnownHostsUnreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			key, known := filepath.Join(t.TempDir(), "id"), filepath.Join(t.TempDir(), "known_hosts")
			put := func(keyIs, knownIs []byte) {
				for path, content := range map[string][]byte{key: keyIs, known: knownIs} {
					if content != nil {
						write(t, path, content)
					} else if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(c.key, c.known)
			p := bed.Open(t, "fleet-login", d.Config(t, libvirttest.EditHost(func(host map[string]any) {
				host["keyFile"], host["knownHostsFile"] = key, known
			})))
			libvirttest.Run(t, p)
			_, err := p.List(t.Context())
			wantFailure(t, err, c.class, c.reason)
			checker, _ := provider.As[provider.Checker](p)
			if v := checker.Check(t.Context())[0]; v.Ready || v.Reason != c.reason {
				t.Errorf("the check says %+v", v)
			}

			put(goodKey, goodKnown)
			_, err = p.List(t.Context())
			for tries := 0; err != nil && tries < 100; tries++ { // a dial that failed is not repeated for as long as it took
				<-time.After(100 * time.Millisecond)
				_, err = p.List(t.Context())
			}
			if err != nil {
				t.Fatalf("List when the files are right: %v", err)
			}
			put(c.key, c.known)
			if _, err := p.List(t.Context()); err != nil {
				t.Errorf("List over the connection that is there: %v", err)
			}
			d.Once(hypervisor.ConnectListAllDomains, hypervisor.Lose)
			_, err = p.List(t.Context())
			wantFailure(t, err, provider.ErrTransient, libvirt.ConnectionLost)
			_, err = p.List(t.Context())
			wantFailure(t, err, c.class, c.reason)
		})
	}
}

// A fleet never takes the machines of the other provider for its own, though fleet and proxy be the same and the host as well.
func TestMachinesOfKVM(t *testing.T) {
	d := bed.TestDriver(t)
	var c Config
	if err := provider.DecodeConfig(d.Config(t), &c); err != nil {
		t.Fatal(err)
	}
	const kvm = "https://crawl.example.com/proxyfleet/kvm/1"
	other, err := libvirt.New(libvirttest.Environment(t, "fleet-both"), c.Config, libvirt.Policy{Namespace: kvm, AddressSources: []string{libvirt.Lease}})
	if err != nil {
		t.Fatal(err)
	}
	libvirttest.Run(t, other)
	r := libvirttest.Marked(libvirttest.DriverRequest(), "fleet-both", "uid-1")
	theirs := libvirttest.RefOf(libvirttest.Made(t, other, r))

	p := d.Open(t, "fleet-both")
	libvirttest.Run(t, p)
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List returned %+v, %v", all, err)
	}
	if _, err := p.Get(t.Context(), theirs); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get returned %v, want not found", err)
	}
	_, err = p.Create(t.Context(), r)
	wantFailure(t, err, provider.ErrPermanent, provider.NameTaken)
	if err := p.Delete(t.Context(), theirs); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if in, err := other.Get(t.Context(), theirs); err != nil || in.Incarnation != theirs.Incarnation {
		t.Errorf("the machine is %+v, %v", in, err)
	}
}
