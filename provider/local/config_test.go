package local

import (
	"net/netip"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  Config
		listen  string
		source  string
		exposed bool
	}{
		{"one", Config{Addresses: []string{"127.0.0.1"}}, "127.0.0.1", "", false},
		{"range", Config{Addresses: []string{"127.0.0.254-127.0.1.1"}}, "127.0.0.254 127.0.0.255 127.0.1.0 127.0.1.1", "", false},
		{"spaces", Config{Addresses: []string{"127.0.0.9 - 127.0.0.10"}}, "127.0.0.9 127.0.0.10", "", false},
		{"prefix", Config{Addresses: []string{"127.0.0.16/30"}}, "127.0.0.16 127.0.0.17 127.0.0.18 127.0.0.19", "", false},
		{"all forms in order", Config{Addresses: []string{"127.0.0.9", "::1", "127.0.0.2-127.0.0.3"}}, "127.0.0.9 ::1 127.0.0.2 127.0.0.3", "", false},
		{"last address there is", Config{Addresses: []string{"254.255.255.255"}, AllowNonLoopback: true}, "254.255.255.255", "", true},
		{"sources", Config{Addresses: []string{"127.0.0.1-127.0.0.2"}, SourceAddresses: []string{"192.0.2.7", "192.0.2.3"}},
			"127.0.0.1 127.0.0.2", "192.0.2.7 192.0.2.3", false},
		{"exposed", Config{Addresses: []string{"127.0.0.1", "192.0.2.1"}, AllowNonLoopback: true}, "127.0.0.1 192.0.2.1", "", true},
		{"allowed to be, but is not", Config{Addresses: []string{"127.0.0.1"}, AllowNonLoopback: true}, "127.0.0.1", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.config.settings()
			if err != nil {
				t.Fatal(err)
			}
			if got := text(s.pool.listen); got != c.listen {
				t.Errorf("addresses %s, want %s", got, c.listen)
			}
			if got := text(s.pool.source); got != c.source {
				t.Errorf("source addresses %s, want %s", got, c.source)
			}
			if s.exposed != c.exposed {
				t.Errorf("exposed is %v, want %v", s.exposed, c.exposed)
			}
		})
	}
}

