package health

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// The numbers of SOCKS5 (RFC 1928) and of its login by user name and password (RFC 1929).
const (
	socksVersion      = 5
	socksNoLogin      = 0x00
	socksPassword     = 0x02
	socksNoMethod     = 0xff
	socksLoginVersion = 1
	socksConnect      = 1
	socksIPv4         = 1
	socksName         = 3
	socksIPv6         = 4
	// socksMaxText is the longest user name or password: its length is one byte.
	socksMaxText = 255
)

// connectSOCKS asks a SOCKS5 proxy for a tunnel. Package golang.org/x/net/proxy could, but tells neither in which phase it
// failed nor whether the proxy refused the credentials, except in prose.
func (a *attempt) connectSOCKS() *failure {
	if f := a.greetSOCKS(); f != nil {
		return f
	}
	const doing = "waiting for the proxy's answer to the SOCKS5 request"
	if _, err := a.conn.Write(a.socksRequest()); err != nil {
		return broken(PartyProxyProtocol, doing, err)
	}
	var head [4]byte // version, reply, reserved, type of the address that follows
	if _, err := io.ReadFull(a.conn, head[:]); err != nil {
		return broken(PartyProxyProtocol, doing, err)
	}
	switch {
	case head[0] != socksVersion:
		return notSOCKS()
	case head[1] != 0:
		return &failure{PartyProxyRefusal, "the proxy answered the SOCKS5 request with: " + socksReply(head[1])}
	}
	if err := a.skipSOCKSAddress(head[3]); err != nil {
		return broken(PartyProxyProtocol, doing, err)
	}
	return nil
}

// greetSOCKS settles how to log in, and logs in.
func (a *attempt) greetSOCKS() *failure {
	const doing = "waiting for the proxy's answer to the SOCKS5 greeting"
	user, password, given := a.login()
	greeting := []byte{socksVersion, 1, socksNoLogin}
	if given {
		if len(user) > socksMaxText || len(password) > socksMaxText {
			return &failure{PartyProxyAuth, fmt.Sprintf("SOCKS5 cannot carry a user name or password of over %d bytes", socksMaxText)}
		}
		greeting = []byte{socksVersion, 2, socksNoLogin, socksPassword}
	}
	if _, err := a.conn.Write(greeting); err != nil {
		return broken(PartyProxyProtocol, doing, err)
	}
	var choice [2]byte // version, method
	if _, err := io.ReadFull(a.conn, choice[:]); err != nil {
		return broken(PartyProxyProtocol, doing, err)
	}
	switch {
	case choice[0] != socksVersion:
		return notSOCKS()
	case choice[1] == socksNoLogin:
		return nil
	case choice[1] == socksPassword && given:
		return a.loginSOCKS(user, password)
	case choice[1] == socksNoMethod:
		return a.unauthorized("every way to log in that was offered")
	default:
		return &failure{PartyProxyProtocol, "the proxy chose a way to log in that was not offered"}
	}
}

// loginSOCKS sends user name and password. A proxy that hangs up on them has refused them: many do so without a word.
func (a *attempt) loginSOCKS(user, password string) *failure {
	const doing = "waiting for the proxy's answer to user name and password"
	message := []byte{socksLoginVersion, byte(len(user))}
	message = append(message, user...)
	message = append(message, byte(len(password)))
	message = append(message, password...)
	if _, err := a.conn.Write(message); err != nil {
		return broken(PartyProxyAuth, doing, err)
	}
	var verdict [2]byte // version, status
	if _, err := io.ReadFull(a.conn, verdict[:]); err != nil {
		return broken(PartyProxyAuth, doing, err)
	}
	if verdict[1] != 0 {
		return a.unauthorized("in its answer to user name and password")
	}
	return nil
}

// socksRequest asks for a connection to the URL's host, by address if the URL has one, else by name.
func (a *attempt) socksRequest() []byte {
	request := []byte{socksVersion, socksConnect, 0}
	host := a.url.Hostname()
	switch address, err := netip.ParseAddr(host); {
	case err != nil:
		request = append(request, socksName, byte(len(host)))
		request = append(request, host...)
	case address.Is4():
		request = append(append(request, socksIPv4), address.AsSlice()...)
	default:
		request = append(append(request, socksIPv6), address.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(request, uint16(a.port))
}

// skipSOCKSAddress reads the address that the proxy connects from, which is of no interest, and its port.
func (a *attempt) skipSOCKSAddress(kind byte) error {
	var buffer [1 + 255 + 2]byte
	var length int
	switch kind {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksName:
		if _, err := io.ReadFull(a.conn, buffer[:1]); err != nil {
			return err
		}
		length = int(buffer[0])
	default:
		return errors.New("unknown type of address")
	}
	_, err := io.ReadFull(a.conn, buffer[:length+2])
	return err
}

func notSOCKS() *failure {
	return &failure{PartyProxyProtocol, "the proxy's answer is not SOCKS5"}
}

// socksReply puts the reply of a proxy that did not connect into words.
func socksReply(code byte) string {
	replies := [...]string{
		1: "general failure",
		2: "not allowed by the rules",
		3: "network unreachable",
		4: "host unreachable",
		5: "connection refused",
		6: "TTL expired",
		7: "command not supported",
		8: "type of address not supported",
	}
	if int(code) < len(replies) {
		return replies[code]
	}
	return fmt.Sprintf("unknown code %d", code)
}
