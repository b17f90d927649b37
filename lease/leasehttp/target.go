package leasehttp

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/proxyfleet/fleet/lease"
)

// Domain is the registrable domain of a request's host: example.co.uk for www.example.co.uk. A site bans by what it owns, so
// its subdomains are one target. A host that has none, such as an address or a single name, is its own target.
func Domain(r *http.Request) string {
	host := strings.TrimSuffix(strings.ToLower(r.URL.Hostname()), ".")
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	if domain, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return domain
	}
	return host
}

// Served returns the name of the proxy through which a response came, as namespace/name. It is empty for a response that did
// not come from a [Transport], and for what was made of one without its Request.
func Served(resp *http.Response) string {
	if resp == nil || resp.Request == nil {
		return ""
	}
	name, _ := resp.Request.Context().Value(servedKey{}).(string)
	return name
}

type servedKey struct{}

// nameOf returns the name of a proxy, without its credentials. One that was given none is known by its address.
func nameOf(e lease.Endpoint) string {
	switch {
	case e.Name == "":
		return net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	case e.Namespace == "":
		return e.Name
	}
	return e.Namespace + "/" + e.Name
}
