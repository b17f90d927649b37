package local

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	all := []string{"0.0.0.0/0", "::/0"}
	for _, c := range []struct {
		name        string
		destination string
		allowed     []string
		want        string // part of the refusal, or "" for none
	}{
		{"public", "93.184.216.34:443", nil, ""},
		{"public IPv6", "[2606:2800:220:1::1]:443", nil, ""},
		{"another port", "93.184.216.34:1", nil, ""},

		{"unspecified", "0.0.0.0:80", all, "unspecified"},
		{"this network", "0.1.2.3:80", all, "unspecified"},
		{"unspecified IPv6", "[::]:80", all, "unspecified"},
		{"link-local", "169.254.1.1:80", all, "link-local"},
		{"metadata", "169.254.169.254:80", all, "link-local"},
		{"metadata, mapped", "[::ffff:169.254.169.254]:80", all, "link-local"},
		{"metadata, NAT64", "[64:ff9b::a9fe:a9fe]:80", all, "link-local"},
		{"metadata, 6to4", "[2002:a9fe:a9fe::1]:80", all, "link-local"},
		{"link-local IPv6", "[fe80::1]:80", all, "link-local"},
		{"link-local IPv6 with a zone", "[fe80::1%eth0]:80", all, "link-local"},
		{"metadata of Amazon, IPv6", "[fd00:ec2::254]:80", all, "metadata"},
		{"metadata of Google, IPv6", "[fd20:ce::254]:80", all, "metadata"},
		{"metadata of Alibaba", "100.100.100.200:80", all, "metadata"},
		{"metadata of Azure", "168.63.129.16:80", nil, "metadata"},
		{"metadata of Oracle", "192.0.0.192:80", all, "metadata"},
		{"multicast", "224.0.0.251:5353", all, "multicast"},
		{"multicast IPv6", "[ff02::fb]:5353", all, "multicast"},
		{"broadcast", "255.255.255.255:9", all, "broadcast"},

		{"loopback", "127.0.0.1:80", nil, "allowedDestinations"},
		{"loopback elsewhere", "127.9.9.9:80", nil, "allowedDestinations"},
		{"loopback IPv6", "[::1]:80", nil, "allowedDestinations"},
		{"loopback, mapped", "[::ffff:127.0.0.1]:80", nil, "allowedDestinations"},
		{"loopback, NAT64", "[64:ff9b::7f00:1]:80", nil, "allowedDestinations"},
		{"loopback, compatible", "[::127.0.0.1]:80", nil, "allowedDestinations"},
		{"private 10", "10.1.2.3:80", nil, "allowedDestinations"},
		{"private 172", "172.31.255.255:80", nil, "allowedDestinations"},
		{"private 192", "192.168.0.1:80", nil, "allowedDestinations"},
		{"private, 6to4", "[2002:c0a8:1::]:80", nil, "allowedDestinations"},
		{"carrier-grade NAT", "100.64.0.1:80", nil, "allowedDestinations"},
		{"benchmarks", "198.19.0.1:80", nil, "allowedDestinations"},
		{"future use", "240.0.0.1:80", nil, "allowedDestinations"},
		{"unique local", "[fd12:3456::1]:80", nil, "allowedDestinations"},
		{"site-local", "[fec0::1]:80", nil, "allowedDestinations"},
		{"local NAT64", "[64:ff9b:1::a00:1]:80", nil, "allowedDestinations"},
		{"Teredo", "[2001:0:5ef5:79fd::1]:80", nil, "allowedDestinations"},

		{"just outside 172", "172.32.0.1:80", nil, ""},
		{"just outside NAT", "100.128.0.1:80", nil, ""},
		{"public, mapped", "[::ffff:93.184.216.34]:80", nil, ""},
		{"public, NAT64", "[64:ff9b::5db8:d822]:80", nil, ""},

		{"allowed loopback", "127.0.0.1:80", []string{"127.0.0.1"}, ""},
		{"allowed loopback, mapped", "[::ffff:127.0.0.1]:80", []string{"127.0.0.1"}, ""},
		{"the neighbour of what is allowed", "127.0.0.2:80", []string{"127.0.0.1"}, "allowedDestinations"},
		{"allowed network", "10.1.2.3:80", []string{"10.1.0.0/16"}, ""},
		{"another network", "10.2.2.3:80", []string{"10.1.0.0/16"}, "allowedDestinations"},
		{"allowed IPv6", "[fd12:3456::1]:80", []string{"fd12:3456::/32"}, ""},

		{"allowed port", "127.0.0.1:8080", []string{"127.0.0.1:8080"}, ""},
		{"allowed port, mapped", "[::ffff:127.0.0.1]:8080", []string{"127.0.0.1:8080"}, ""},
		{"beside the allowed port", "127.0.0.1:8090", []string{"127.0.0.1:8080"}, "for this port"},
		{"allowed port of another address", "127.0.0.2:8080", []string{"127.0.0.1:8080"}, "for this port"},
		{"one of several", "127.0.0.1:8443", []string{"127.0.0.1:8080", "127.0.0.1:8443"}, ""},
		{"allowed port of a network", "10.1.2.3:443", []string{"10.1.0.0/16:443"}, ""},
		{"another port of that network", "10.1.2.3:80", []string{"10.1.0.0/16:443"}, "for this port"},
		{"allowed port, IPv6", "[fd12:3456::1]:443", []string{"[fd12:3456::1]:443"}, ""},
		{"another port, IPv6", "[fd12:3456::1]:80", []string{"[fd12:3456::1]:443"}, "for this port"},
		{"allowed port of an IPv6 network", "[fd12:3456::1]:443", []string{"[fd12:3456::/32]:443"}, ""},
		{"a port, and the rest by another entry", "127.0.0.1:22", []string{"127.0.0.1:8080", "127.0.0.0/8"}, ""},
		{"a port takes no other destination away", "93.184.216.34:80", []string{"127.0.0.1:8080"}, ""},
		{"address of the host", "203.0.113.1:9100", nil, "address of this host"},
		{"address of the host, mapped", "[::ffff:203.0.113.1]:9100", nil, "address of this host"},
		{"address of the host, NAT64", "[64:ff9b::cb00:7101]:9100", nil, "address of this host"},
		{"address of the host, IPv6", "[2001:db8::1]:9100", nil, "address of this host"},
		{"address of the host, IPv6 with a zone", "[2001:db8::1%eth0]:9100", nil, "address of this host"},
		{"address of the host, 6to4", "[2002:cb00:7103::1]:9100", nil, "address of this host"},
		{"where a proxy may listen", "203.0.113.10:22", nil, "address of this host"},
		{"where connections leave from", "203.0.113.20:22", nil, "address of this host"},
		{"where connections leave from, IPv6", "[2001:db8::20]:22", nil, "address of this host"},
		{"allowed port of the host", "203.0.113.1:443", []string{"203.0.113.1:443"}, ""},
		{"beside the allowed port of the host", "203.0.113.1:9100", []string{"203.0.113.1:443"}, "for this port"},
		{"the neighbour of the host", "203.0.113.2:9100", nil, ""},

		{"our own listener at an allowed port", "127.0.0.10:3128", []string{"127.0.0.10:3128"}, "proxy of the same fleet"},

		{"our own listener", "127.0.0.10:3128", []string{"127.0.0.0/8"}, "proxy of the same fleet"},
		{"our own listener, mapped", "[::ffff:127.0.0.10]:3128", []string{"127.0.0.0/8"}, "proxy of the same fleet"},
		{"beside our own listener", "127.0.0.10:3129", []string{"127.0.0.0/8"}, ""},
	} {
		h := &host{
			pool:       pool{listen: addresses("203.0.113.10"), source: addresses("203.0.113.20", "2001:db8::20")},
			interfaces: func() ([]netip.Addr, error) { return addresses("203.0.113.1", "2001:db8::1", "2002:cb00:7103::1"), nil },
		}
		t.Run(c.name, func(t *testing.T) {
			allowed, err := parseAllowed(c.allowed)
			if err != nil {
				t.Fatal(err)
			}
			g := guard{allowed: allowed, host: h, isOwn: func(a netip.AddrPort) bool { return a == netip.MustParseAddrPort("127.0.0.10:3128") }}
			err = g.control(t.Context(), "tcp", c.destination, nil)
			if c.want == "" && err == nil {
				return
			}
			if _, ok := errors.AsType[*refusal](err); !ok || c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check(%s) = %v, want %q", c.destination, err, c.want)
			}
		})
	}
}

func addresses(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range list {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// While nobody can tell the addresses of the host, nothing is relayed but to what a configuration allows.
func TestGuardOfUnknownHost(t *testing.T) {
	unknown := errors.New("planted")
	g := guard{
		allowed: []destination{{netip.MustParsePrefix("127.0.0.0/8"), 0}},
		host:    &host{interfaces: func() ([]netip.Addr, error) { return nil, unknown }},
		isOwn:   func(netip.AddrPort) bool { return false },
	}
	for destination, want := range map[string]error{"93.184.216.34:443": unknown, "127.0.0.1:80": nil} {
		if err := g.check(netip.MustParseAddrPort(destination)); !errors.Is(err, want) {
			t.Errorf("check(%s) = %v, want %v", destination, err, want)
		}
	}
}
