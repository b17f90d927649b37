package local

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxAddresses is how many addresses a configuration may have: more is a slip, such as a prefix of IPv6.
const maxAddresses = 1 << 16

// pool is where instances may listen, and where each of those addresses leaves from.
type pool struct {
	listen []netip.Addr
	source []netip.Addr // empty, or as many
}

func (p pool) contains(a netip.Addr) bool { return slices.Contains(p.listen, a) }

// sourceOf returns where the connections of a listener leave from. It is not valid where the host chooses.
func (p pool) sourceOf(listen netip.Addr) netip.Addr {
	if i := slices.Index(p.listen, listen); i >= 0 && i < len(p.source) {
		return p.source[i]
	}
	return netip.Addr{}
}

// expand returns the addresses of a list of addresses, ranges and prefixes, in its order.
func expand(field string, list []string) ([]netip.Addr, error) {
	var all []netip.Addr
	var problems []error
	seen := map[netip.Addr]bool{}
	for i, text := range list {
		first, last, err := parseRange(text)
		for a := first; err == nil && a.Compare(last) <= 0 && a.IsValid(); a = a.Next() {
			switch {
			case len(all) == maxAddresses:
				err = fmt.Errorf("with %q there are more than %d addresses", text, maxAddresses)
			case seen[a]:
				err = fmt.Errorf("%v is in the list twice", a)
			case a.IsUnspecified() || a.IsMulticast():
				err = fmt.Errorf("%v is not the address of a host", a)
			}
			seen[a] = true
			all = append(all, a)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s[%d]: %w", field, i, err))
		}
	}
	return all, errors.Join(problems...)
}

// parseRange returns the ends of an address, a range or a prefix.
func parseRange(text string) (first, last netip.Addr, err error) {
	if strings.Contains(text, "/") {
		return parsePrefix(text)
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err = parseAddr(from)
	if err != nil {
		return first, last, err
	}
	last, err = parseAddr(to)
	if err == nil && (first.BitLen() != last.BitLen() || last.Less(first)) {
		err = fmt.Errorf("%q is no range: want the lower address first", text)
	}
	return first, last, err
}

func parsePrefix(text string) (first, last netip.Addr, err error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return first, last, fmt.Errorf("%q is no prefix: want one such as 127.0.0.16/28", text)
	case prefix != prefix.Masked():
		return first, last, fmt.Errorf("%q is an address with a length: want the prefix %v, or a range", text, prefix.Masked())
	case prefix.Addr().Is4In6():
		return first, last, fmt.Errorf("%q: write it as IPv4", text)
	}
	return prefix.Addr(), lastOf(prefix), nil
}

// lastOf returns the last address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case err != nil:
		return a, fmt.Errorf("%q is no address: want one such as 127.0.0.10, a range such as 127.0.0.10-127.0.0.29, or a prefix", text)
	case a.Zone() != "":
		return a, fmt.Errorf("%q: addresses with a zone are not supported", text)
	case a.Is4In6():
		return a, fmt.Errorf("%q: write it as IPv4", text)
	}
	return a, nil
}
