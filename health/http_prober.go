package health

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTPProber probes a proxy with one GET request for the target's URL. The zero value is ready for use.
//
// Through an http or https proxy, an http URL is requested from the proxy in absolute form, and an https URL through a
// CONNECT tunnel. Through a socks5 proxy both go through a tunnel. Names of probed hosts are resolved by the proxy.
// Credentials go to an HTTP proxy as Basic, unasked, and to a SOCKS5 proxy by user name and password.
//
// The status of the answer decides; its body is not read. Where an HTTP proxy passes on the answer to an http URL, the
// answer may be the proxy's own. Only 407 is that beyond doubt, and a 401 that bears tinyproxy's name, which is how
// tinyproxy refuses wrong credentials; both are PartyProxyAuth. A 403, 502, 503 or 504 may as well come from the target or
// from something in front of it, whatever headers it bears, and is PartyStatus like any other. Probing an https URL
// leaves no such doubt. Requests ask caches on the way for a fresh answer.
//
// It dials and speaks by itself, for two reasons: each phase has a name when it fails, and a probe costs less than a
// request of net/http with a transport of its own.
type HTTPProber struct{}

var _ Prober = HTTPProber{}

// userAgent is what the proxy and the target see.
const userAgent = "proxyfleet"

// Probe implements [Prober]. Besides the context's deadline it keeps the target's Timeout.
func (HTTPProber) Probe(ctx context.Context, t Target) Result {
	start := time.Now()
	a := &attempt{target: t}
	failed := a.run(ctx, start.Add(t.Timeout))
	end := time.Now()
	r := Result{OK: failed == nil, Latency: end.Sub(start), At: end, StatusCode: a.status}
	switch {
	case failed == nil:
	case errors.Is(ctx.Err(), context.Canceled):
		r.Party, r.Message = PartyCanceled, "the probe was given up"
	default:
		r.Party, r.Message = failed.party, failed.message
	}
	return r
}

// attempt is one probe under way.
type attempt struct {
	target   Target
	url      *url.URL // the target's
	port     int      // of url
	conn     net.Conn // to the proxy, and later through it
	tlsParty Party    // who is blamed for an alert on conn: the innermost TLS on it, if any
	status   int      // of the answer that decided
}

