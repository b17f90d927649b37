package local

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// hostAge is how old a look at the interfaces may be. A machine may have thousands of addresses, and each connection asks.
const hostAge = 5 * time.Second

// host knows which addresses are the machine's own: those of its interfaces, and those of the pool, which a route alone may
// have given to it.
type host struct {
	pool       pool
	interfaces func() ([]netip.Addr, error)

	mu    sync.Mutex
	known map[netip.Addr]bool
	until time.Time // when known is too old
}

func newHost(p pool) *host { return &host{pool: p, interfaces: interfaceAddresses} }

// has says whether an address, in the form of meant, is the machine's own. It is an error not to know.
func (h *host) has(a netip.Addr) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); !now.Before(h.until) {
		found, err := h.interfaces()
		if err != nil {
			return false, fmt.Errorf("the addresses of this host are not known: %w", err)
		}
		h.known, h.until = map[netip.Addr]bool{}, now.Add(hostAge)
		for _, own := range slices.Concat(h.pool.listen, h.pool.source, found) {
			h.known[meant(own)] = true
		}
	}
	return h.known[a], nil
}

// interfaceAddresses returns the addresses of all interfaces.
func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, f := range found {
		prefix, err := netip.ParsePrefix(f.String())
		if err != nil {
			return nil, err
		}
		all = append(all, prefix.Addr())
	}
	return all, nil
}
