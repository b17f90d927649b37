package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// The sources of addresses.
const (
	Lease = "lease" // what the DHCP server of a libvirt network gave away
	Agent = "agent" // what the guest agent in the machine says
	ARP   = "arp"   // what the host's neighbour table has
)

// sources are libvirt's numbers of them.
func sourceNumber(name string) (golibvirt.DomainInterfaceAddressesSource, bool) {
	switch name {
	case Lease:
		return golibvirt.DomainInterfaceAddressesSrcLease, true
	case Agent:
		return golibvirt.DomainInterfaceAddressesSrcAgent, true
	case ARP:
		return golibvirt.DomainInterfaceAddressesSrcArp, true
	}
	return 0, false
}

// Address asks the sources in their order for an address of a domain that runs. A source that fails is none that knows; what they
// all said is in the text when none knew one. The error is that of the connection.
func (c *Conn) Address(ctx context.Context, d Domain, sources []string) (_ netip.Addr, silence string, _ error) {
	var said []string
	for _, name := range sources {
		number, _ := sourceNumber(name)
		interfaces, err := c.Interfaces(ctx, d, number)
		switch {
		case err != nil && !answered(err):
			return netip.Addr{}, "", err
		case err != nil:
			said = append(said, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if address, ok := routable(interfaces); ok {
			return address, "", nil
		}
		said = append(said, name+": none")
	}
	return netip.Addr{}, strings.Join(said, "; "), nil
}

// routable returns the first address that others can reach: an IPv4 one, or else an IPv6 one.
func routable(interfaces []golibvirt.DomainInterface) (netip.Addr, bool) {
	var six netip.Addr
	for _, card := range interfaces {
		for _, given := range card.Addrs {
			address, err := netip.ParseAddr(given.Addr)
			if err != nil || !address.IsGlobalUnicast() {
				continue
			}
			if address.Unmap().Is4() {
				return address.Unmap(), true
			}
			if !six.IsValid() {
				six = address
			}
		}
	}
	return six, six.IsValid()
}
