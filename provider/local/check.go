package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/proxyfleet/fleet/provider"
)

// maxNamed is how many addresses a message names.
const maxNamed = 5

// block is one entry of the configuration's addresses or sourceAddresses, and a target of Check: as fine as whoever wrote
// the configuration wanted it, and no finer.
type block struct {
	target    string
	listens   bool // or else connections leave from here
	addresses []netip.Addr
}

// blocks returns the entries of a list. What is wrong with one of them expand has said.
func blocks(purpose string, list []string) []block {
	var all []block
	for i, text := range list {
		if addresses, err := expand("", list[i:i+1]); err == nil {
			all = append(all, block{purpose + ":" + strings.ReplaceAll(text, " ", ""), purpose == listenBlock, addresses})
		}
	}
	return all
}

// The purposes of blocks.
const (
	listenBlock = "listen"
	sourceBlock = "source"
)

// Check says of each entry of addresses whether proxies can listen there, and of each one of sourceAddresses whether this
// host has it. An address where a proxy of ours listens is left alone. Any other is tried: bound for a moment, and at the port
// that most proxies of this provider ask for, if it is there to listen. That all addresses have a proxy is no fault.
func (p *listeners) Check(ctx context.Context) []provider.TargetStatus {
	served, usual, err := p.census(ctx)
	verdicts := make([]provider.TargetStatus, len(p.settings.blocks))
	for i, b := range p.settings.blocks {
		if err != nil {
			verdicts[i] = provider.TargetStatus{Target: b.target, Reason: notRunning, Message: err.Error()}
			continue
		}
		verdicts[i] = b.check(ctx, func(a netip.Addr) error {
			if !b.listens {
				return present(a)
			}
			return p.canListen(a, served[a], usual)
		})
	}
	return verdicts
}

// service is what there is at an address that has an instance.
type service struct {
	port   int
	listen bool
	failed bool // it listened, and stopped by itself
}

// census returns what there is at each address, and the port that most instances ask for: 0 where there are none, and the
// lowest where several are asked for as often.
func (p *listeners) census(ctx context.Context) (map[netip.Addr]*service, int, error) {
	if err := p.enter(ctx, "check"); err != nil {
		return nil, 0, err
	}
	defer p.mu.Unlock()
	served, count, usual := map[netip.Addr]*service{}, map[int]int{}, 0
	for _, in := range p.instances {
		if in.Fleet != p.fleet {
			continue
		}
		l := in.listener
		served[in.Address] = &service{in.Port, l != nil, l != nil && l.failed.Load()}
		count[in.Port]++
	}
	for port, n := range count {
		if n > count[usual] || n == count[usual] && port < usual {
			usual = port
		}
	}
	return served, usual, nil
}

// canListen returns why a proxy cannot listen at an address. The mutex keeps this provider from listening there in the
// moment in which the address is tried.
func (p *listeners) canListen(a netip.Addr, s *service, usual int) error {
	switch {
	case s != nil && s.failed:
		return errListenerFailed
	case s != nil && s.listen:
		return nil
	case s != nil:
		usual = s.port
	}
	if usual == 0 {
		return present(a)
	}
	where := netip.AddrPortFrom(a, uint16(usual))
	p.mu.Lock()
	defer p.mu.Unlock()
	socket, err := net.Listen("tcp", where.String())
	if err == nil {
		return socket.Close()
	}
	if p.serves(where) { // since the census
		return nil
	}
	return err
}

// serves says whether a listener of ours is there. The caller holds the mutex.
func (p *listeners) serves(where netip.AddrPort) bool {
	for _, in := range p.instances {
		if in.listener != nil && in.Address == where.Addr() && in.Port == int(where.Port()) {
			return true
		}
	}
	return false
}

var errListenerFailed = errors.New("the proxy there stopped accepting connections")

// present returns an error unless an address is one of this host's. It takes no port where proxies listen.
func present(a netip.Addr) error {
	socket, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 0).String())
	if err != nil {
		return err
	}
	return socket.Close()
}

// check tries the addresses of a block until the context ends.
func (b block) check(ctx context.Context, try func(netip.Addr) error) provider.TargetStatus {
	v := provider.TargetStatus{Target: b.target, Ready: true}
	var named []string
	var first error
	bad := 0
	for i, a := range b.addresses {
		if ctx.Err() != nil {
			v.Ready, v.Reason = false, provider.Timeout
			v.Message = fmt.Sprintf("%d of %d addresses were tried in time", i, len(b.addresses))
			return v
		}
		err := try(a)
		if err == nil {
			continue
		}
		if bad++; bad <= maxNamed {
			named = append(named, a.String())
		}
		if first == nil {
			first = err
		}
	}
	v.Details = map[string]string{"addresses": strconv.Itoa(len(b.addresses)), "unusable": strconv.Itoa(bad)}
	if bad == 0 {
		return v
	}
	list := strings.Join(named, ", ")
	if bad > maxNamed {
		list += fmt.Sprintf(" and %d more", bad-maxNamed)
	}
	v.Ready, v.Reason = false, reasonOf(first)
	v.Message = fmt.Sprintf("%d of %d addresses cannot be used: %s; of the first: %v", bad, len(b.addresses), list, first)
	return v
}

// reasonOf says why an address cannot be used.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errListenerFailed):
		return listenerFailed
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return addressMissing
	case errors.Is(err, syscall.EADDRINUSE):
		return portInUse
	case errors.Is(err, syscall.EACCES):
		return portForbidden
	}
	return addressUnavailable
}