func text(all []netip.Addr) string {
	var words []string
	for _, a := range all {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

func TestConfigRefuses(t *testing.T) {
	loopback := []string{"127.0.0.1"}
	for _, c := range []struct {
		name string
		json string
		want []string
	}{
		{"nothing", `{}`, []string{"config.addresses: at least one is required"}},
		{"unknown field", `{"address":"127.0.0.1"}`, []string{"config.address: there is no such field"}},
		{"name", `{"addresses":["localhost"]}`, []string{`config.addresses[0]: "localhost" is no address`}},
		{"port", `{"addresses":["127.0.0.1:80"]}`, []string{`config.addresses[0]: "127.0.0.1:80" is no address`}},
		{"backwards", `{"addresses":["127.0.0.2-127.0.0.1"]}`, []string{"want the lower address first"}},
		{"mixed", `{"addresses":["127.0.0.2-::1"]}`, []string{"want the lower address first"}},
		{"host bits", `{"addresses":["127.0.0.5/24"]}`, []string{"want the prefix 127.0.0.0/24"}},
		{"no prefix", `{"addresses":["127.0.0.0/33"]}`, []string{"is no prefix"}},
		{"twice", `{"addresses":["127.0.0.1","127.0.0.0/30"]}`, []string{"config.addresses[1]: 127.0.0.1 is in the list twice"}},
		{"too many", `{"addresses":["127.0.0.0/8"]}`, []string{"more than 65536 addresses"}},
		{"endless", `{"addresses":["::1","::/0"]}`, []string{"config.addresses[1]:"}},
		{"any", `{"addresses":["0.0.0.0"],"allowNonLoopback":true}`, []string{"0.0.0.0 is not the address of a host"}},
		{"multicast", `{"addresses":["224.0.0.1"],"allowNonLoopback":true}`, []string{"224.0.0.1 is not the address of a host"}},
		{"zone", `{"addresses":["fe80::1%eth0"],"allowNonLoopback":true}`, []string{"with a zone are not supported"}},
		{"mapped", `{"addresses":["::ffff:127.0.0.1"]}`, []string{"write it as IPv4"}},
		{"other hosts", `{"addresses":["127.0.0.1","192.0.2.1"]}`, []string{"other hosts can reach 192.0.2.1: set allowNonLoopback"}},
		{"sources too few", `{"addresses":["127.0.0.1-127.0.0.2"],"sourceAddresses":["127.0.0.1"]}`, []string{"there are 1, and 2 addresses"}},
		{"destination", `{"addresses":["127.0.0.1"],"allowedDestinations":["home"]}`, []string{`config.allowedDestinations[0]: "home" is neither`}},
		{"destination host bits", `{"addresses":["127.0.0.1"],"allowedDestinations":["10.0.0.1/8"]}`, []string{"want the prefix 10.0.0.0/8"}},
		{"link-local destination", `{"addresses":["127.0.0.1"],"allowedDestinations":["169.254.0.0/16"]}`, []string{"a link-local address, which is never"}},
		{"metadata destination", `{"addresses":["127.0.0.1"],"allowedDestinations":["fd00:ec2::254"]}`, []string{"a metadata address, which is never"}},
		{"destination by name", `{"addresses":["127.0.0.1"],"allowedDestinations":["localhost:80"]}`, []string{`"localhost:80" is neither`}},
		{"port 0", `{"addresses":["127.0.0.1"],"allowedDestinations":["127.0.0.1:0"]}`, []string{`"127.0.0.1:0": "0" is no port: want 1 to 65535`}},
		{"port too high", `{"addresses":["127.0.0.1"],"allowedDestinations":["[::1]:65536"]}`, []string{`"65536" is no port`}},
		{"port without digits", `{"addresses":["127.0.0.1"],"allowedDestinations":["127.0.0.1:http"]}`, []string{`"http" is no port`}},
		{"no port after the colon", `{"addresses":["127.0.0.1"],"allowedDestinations":["127.0.0.1:"]}`, []string{`"" is no port`}},
		{"port before the length", `{"addresses":["127.0.0.1"],"allowedDestinations":["10.0.0.0:443/8"]}`, []string{`"443/8" is no port`}},
		{"brackets without a port", `{"addresses":["127.0.0.1"],"allowedDestinations":["[::1]"]}`, []string{`"[::1]": want a port after the brackets`}},
		{"network without brackets", `{"addresses":["127.0.0.1"],"allowedDestinations":["fd00::/8:443"]}`, []string{`"fd00::/8:443" is neither`}},
		{"host bits with a port", `{"addresses":["127.0.0.1"],"allowedDestinations":["10.0.0.1/8:443"]}`, []string{"want the prefix 10.0.0.0/8"}},
		{"link-local with a port", `{"addresses":["127.0.0.1"],"allowedDestinations":["169.254.169.254:80"]}`, []string{"a link-local address, which is never"}},
		{"all at once", `{"addresses":["x"],"sourceAddresses":["y"],"allowedDestinations":["z"]}`,
			[]string{"config.addresses[0]", "config.sourceAddresses[0]", "config.allowedDestinations[0]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode([]byte(c.json))
			if err == nil {
				t.Fatal("the configuration was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := (Config{Addresses: loopback}).settings(); err != nil {
		t.Errorf("what the others are variations of is refused too: %v", err)
	}
}

func TestSourceOf(t *testing.T) {
	s, err := Config{Addresses: []string{"127.0.0.1-127.0.0.3"}, SourceAddresses: []string{"192.0.2.1-192.0.2.3"}}.settings()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.pool.sourceOf(netip.MustParseAddr("127.0.0.2")); got != netip.MustParseAddr("192.0.2.2") {
		t.Errorf("the second address leaves from %v, want the second source", got)
	}
	if got := s.pool.sourceOf(netip.MustParseAddr("127.0.0.9")); got.IsValid() {
		t.Errorf("an address that is not configured leaves from %v, want none", got)
	}
}

func FuzzExpand(f *testing.F) {
	for _, text := range []string{"127.0.0.1", "127.0.0.1-127.0.0.9", "127.0.0.16/28", "::1", "::/0", "-", "/", "1-", "255.255.255.255/31"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := expand("x", []string{text})
		if err != nil {
			return
		}
		if len(all) == 0 || len(all) > maxAddresses {
			t.Fatalf("%q is %d addresses", text, len(all))
		}
		for i, a := range all {
			if !a.IsValid() || i > 0 && all[i-1].Next() != a {
				t.Fatalf("%q has %v at %d", text, a, i)
			}
		}
	})
}
