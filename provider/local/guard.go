package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// guard decides which addresses the proxies relay to.
type guard struct {
	allowed []destination
	host    *host
	isOwn   func(netip.AddrPort) bool // says whether one of our listeners is there
}

// destination is what a configuration allows.
type destination struct {
	prefix netip.Prefix
	port   uint16 // 0: all
}

func (d destination) has(where netip.AddrPort) bool {
	return d.prefix.Contains(where.Addr()) && (d.port == 0 || d.port == where.Port())
}

// refusal is the error of a destination that the guard keeps away from.
type refusal struct {
	destination netip.Addr
	why         string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("this proxy does not relay to %v: %s", r.destination, r.why)
}

// control is called by the dialer with the very address that it is about to connect to, so no name can resolve to another
// one afterwards.
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	destination, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return g.check(destination)
}

// check returns a refusal unless the destination may be relayed to.
func (g guard) check(destination netip.AddrPort) error {
	a := meant(destination.Addr())
	where := netip.AddrPortFrom(a, destination.Port())
	refuse := func(why string) error { return &refusal{destination.Addr(), why} }
	switch kind := forbidden(a); {
	case kind != "":
		return refuse("it is " + kind)
	case g.isOwn(where):
		return refuse("it is a proxy of the same fleet")
	case g.allows(where):
		return nil
	case isInternal(a):
		return refuse("it is a loopback, private or reserved address that allowedDestinations does not have for this port")
	}
	isHost, err := g.host.has(a)
	if isHost {
		return refuse("it is an address of this host that allowedDestinations does not have for this port")
	}
	return err
}

func (g guard) allows(where netip.AddrPort) bool {
	return slices.ContainsFunc(g.allowed, func(d destination) bool { return d.has(where) })
}

// meant returns the IPv4 address that an IPv6 address stands for, or the address itself.
func meant(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	teredo    = netip.MustParsePrefix("2001::/32")
	global    = netip.MustParsePrefix("2000::/3")
	this      = netip.MustParsePrefix("0.0.0.0/8")
)

// metadata are the addresses where clouds tell a machine its credentials, as far as they are not link-local.
var metadata = [...]netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// forbidden says what an address is that no configuration may allow, or "".
func forbidden(a netip.Addr) string {
	for _, m := range metadata {
		if a == m {
			return "a metadata address"
		}
	}
	switch {
	case a.IsUnspecified(), this.Contains(a):
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast or broadcast address"
	}
	return ""
}

// internal are the IPv4 addresses that lead into the host or the networks behind it, or nowhere.
var internal = [...]netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
}

// isInternal says whether an address needs to be allowed on whatever machine. Of IPv6, what is not allotted to the Internet
// is internal.
func isInternal(a netip.Addr) bool {
	if a.Is4() {
		return within(a, internal[:])
	}
	return !global.Contains(a) || teredo.Contains(a)
}

func within(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// parseAllowed reads allowedDestinations.
func parseAllowed(list []string) ([]destination, error) {
	var all []destination
	var problems []error
	for i, text := range list {
		d, err := parseDestination(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("config.allowedDestinations[%d]: %w", i, err))
		}
		all = append(all, d)
	}
	return all, errors.Join(problems...)
}

// parseDestination reads an address or a prefix, and a port after it if there is one.
func parseDestination(text string) (destination, error) {
	host, port, err := cutPort(text)
	if err != nil {
		return destination{}, err
	}
	var prefix netip.Prefix
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		prefix = netip.PrefixFrom(a, a.BitLen())
	} else if prefix, err = netip.ParsePrefix(host); err != nil {
		return destination{}, fmt.Errorf("%q is neither an address nor a prefix such as 10.1.0.0/16, with or without a port", text)
	}
	first, last := prefix.Masked().Addr(), lastOf(prefix.Masked())
	switch {
	case prefix != prefix.Masked():
		err = fmt.Errorf("%q is an address with a length: want the prefix %v", text, prefix.Masked())
	case prefix.Addr().Is4In6():
		err = fmt.Errorf("%q: write it as IPv4", text)
	case forbidden(first) != "" && forbidden(first) == forbidden(last):
		err = fmt.Errorf("%q is %s, which is never relayed to", text, forbidden(first))
	}
	return destination{prefix, port}, err
}

// cutPort cuts the port off: after the colon of IPv4, or after the brackets that IPv6 needs then. It is 0 where there is
// none.
func cutPort(text string) (host string, port uint16, err error) {
	host, digits, found := strings.Cut(text, ":")
	if inner, isBracketed := strings.CutPrefix(text, "["); isBracketed {
		if host, digits, found = strings.Cut(inner, "]:"); !found {
			return "", 0, fmt.Errorf("%q: want a port after the brackets, such as [fd00::1]:443, or no brackets", text)
		}
	} else if strings.Contains(digits, ":") { // IPv6, which has no port without brackets
		return text, 0, nil
	}
	if !found {
		return text, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q: %q is no port: want 1 to 65535", text, digits)
	}
	return host, uint16(n), nil
}