func (a *attempt) run(ctx context.Context, deadline time.Time) *failure {
	if err := a.target.Validate(); err != nil {
		return &failure{PartyConfig, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	a.url, a.port, _ = parseURL(a.target.URL) // valid, as Validate has just found
	if f := a.dial(ctx, deadline); f != nil {
		return f
	}
	// The connection itself is closed, and not the TLS on it, which would first try to take leave of the peer.
	raw := a.conn
	defer raw.Close()
	// Everything after dialling reads and writes this connection, so its deadline is the one of all that follows. The end of
	// the context, if that comes first, is a deadline that has passed.
	if err := raw.SetDeadline(deadline); err != nil {
		return broken(PartyDial, "connecting to the proxy", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return a.converse(ctx)
}

// converse does everything after dialling.
func (a *attempt) converse(ctx context.Context) *failure {
	if a.target.Scheme == schemeHTTPS {
		if f := a.handshake(ctx, a.target.ProxyTLS, a.target.Host, PartyProxyTLS, "in the TLS handshake with the proxy"); f != nil {
			return f
		}
	}
	secure := a.url.Scheme == schemeHTTPS
	switch {
	case a.target.Scheme == schemeSOCKS5:
		if f := a.connectSOCKS(); f != nil {
			return f
		}
	case secure:
		if f := a.connectHTTP(); f != nil {
			return f
		}
	default:
		return a.requestFromProxy()
	}
	if secure {
		if f := a.handshake(ctx, a.target.TLS, a.url.Hostname(), PartyTLS, "in the TLS handshake with the target"); f != nil {
			return f
		}
	}
	return a.requestFromTarget()
}

func (a *attempt) dial(ctx context.Context, deadline time.Time) *failure {
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1}
	address := net.JoinHostPort(a.target.Host, strconv.Itoa(a.target.Port))
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return broken(PartyDial, "connecting to the proxy", err)
	}
	a.conn = conn
	return nil
}

// handshake puts TLS on the connection.
func (a *attempt) handshake(ctx context.Context, cfg *tls.Config, host string, party Party, doing string) *failure {
	conn := tls.Client(a.conn, tlsConfig(cfg, host))
	if err := conn.HandshakeContext(ctx); err != nil {
		return broken(party, doing, err)
	}
	a.conn, a.tlsParty = conn, party
	return nil
}

// tlsConfig is cfg for one handshake with host, for HTTP/1.1 only and without resuming sessions: each probe verifies anew.
func tlsConfig(cfg *tls.Config, host string) *tls.Config {
	if cfg = cfg.Clone(); cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	cfg.NextProtos = []string{"http/1.1"}
	cfg.ClientSessionCache = nil
	return cfg
}

// connectHTTP asks an HTTP proxy for a tunnel.
func (a *attempt) connectHTTP() *failure {
	const doing = "waiting for the proxy's answer to CONNECT"
	address := net.JoinHostPort(a.url.Hostname(), strconv.Itoa(a.port))
	got, err := a.exchange(http.MethodConnect, address, address, a.authorization())
	if err != nil {
		return a.broken(PartyProxyProtocol, doing, err)
	}
	switch {
	case got.status == http.StatusProxyAuthRequired, got.status == http.StatusUnauthorized:
		a.status = got.status
		return a.unauthorized(fmt.Sprintf("with %d", got.status))
	case got.status/100 != 2:
		a.status = got.status
		return &failure{PartyProxyRefusal, fmt.Sprintf("the proxy answered CONNECT with %d", got.status)}
	case got.surplus:
		return &failure{PartyProxyProtocol, "the proxy sent more than its answer to CONNECT"}
	}
	return nil
}

// requestFromProxy asks an HTTP proxy for an http URL.
func (a *attempt) requestFromProxy() *failure {
	const doing = "waiting for the answer through the proxy"
	absolute := a.url.Scheme + "://" + a.url.Host + a.url.RequestURI()
	got, err := a.exchange(http.MethodGet, absolute, a.url.Host, a.authorization()+getHeaders)
	if err != nil {
		return a.broken(PartyProxyProtocol, doing, err)
	}
	a.status = got.status
	if got.status == http.StatusProxyAuthRequired || got.status == http.StatusUnauthorized && got.tinyproxy {
		return a.unauthorized(fmt.Sprintf("with %d", got.status))
	}
	return a.judge()
}

// requestFromTarget asks the target through a tunnel.
func (a *attempt) requestFromTarget() *failure {
	const doing = "waiting for the target's answer"
	got, err := a.exchange(http.MethodGet, a.url.RequestURI(), a.url.Host, getHeaders)
	if err != nil {
		return a.broken(PartyTarget, doing, err)
	}
	a.status = got.status
	return a.judge()
}

// getHeaders ask for a fresh answer: one from a cache would hide that the proxy reaches nothing any more.
const getHeaders = "Accept: */*\r\nCache-Control: no-cache\r\nConnection: close\r\n"

// exchange sends a request and reads the head of its answer. The headers end in a line break each.
func (a *attempt) exchange(method, target, host, headers string) (answer, error) {
	request := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: " + userAgent + "\r\n" + headers + "\r\n"
	if _, err := io.WriteString(a.conn, request); err != nil {
		return answer{}, err
	}
	return readAnswer(a.conn, method)
}

// judge compares the status with what is expected.
func (a *attempt) judge() *failure {
	if slices.Contains(a.target.ExpectedStatus, a.status) {
		return nil
	}
	return &failure{PartyStatus, fmt.Sprintf("the answer has status %d, expected is %s", a.status, list(a.target.ExpectedStatus))}
}

func list(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " or ")
}

// login returns the credentials in clear, and whether there are any. Nothing else in the package reveals them.
func (a *attempt) login() (user, password string, given bool) {
	user, password = a.target.User.Reveal(), a.target.Password.Reveal()
	return user, password, user != "" || password != ""
}

// authorization is the header with the credentials for an HTTP proxy, or empty.
func (a *attempt) authorization() string {
	user, password, given := a.login()
	if !given {
		return ""
	}
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
}

// unauthorized is the failure of a proxy that refused the credentials, or the lack of them.
func (a *attempt) unauthorized(how string) *failure {
	if _, _, given := a.login(); given {
		return &failure{PartyProxyAuth, "the proxy refused the credentials " + how}
	}
	return &failure{PartyProxyAuth, "the proxy wants credentials, and there are none: it refused " + how}
}

// broken is a failure of conn. An alert is blamed on the TLS that carried it, for a peer judges a client's certificate only
// after the client has ended its handshake.
func (a *attempt) broken(party Party, doing string, err error) *failure {
	if a.tlsParty != "" && isAlert(err) {
		party = a.tlsParty
	}
	return broken(party, doing, err)
}
