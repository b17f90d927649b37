package discovery

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/secret"
)

// gate lets in who knows the token.
type gate struct {
	open    bool              // there is no token
	anyHost bool              // and everybody is meant to be served
	want    [sha256.Size]byte // digest of the token
	origins http.CrossOriginProtection
}

func newGate(token secret.Text, anyHost bool) (*gate, error) {
	text := token.Reveal()
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("discovery: Token has characters that a header cannot carry: use printable ASCII without blanks")
	}
	return &gate{open: text == "", anyHost: anyHost, want: sha256.Sum256([]byte(text))}, nil
}

// guarded lets pass what comes from somebody who may ask for it.
func (g *gate) guarded(next layer) layer {
	return func(w *response, r *http.Request) {
		if p := g.refusal(r); p != nil {
			if p.status == http.StatusUnauthorized {
				challenge(w, r)
			}
			writeJSON(w, p.status, wire.Error{Code: p.code, Message: p.message})
			return
		}
		next(w, r)
	}
}

// refusal says why a request must not pass, or returns nil.
func (g *gate) refusal(r *http.Request) *problem {
	switch {
	case public(r.Pattern):
		return nil
	case !g.open && !g.knows(r):
		return &problem{http.StatusUnauthorized, wire.Unauthorized, "this needs the token of the fleet: Authorization: Bearer TOKEN"}
	case g.foreign(r):
		return &problem{http.StatusForbidden, wire.CrossOrigin, "web pages of other origins must not ask for this"}
	case g.open && !g.anyHost && delicate(r) && !loopback(r.Host):
		return &problem{http.StatusForbidden, wire.HostNotAllowed,
			"without a token this is only for requests to localhost: give the fleet a token to serve others"}
	}
	return nil
}

// knows says whether a request bears the token. Digests are compared, so that the time it takes tells nothing of the
// token, not even its length.
func (g *gate) knows(r *http.Request) bool {
	got := sha256.Sum256([]byte(credential(r)))
	return subtle.ConstantTimeCompare(got[:], g.want[:]) == 1
}

// credential returns what a request gives as the token. The password of Basic counts where nothing is changed, so that a
// browser can show a page; a browser sends it unasked, which is why it does not count elsewhere.
func credential(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	if _, password, ok := r.BasicAuth(); ok && readOnly(r) {
		return password
	}
	return ""
}

// challenge says how to give the token.
func challenge(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("WWW-Authenticate", `Bearer realm="proxyfleet"`)
	if readOnly(r) {
		w.Header().Add("WWW-Authenticate", `Basic realm="proxyfleet", charset="UTF-8"`)
	}
}

func readOnly(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// foreign says whether a request was sent by a web page of another origin and is delicate. Package net/http lets pass all
// that only reads.
func (g *gate) foreign(r *http.Request) bool {
	if readOnly(r) && delicate(r) {
		r = r.WithContext(r.Context()) // a copy
		r.Method = http.MethodPost
	}
	return g.origins.Check(r) != nil
}

// delicate says whether a request changes something, reads everything there is, or has all providers asked for theirs.
func delicate(r *http.Request) bool {
	return !readOnly(r) || r.Pattern == backupRoute || r.Pattern == planRoute
}

// loopback says whether the host of a request means this machine. A name that somebody else's server resolves may lead
// here too, and a browser then takes this process for a part of that somebody's site.
func loopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
