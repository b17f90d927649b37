package leasehttp_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

const (
	user     = "crawler"
	password = "p:a@s/w d%41-planted"
)

// forward is a forward proxy whose requests leave from an address of its own, so that a target can tell it from others.
type forward struct {
	source string // an address of this machine
	scheme string
	addr   netip.AddrPort
	conns  atomic.Int32 // that it has accepted
	ask    bool         // for user and password
	// answer, if it returns true, answers in the proxy's place.
	answer func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	open  map[net.Conn]bool
	close func()
}

// newForward starts a proxy that speaks a scheme. It ends with the test.
func newForward(t testing.TB, scheme, source string) *forward {
	t.Helper()
	f := &forward{source: source, scheme: scheme, open: map[net.Conn]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().(*net.TCPAddr).AddrPort()
	l = counting{l, f}
	switch scheme {
	case "socks5":
		var all sync.WaitGroup
		all.Go(func() { f.serveSOCKS(l, &all) })
		f.close = sync.OnceFunc(func() { _ = l.Close(); f.cut(); all.Wait() })
	default:
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0)}}
		if scheme == "https" {
			s.StartTLS()
		} else {
			s.Start()
		}
		f.close = sync.OnceFunc(func() { _ = l.Close(); f.cut(); s.CloseClientConnections(); s.Close() })
	}
	t.Cleanup(f.close)
	return f
}

// endpoint is what a store leases.
func (f *forward) endpoint(name string) lease.Endpoint {
	e := lease.Endpoint{Namespace: "default", Name: name, Scheme: f.scheme, Host: "127.0.0.1", Port: int(f.addr.Port())}
	if f.ask {
		e.User, e.Password = secret.New(user), secret.New(password)
	}
	return e
}

// counting counts what a proxy accepts.
type counting struct {
	net.Listener
	f *forward
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.f.conns.Add(1)
		c.f.keep(conn)
	}
	return conn, err
}

func (f *forward) keep(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[c] = true
}

// cut breaks all connections.
func (f *forward) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.open {
		_ = c.Close()
	}
	clear(f.open)
}

func (f *forward) dial(address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.source)}, Timeout: 5 * time.Second}
	c, err := d.Dial("tcp4", address)
	if err == nil {
		f.keep(c)
	}
	return c, err
}

func (f *forward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	switch {
	case f.answer != nil && f.answer(w, r):
	case f.ask && r.Header.Get("Proxy-Authorization") != want:
		w.WriteHeader(http.StatusProxyAuthRequired)
	case r.Method == http.MethodConnect:
		f.tunnel(w, r.Host)
	default:
		f.relay(w, r)
	}
}

func (f *forward) relay(w http.ResponseWriter, r *http.Request) {
	tr := &http.Transport{
		DialContext:       func(_ context.Context, _, address string) (net.Conn, error) { return f.dial(address) },
		DisableKeepAlives: true,
	}
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.Header.Del("Proxy-Authorization") }, Transport: tr, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}).ServeHTTP(w, r)
}

func (f *forward) tunnel(w http.ResponseWriter, address string) {
	to, err := f.dial(address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	from, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		_ = to.Close()
		return
	}
	_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
	join(from, to)
}

// join copies both ways until both ends are closed.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

func (f *forward) serveSOCKS(l net.Listener, all *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer c.Close()
			address, err := f.greet(c)
			if err != nil {
				return
			}
			to, err := f.dial(address)
			if err != nil {
				_, _ = c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
				return
			}
			_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
			join(c, to)
		})
	}
}

// greet lets a client of SOCKS5 in, and returns where it wants to go.
func (f *forward) greet(c net.Conn) (string, error) {
	text := func(n int) string {
		b := make([]byte, n)
		if _, err := io.ReadFull(c, b); err != nil {
			return strings.Repeat("\x00", n)
		}
		return string(b)
	}
	length := func() int { return int(text(1)[0]) }
	text(1)
	text(length())
	if f.ask {
		_, _ = c.Write([]byte{5, 2})
		text(1)
		if u, p := text(length()), text(length()); u != user || p != password {
			_, _ = c.Write([]byte{1, 1})
			return "", io.EOF
		}
		_, _ = c.Write([]byte{1, 0})
	} else {
		_, _ = c.Write([]byte{5, 0})
	}
	var host string
	switch text(4)[3] {
	case 1:
		host = net.IP(text(4)).String()
	case 3:
		host = text(length())
	default:
		return "", fmt.Errorf("unknown address")
	}
	return net.JoinHostPort(host, fmt.Sprint(binary.BigEndian.Uint16([]byte(text(2))))), nil
}

// newTarget starts a web site, over TLS if secure. It ends with the test.
func newTarget(t *testing.T, secure bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = secure
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// trusting are the settings of connections that trust the certificate of every httptest.Server.
func trusting(t *testing.T) *http.Transport {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
}
