package health

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
)

// failure is why a probe failed.
type failure struct {
	party   Party
	message string
}

// broken is the failure of something that the network or a peer broke off while the prober was doing it. What was out of
// time is no party's in particular, and for what this process lacks nobody else is blamed.
func broken(party Party, doing string, err error) *failure {
	if isLocal(err) {
		return &failure{PartyLocal, "failed while " + doing + ": " + cause(err)}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return &failure{PartyTimeout, "timeout while " + doing}
	}
	return &failure{party, "failed while " + doing + ": " + cause(err)}
}

// isLocal says whether err tells of what this process or its host has run out of: file descriptors, memory for sockets, or
// ports to connect from.
func isLocal(err error) bool {
	lacks := [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}
	dns, resolving := errors.AsType[*net.DNSError](err)
	return lacksPort(err) || slices.ContainsFunc(lacks[:], func(lack syscall.Errno) bool {
		// Of what a resolver's socket lacked, package net keeps the text alone.
		return errors.Is(err, lack) || resolving && strings.HasSuffix(dns.Err, lack.Error())
	})
}

// lacksPort says whether err is that of a TCP connection for which no local port is left. EADDRNOTAVAIL alone does not say so:
// a host without IPv6 has no address to reach an IPv6 one from, which is the same error, and stays. UDP has ports of its own,
// and connecting it sends nothing: it fails likewise if the address is what lacks.
func lacksPort(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return false
	}
	to, ok := op.Addr.(*net.TCPAddr)
	if !ok {
		return false
	}
	conn, err := net.DialUDP("udp", nil, (*net.UDPAddr)(to))
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.EADDRNOTAVAIL)
}

// isAlert says whether the peer ended TLS with an alert, which package tls tells by the operation alone.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// cause says in words of this package and of the standard library what broke. Errors that may quote what a peer sent, such
// as the names in its certificate, are put in other words.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	for _, own := range []error{errAnswerTooLong, errTooManyInterim, errNotHTTP} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	return tlsCause(err)
}

func tlsCause(err error) string {
	if isAlert(err) {
		return err.Error()
	}
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return header.Msg
	}
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is not valid for " + host.Host
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the certificate has expired or is not valid yet"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate cannot be verified"
	}
	return "the peer does not keep to the protocol"
}
