package lease

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyfleet/fleet/secret"
)

// Endpoint is a proxy as its users see it. It prints without its credentials.
type Endpoint struct {
	Namespace string
	Name      string
	// Scheme is the protocol that the proxy speaks: http, https or socks5.
	Scheme string
	// Host is a name or an address, and an IPv6 address has no brackets.
	Host string
	Port int
	// User and Password are the credentials that the proxy asks for, if any. Every character is allowed.
	User     secret.Text
	Password secret.Text
	// Attributes describe the proxy. All leases of a proxy share this map: do not change it.
	Attributes map[string]string
}

// RevealURL returns the proxy's URL with its credentials in clear, escaped as a URL wants them. It is for the one who
// dials the proxy and for nobody else: do not log it.
func (e Endpoint) RevealURL() *url.URL {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u := &url.URL{Scheme: e.Scheme, Host: host + ":" + strconv.Itoa(e.Port)}
	switch {
	case !e.Password.IsZero():
		u.User = url.UserPassword(e.User.Reveal(), e.Password.Reveal())
	case !e.User.IsZero():
		u.User = url.User(e.User.Reveal())
	}
	return u
}
