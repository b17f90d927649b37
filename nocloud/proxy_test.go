package nocloud_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

func sample() nocloud.Proxy {
	return nocloud.Proxy{Name: "proxy-1", Port: 3128, Username: secret.New("crawler"), Password: secret.New("hunter2 § ' \"")}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func vendorData(t *testing.T, p nocloud.Proxy) secret.Text {
	t.Helper()
	script, err := nocloud.VendorData(p)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

func TestVendorDataIsAScriptForCloudInit(t *testing.T) {
	script := vendorData(t, sample())
	if diff := cmp.Diff([]part{{"text/x-shellscript", []byte(script.Reveal())}}, taken(t, script)); diff != "" {
		t.Errorf("what cloud-init takes the vendor-data for (-want +got):\n%s", diff)
	}
	check := exec.CommandContext(t.Context(), "sh", "-n")
	check.Stdin = strings.NewReader(script.Reveal())
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v\n%s", err, out)
	}
}

func TestVendorDataIsDeterministic(t *testing.T) {
	if one, two := vendorData(t, sample()), vendorData(t, sample()); !one.Equal(two) {
		t.Error("two scripts of one proxy differ")
	}
}

func TestVendorDataHidesThePassword(t *testing.T) {
	p := sample()
	script := vendorData(t, p).Reveal()
	if strings.Contains(script, "hunter2") {
		t.Error("the script holds the password in clear")
	}
	p.Name = "proxy-2"
	line := func(script string) string { return script[strings.Index(script, "$6$"):][:100] }
	if line(script) == line(vendorData(t, p).Reveal()) {
		t.Error("two machines with one password have one hash")
	}
}

func TestSquidFilesAreThoseOfTheScript(t *testing.T) {
	for name, p := range map[string]nocloud.Proxy{"with a password": sample(), "without": {Name: "m", Port: 3128, AllowedClients: prefixes("10.0.0.0/8")}} {
		config, passwd, err := nocloud.SquidFiles(p)
		if err != nil {
			t.Fatal(err)
		}
		script := vendorData(t, p).Reveal()
		if config == "" || !strings.Contains(script, config) || !strings.Contains(script, passwd.Reveal()) || passwd.IsZero() != p.Username.IsZero() {
			t.Errorf("%s: the files are not those that the script writes", name)
		}
	}
	if _, _, err := nocloud.SquidFiles(nocloud.Proxy{}); err == nil {
		t.Error("a proxy that is wrong has files")
	}
}

func TestVendorDataProblems(t *testing.T) {
	for _, c := range []struct {
		name  string
		proxy func(*nocloud.Proxy)
		want  []string
	}{
		{"nothing", func(p *nocloud.Proxy) { *p = nocloud.Proxy{} },
			[]string{"Name is required", "Port must be 1 to 65535, not 0", "AllowedClients is required where no password is asked for"}},
		{"port", func(p *nocloud.Proxy) { p.Port = 65536 }, []string{"Port must be 1 to 65535, not 65536"}},
		{"no password", func(p *nocloud.Proxy) { p.Password = secret.Text{} }, []string{"Username and Password go together"}},
		{"no user", func(p *nocloud.Proxy) { p.Username = secret.Text{} }, []string{"Username and Password go together"}},
		{"colon", func(p *nocloud.Proxy) { p.Username = secret.New("hunter2:x") }, []string{"Username must have no colon"}},
		{"comment", func(p *nocloud.Proxy) { p.Username = secret.New("#hunter2") }, []string{"Username must not begin with '#'"}},
		{"two lines", func(p *nocloud.Proxy) { p.Username = secret.New("hunter2\nroot") }, []string{"Username must have no control character"}},
		{"NUL", func(p *nocloud.Proxy) { p.Password = secret.New("hunter2\x00") }, []string{"Password must have no NUL"}},
		{"open", func(p *nocloud.Proxy) {
			p.Username, p.Password, p.AllowedClients = secret.Text{}, secret.Text{}, prefixes("10.0.0.0/8", "128.0.0.0/1")
		}, []string{"AllowedClients[1], 128.0.0.0/1, is too many to serve without a password"}},
		{"open for IPv6", func(p *nocloud.Proxy) {
			p.Username, p.Password, p.AllowedClients = secret.Text{}, secret.Text{}, prefixes("::/0")
		}, []string{"AllowedClients[0], ::/0, is too many to serve without a password"}},
		{"zero prefixes", func(p *nocloud.Proxy) {
			p.AllowedClients, p.AllowedDestinations = make([]netip.Prefix, 1), make([]netip.Prefix, 1)
		}, []string{"AllowedClients[0] is no network", "AllowedDestinations[0] is no network"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sample()
			c.proxy(&p)
			_, err := nocloud.VendorData(p)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q quotes a secret", err)
			}
		})
	}
}
