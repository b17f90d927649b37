package health_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/secret"
)

// Peers of the prober that keep to their protocols, on loopback.

// patience bounds what a test waits for that ought to come at once.
const patience = 20 * time.Second

// origin is a web server that proxies reach: /ok answers 204, /teapot 418. It notes the requests it gets.
type origin struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

func newOrigin(t testing.TB, secure bool) *origin {
	t.Helper()
	o := &origin{}
	o.Server = startServer(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.requests = append(o.requests, r)
		o.mu.Unlock()
		w.Header().Set("Cache-Control", "max-age=3600")
		switch r.URL.Path {
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/page":
			_, _ = io.WriteString(w, "a page that may be cached")
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	return o
}

// startServer serves until the test ends. What it would log of handshakes that fail is what the tests are about.
func startServer(t testing.TB, secure bool, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (o *origin) seen() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.requests
}

// trust is a configuration that trusts the certificate of httptest's TLS servers.
func trust(t testing.TB) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(testCertificate(t).Leaf)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// testCertificate is httptest's own, valid for 127.0.0.1 and example.com.
func testCertificate(t testing.TB) tls.Certificate {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	c := s.TLS.Certificates[0]
	c.Leaf = s.Certificate()
	return c
}

// forwardProxy is an HTTP proxy, in clear or inside TLS. With a user, it demands credentials.
func forwardProxy(t testing.TB, secure bool, user, password string) string {
	t.Helper()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{DisableKeepAlives: true}}
	s := startServer(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case user != "" && r.Header.Get("Proxy-Authorization") != want:
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect:
			tunnel(w, r)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	return s.Listener.Addr().String()
}

func tunnel(w http.ResponseWriter, r *http.Request) {
	there, err := net.DialTimeout("tcp", r.Host, patience)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		there.Close()
		return
	}
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	splice(here, there)
}

// splice copies both ways until either side is closed.
func splice(a, b net.Conn) {
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		copies.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
	copies.Wait()
}

// serve accepts connections on loopback and gives each to handle, until the test ends. It closes what handle leaves open.
func serve(t *testing.T, handle func(context.Context, net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				handle(ctx, c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		handlers.Wait()
	})
	return l.Addr().String()
}

// terminator takes TLS off what it forwards to another address.
func terminator(t *testing.T, to string) string {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}, MinVersion: tls.VersionTLS12}
	return serve(t, func(_ context.Context, c net.Conn) {
		there, err := net.DialTimeout("tcp", to, patience)
		if err != nil {
			return
		}
		splice(tls.Server(c, cfg), there)
	})
}

// socksProxy is a SOCKS5 proxy. With a user, it demands credentials; hangUp makes it refuse them without an answer.
type socksProxy struct {
	user, password string
	hangUp         bool
}

func (p socksProxy) start(t *testing.T) string {
	t.Helper()
	return serve(t, func(_ context.Context, c net.Conn) {
		there, err := p.negotiate(c)
		if err == nil {
			splice(c, there)
		}
	})
}

var errRefused = errors.New("refused")

func (p socksProxy) negotiate(c net.Conn) (net.Conn, error) {
	methods, err := readCounted(c, 1)
	if err != nil {
		return nil, err
	}
	if p.user != "" {
		if err := p.login(c, methods); err != nil {
			return nil, err
		}
	} else if _, err := c.Write([]byte{5, 0}); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	host, err := readAddress(c, head[3])
	if err != nil {
		return nil, err
	}
	there, err := net.DialTimeout("tcp", host, patience)
	if err != nil {
		_, _ = c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
		return nil, err
	}
	// The address that the proxy claims to connect from is a name here, the kind that is easily forgotten.
	_, err = c.Write([]byte{5, 0, 0, 3, 1, 'x', 0, 0})
	return there, err
}

func (p socksProxy) login(c net.Conn, methods []byte) error {
	offered := false
	for _, m := range methods {
		offered = offered || m == 2
	}
	if !offered {
		_, _ = c.Write([]byte{5, 0xff})
		return errRefused
	}
	if _, err := c.Write([]byte{5, 2}); err != nil {
		return err
	}
	user, err := readCounted(c, 1)
	if err != nil {
		return err
	}
	password, err := readCounted(c, 0)
	if err != nil {
		return err
	}
	if string(user) != p.user || string(password) != p.password {
		if !p.hangUp {
			_, _ = c.Write([]byte{1, 1})
		}
		return errRefused
	}
	_, err = c.Write([]byte{1, 0})
	return err
}

// readCounted skips some bytes and reads as many as the next one says.
func readCounted(r io.Reader, skip int) ([]byte, error) {
	head := make([]byte, skip+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	text := make([]byte, head[skip])
	_, err := io.ReadFull(r, text)
	return text, err
}

func readAddress(r io.Reader, kind byte) (string, error) {
	var host string
	switch kind {
	case 1, 4:
		address := make([]byte, map[byte]int{1: 4, 4: 16}[kind])
		if _, err := io.ReadFull(r, address); err != nil {
			return "", err
		}
		host = net.IP(address).String()
	default:
		name, err := readCounted(r, 0)
		if err != nil {
			return "", err
		}
		host = string(name)
	}
	var port [2]byte
	_, err := io.ReadFull(r, port[:])
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), err
}

// through is a target that requests a URL through the proxy at an address.
func through(t testing.TB, scheme, address, rawURL string) health.Target {
	t.Helper()
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	one := target(key)
	one.Scheme, one.Host, one.Port, one.URL, one.Timeout = scheme, host, port, rawURL, patience
	one.TLS, one.ProxyTLS = trust(t), trust(t)
	return one
}

func withLogin(t health.Target, user, password string) health.Target {
	t.User, t.Password = secret.New(user), secret.New(password)
	return t
}

// named is the URL with another host that leads to the same place.
func named(t *testing.T, rawURL, host string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}
