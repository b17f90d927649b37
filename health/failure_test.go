package health

import (
	"context"
	"crypto/x509"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestWhoIsBlamedForADial gives the errors of dialling as package net wraps them.
func TestWhoIsBlamedForADial(t *testing.T) {
	for errno, want := range map[syscall.Errno]Party{
		syscall.EMFILE:        PartyLocal,
		syscall.ENFILE:        PartyLocal,
		syscall.ENOBUFS:       PartyLocal,
		syscall.ENOMEM:        PartyLocal,
		syscall.EADDRNOTAVAIL: PartyLocal,
		syscall.ECONNREFUSED:  PartyDial,
		syscall.ECONNRESET:    PartyDial,
		syscall.EHOSTUNREACH:  PartyDial,
		syscall.ENETUNREACH:   PartyDial,
		syscall.EACCES:        PartyDial,
		syscall.ETIMEDOUT:     PartyTimeout,
	} {
		dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3128}, Err: os.NewSyscallError("socket", errno)}
		if got := broken(PartyDial, "dialling", dial); got.party != want {
			t.Errorf("%v: %+v, want party %q", errno, got, want)
		}
	}
	for name, c := range map[string]struct {
		err  error
		want Party
	}{
		"no socket to resolve the name with":  {resolving("dial udp 192.0.2.53:53: socket: too many open files"), PartyLocal},
		"no address to ask the resolver from": {resolving("dial udp [2001:db8::53]:53: connect: cannot assign requested address"), PartyDial},
		"no answer from the resolver":         {resolving("read udp 192.0.2.53:53: connection refused"), PartyDial},
		"no such name":                        {resolving("no such host"), PartyDial},
		"no file of roots can be opened":      {x509.SystemRootsError{Err: &os.PathError{Op: "open", Err: syscall.EMFILE}}, PartyLocal},
		"out of time":                         {&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, PartyTimeout},
	} {
		if got := broken(PartyDial, "dialling", c.err); got.party != c.want {
			t.Errorf("%s: %+v, want party %q", name, got, c.want)
		}
	}
}

// resolving is a failure of package net's resolver, as the error of a dial.
func resolving(text string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: text, Name: "proxy.example"}}
}
