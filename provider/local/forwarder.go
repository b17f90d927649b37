package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/elazarl/goproxy"
)

// forwarder answers the requests that come to a listener.
type forwarder struct {
	gate  *gate
	proxy *goproxy.ProxyHttpServer
}

// newForwarder sets the proxy library to relay only: no proxy of its own from the environment, no recoding of bodies, no
// look into tunnels, and TLS verified where a client leaves that to it.
func newForwarder(g *gate, d *dialer, log *slog.Logger) *forwarder {
	p := goproxy.NewProxyHttpServer()
	p.Logger = debugLogger{log}
	p.Tr = &http.Transport{
		DialContext:            d.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    2,
		MaxIdleConns:           64,
		IdleConnTimeout:        keepAlive,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  responseTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	p.ConnectDial = nil
	p.KeepAcceptEncoding = true
	p.NonproxyHandler = http.HandlerFunc(notProxied)
	p.ConnectionErrHandler = refuseTunnel
	p.OnRequest().DoFunc(passOn)
	p.OnResponse().DoFunc(passBack)
	return &forwarder{gate: g, proxy: p}
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limitBody(w, r)
	if !f.gate.admits(r.Context(), r.Header.Get("Proxy-Authorization")) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		http.Error(w, "this proxy wants the credentials of its lease", http.StatusProxyAuthRequired)
		return
	}
	if r.Method == http.MethodConnect {
		f.proxy.ServeHTTP(w, r)
		return
	}
	x := new(exchange)
	f.proxy.ServeHTTP(&flusher{w}, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	if x.err != nil {
		// The response was cut off on its way here. To end it properly would make half a page look whole.
		panic(http.ErrAbortHandler)
	}
}

// limitBody gives up on a client that stops in the middle of a body. The server has one limit for all of it or none, and
// reads on after an answer that did not wait for the end.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == http.NoBody {
		return
	}
	b := timedBody{r.Body, http.NewResponseController(w)}
	b.extend()
	r.Body = b
}

type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b timedBody) extend() { _ = b.conn.SetReadDeadline(time.Now().Add(tunnelIdle)) }

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil { // at the end the server has taken the limit off: it only waits for the client to go
		b.extend()
	}
	return n, err
}

func notProxied(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this is a forward proxy: send it requests with an absolute URL, or CONNECT", http.StatusBadRequest)
}

// exchange is what became of the body of one response.
type exchange struct{ err error }

type exchangeKey struct{}

// watchedBody notes the error that a body ended with.
type watchedBody struct {
	io.ReadCloser
	exchange *exchange
}

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.exchange.err = err
	}
	return n, err
}

// flusher sends on at once what the destination has sent, for streams that pause.
type flusher struct{ http.ResponseWriter }

func (f *flusher) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

// passOn prepares a request for its destination.
func passOn(r *http.Request, c *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	dropHopByHop(r.Header)
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // or the transport would add its own
	}
	c.RoundTripper = goproxy.RoundTripperFunc(func(r *http.Request, c *goproxy.ProxyCtx) (*http.Response, error) {
		resp, err := c.Proxy.Tr.RoundTrip(r)
		if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok && err == nil {
			resp.Body = watchedBody{resp.Body, x}
		}
		return resp, err
	})
	return r, nil
}

// passBack prepares a response for the client, or makes one of an error.
func passBack(resp *http.Response, c *goproxy.ProxyCtx) *http.Response {
	if resp == nil {
		return failure(c.Req, c.Error)
	}
	dropHopByHop(resp.Header)
	return resp
}

// refuseTunnel answers a CONNECT that came to nothing. The library closes the connection afterwards.
func refuseTunnel(w io.Writer, _ *goproxy.ProxyCtx, err error) {
	resp := failure(nil, err)
	defer resp.Body.Close()
	_ = resp.Write(w)
}

// dropHopByHop drops the headers that are for the next peer alone.
func dropHopByHop(h http.Header) {
	for _, field := range h["Connection"] {
		for name := range strings.SplitSeq(field, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Proxy-Connection", "Te", "Upgrade",
	} {
		h.Del(name)
	}
}

// failure is the response to a request that could not be relayed.
func failure(r *http.Request, err error) *http.Response {
	status := http.StatusBadGateway
	header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	text := "the destination cannot be reached"
	var timeout net.Error
	if refused, ok := errors.AsType[*refusal](err); ok {
		status, text = http.StatusForbidden, refused.Error()
		header.Set("Proxy-Status", "proxyfleet; error=destination_ip_prohibited")
	} else if unknown, ok := errors.AsType[*net.DNSError](err); ok { // its text names the resolver, which is nobody's business
		text = "the name of the destination could not be resolved"
		if unknown.Timeout() {
			status = http.StatusGatewayTimeout
		}
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		status, text = http.StatusGatewayTimeout, "the destination did not answer in time"
	} else if err != nil {
		text = fmt.Sprintf("%s: %v", text, err)
	}
	text += "\n"
	return &http.Response{
		Request: r, StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Close: true,
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
}

// dialer makes the connections to destinations.
type dialer struct {
	guard  guard
	source netip.Addr
	conns  *conns
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: dialTimeout, ControlContext: d.guard.control}
	if d.source.IsValid() {
		nd.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.source, 0))
		network = map[bool]string{true: "tcp4", false: "tcp6"}[d.source.Is4()]
	}
	raw, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c := d.conns.add(raw, false); c != nil {
		return c, nil
	}
	return nil, net.ErrClosed
}

// debugLogger takes what the proxy library logs, which has the URLs of requests.
type debugLogger struct{ log *slog.Logger }

func (l debugLogger) Printf(format string, args ...any) {
	l.log.Debug("The proxy library says", "text", strings.TrimSpace(fmt.Sprintf(format, args...)))
}
