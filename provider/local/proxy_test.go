package local_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
	"github.com/proxyfleet/fleet/secret"
)

// limit is how long anything here may take.
const limit = 30 * time.Second

const fleetID = "lab"

// run opens a provider and runs it; the returned function ends that.
func run(t *testing.T, dir string, c local.Config) (provider.Provider, func()) {
	t.Helper()
	p := open(t, provider.Environment{Fleet: fleetID, StateDir: dir}, c)
	return p, runUntilStopped(t, p)
}

// runUntilStopped runs a provider until the returned function is called, or the test ends.
func runUntilStopped(t *testing.T, p provider.Provider) func() {
	t.Helper()
	runner, ok := provider.As[provider.Runner](p)
	if !ok {
		t.Fatal("the provider is no Runner")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(limit):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func credentials() provider.Credentials {
	return provider.Credentials{Username: secret.New("planted-user"), Password: secret.New("planted p@ss:wörd/")}
}

func request(uid string, port int, c provider.Credentials) provider.Request {
	return provider.Request{
		Name:        provider.Name(fleetID, uid),
		Marks:       provider.Marks{Fleet: fleetID, UID: uid, Hash: "v1-0"},
		Token:       "token",
		Port:        port,
		Credentials: c,
	}
}

func create(t *testing.T, p provider.Provider, r provider.Request) provider.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	in, err := p.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func get(t *testing.T, p provider.Provider, in provider.Instance) provider.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	now, err := p.Get(ctx, refOf(in))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func refOf(in provider.Instance) provider.Ref {
	return provider.Ref{ID: in.ID, UID: in.Marks.UID, Incarnation: in.Incarnation}
}

func addressOf(in provider.Instance) string {
	return net.JoinHostPort(in.Host, strconv.Itoa(in.Port))
}

// client returns one that goes through a proxy, with a connection of its own for each request.
func client(t *testing.T, in provider.Instance, user *url.Userinfo) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: addressOf(in), User: user}),
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // the target's certificate is its own
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: limit}
}

func userinfo(c provider.Credentials) *url.Userinfo {
	return url.UserPassword(c.Username.Reveal(), c.Password.Reveal())
}

// one returns a running proxy without credentials that may relay to loopback addresses.
func one(t *testing.T, edit ...func(*local.Config)) (provider.Provider, provider.Instance) {
	t.Helper()
	c := local.Config{Addresses: []string{"127.0.78.1-127.0.78.9"}, AllowedDestinations: []string{"127.0.0.0/8"}}
	for _, f := range edit {
		f(&c)
	}
	p, _ := run(t, t.TempDir(), c)
	return p, create(t, p, request("one", freePort(t), provider.Credentials{}))
}

func body(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRelays(t *testing.T) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, text)
	})
	plain, secure := httptest.NewServer(hello), httptest.NewTLSServer(hello)
	defer plain.Close()
	defer secure.Close()
	_, in := one(t)
	for name, base := range map[string]string{"HTTP": plain.URL, "CONNECT": secure.URL} {
		t.Run(name, func(t *testing.T) {
			resp, err := client(t, in, nil).Post(base+"/a?b=c", "text/plain", strings.NewReader("body"))
			if got := body(t, resp, err); got != "POST /a?b=c body" {
				t.Errorf("the target answered %q", got)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	target := httptest.NewTLSServer(http.NotFoundHandler())
	defer target.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}, AllowedDestinations: []string{"127.0.0.1"}})
	right := credentials()
	in := create(t, p, request("one", freePort(t), right))
	for _, c := range []struct {
		name string
		user *url.Userinfo
		want bool
	}{
		{"none", nil, false},
		{"right", userinfo(right), true},
		{"wrong password", url.UserPassword(right.Username.Reveal(), "guess"), false},
		{"wrong user", url.UserPassword("guess", right.Password.Reveal()), false},
		{"user alone", url.User(right.Username.Reveal()), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, err := client(t, in, c.user).Get(plain.URL)
			body(t, resp, err)
			if want := map[bool]int{true: http.StatusNotFound, false: http.StatusProxyAuthRequired}[c.want]; resp.StatusCode != want {
				t.Errorf("HTTP: status %d, want %d", resp.StatusCode, want)
			}
			if got := resp.Header.Get("Proxy-Authenticate"); !c.want && got != `Basic realm="proxy"` {
				t.Errorf("HTTP: Proxy-Authenticate is %q", got)
			}
			resp, err = client(t, in, c.user).Get(target.URL)
			if c.want {
				body(t, resp, err)
			} else if err == nil || !strings.Contains(err.Error(), "Proxy Authentication Required") {
				t.Errorf("CONNECT: %v, want 407", err)
			}
		})
	}
}

// raw sends the text of a request to a proxy and returns the response.
func raw(t *testing.T, in provider.Instance, text string) *http.Response {
	t.Helper()
	c := dial(t, addressOf(in))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRefusedDestinations(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	_, in := one(t, func(c *local.Config) { c.AllowedDestinations = []string{"127.0.78.0/24"} })
	port := target.Listener.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0", "10.0.0.1", in.Host} {
		address := fmt.Sprintf("%s:%d", host, port)
		if host == in.Host {
			address = addressOf(in)
		}
		for method, text := range map[string]string{
			"HTTP":    "GET http://" + address + "/ HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
			"CONNECT": "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
		} {
			t.Run(method+" "+host, func(t *testing.T) {
				resp := raw(t, in, text)
				if resp.StatusCode != http.StatusForbidden || !strings.Contains(resp.Header.Get("Proxy-Status"), "destination_ip_prohibited") {
					t.Errorf("status %d, Proxy-Status %q; want 403 and destination_ip_prohibited", resp.StatusCode, resp.Header.Get("Proxy-Status"))
				}
				if got := body(t, resp, nil); !strings.Contains(got, "does not relay to") {
					t.Errorf("the body says %q", got)
				}
			})
		}
	}
}

// An address that the configuration has is the host's own, public or not, and what else listens there is not for the clients of
// the proxies.
func TestRefusesAddressesOfItsOwn(t *testing.T) {
	_, in := one(t, func(c *local.Config) {
		c.Addresses, c.SourceAddresses = []string{"127.0.78.1"}, []string{"203.0.113.1"}
	})
	resp := raw(t, in, "CONNECT 203.0.113.1:9100 HTTP/1.1\r\nHost: 203.0.113.1:9100\r\n\r\n")
	if got := body(t, resp, nil); resp.StatusCode != http.StatusForbidden || !strings.Contains(got, "address of this host") {
		t.Errorf("status %d, body %q; want 403 and that it is an address of the host", resp.StatusCode, got)
	}
}

// Of two services on one address, only the one is reached whose port is allowed.
func TestAllowedPort(t *testing.T) {
	target, api := httptest.NewTLSServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer target.Close()
	defer api.Close()
	_, in := one(t, func(c *local.Config) { c.AllowedDestinations = []string{target.Listener.Addr().String()} })
	resp, err := client(t, in, nil).Get(target.URL)
	body(t, resp, err)
	address := api.Listener.Addr().String()
	for method, text := range map[string]string{
		"HTTP":    "GET http://" + address + "/ HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
		"CONNECT": "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
	} {
		if resp := raw(t, in, text); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s to another port: status %d, want 403", method, resp.StatusCode)
		}
	}
}

func TestFailures(t *testing.T) {
	_, in := one(t)
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"no proxy request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusBadRequest},
		{"nobody there", "GET http://" + nobody + "/ HTTP/1.1\r\nHost: " + nobody + "\r\n\r\n", http.StatusBadGateway},
		{"nobody there, CONNECT", "CONNECT " + nobody + " HTTP/1.1\r\nHost: " + nobody + "\r\n\r\n", http.StatusBadGateway},
		{"another scheme", "GET ftp://" + nobody + "/ HTTP/1.1\r\nHost: " + nobody + "\r\n\r\n", http.StatusBadGateway},
		{"endless header", "GET http://x/ HTTP/1.1\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			if resp := raw(t, in, c.text); resp.StatusCode != c.want {
				t.Errorf("status %d, want %d", resp.StatusCode, c.want)
			}
		})
	}
}

// The target sees what the client sent, and the client what the target sent: nothing tells of the proxy.
func TestHeaders(t *testing.T) {
	seen := make(chan http.Header, 1)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Connection", "X-Hop")
		zip := gzip.NewWriter(w)
		_, _ = zip.Write([]byte("zipped"))
		_ = zip.Close()
	}))
	defer target.Close()
	_, in := one(t)
	resp := raw(t, in, "GET "+target.URL+"/ HTTP/1.1\r\nHost: "+target.Listener.Addr().String()+"\r\n"+
		"Accept-Encoding: gzip\r\nX-Kept: 1\r\nX-Dropped: 1\r\nConnection: keep-alive, X-Dropped\r\nProxy-Connection: keep-alive\r\n"+
		"Proxy-Authorization: Basic eA==\r\nTE: trailers\r\nUpgrade: websocket\r\n\r\n")
	if diff := cmp.Diff(http.Header{"Accept-Encoding": {"gzip"}, "X-Kept": {"1"}}, <-seen); diff != "" {
		t.Errorf("header at the target (-want +got):\n%s", diff)
	}
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Content-Length") == "" {
		t.Errorf("the response was recoded: %v", resp.Header)
	}
	for _, name := range []string{"Via", "X-Hop", "X-Forwarded-For"} {
		if got := resp.Header.Get(name); got != "" {
			t.Errorf("the client sees %s: %s", name, got)
		}
	}
	raw(t, in, "GET "+target.URL+"/ HTTP/1.1\r\nHost: "+target.Listener.Addr().String()+"\r\n\r\n")
	if diff := cmp.Diff(http.Header{}, <-seen); diff != "" {
		t.Errorf("header at the target of a request without any (-want +got):\n%s", diff)
	}
}

// Whatever the environment of this process says, connections go to their destination.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	t.Setenv("NO_PROXY", "")
	target := httptest.NewTLSServer(http.NotFoundHandler())
	defer target.Close()
	_, in := one(t)
	resp, err := client(t, in, nil).Get(target.URL)
	body(t, resp, err)
}

func TestLeavesFromItsSource(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(w, host)
	}))
	defer target.Close()
	p, _ := run(t, t.TempDir(), local.Config{
		Addresses:           []string{"127.0.78.1-127.0.78.2"},
		SourceAddresses:     []string{"127.0.79.1-127.0.79.2"},
		AllowedDestinations: []string{"127.0.0.1"},
	})
	port := freePort(t)
	for _, c := range []struct{ uid, host, source string }{{"one", "127.0.78.1", "127.0.79.1"}, {"two", "127.0.78.2", "127.0.79.2"}} {
		in := create(t, p, request(c.uid, port, provider.Credentials{}))
		if in.Host != c.host || in.Port != port {
			t.Errorf("%s listens at %s, want %s:%d", c.uid, addressOf(in), c.host, port)
		}
		resp, err := client(t, in, nil).Get(target.URL)
		if got := body(t, resp, err); got != c.source {
			t.Errorf("%s leaves from %s, want %s", c.uid, got, c.source)
		}
	}
}

// Half a page must not look whole.
func TestTruncatedResponse(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer target.Close()
	_, in := one(t)
	resp, err := client(t, in, nil).Get(target.URL)
	if err != nil {
		return // cut off before the header: that is no whole page either
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the client got %q and no error", text)
	}
}

// What a target sends is passed on although the response goes on.
func TestStreams(t *testing.T) {
	done := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-done
	}))
	defer target.Close()
	defer close(done)
	_, in := one(t)
	resp, err := client(t, in, nil).Get(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, len("first"))
	if _, err := io.ReadFull(resp.Body, text); err != nil || string(text) != "first" {
		t.Errorf("the client got %q, %v before the response ended", text, err)
	}
}

// tunnel opens a tunnel through a proxy to a target that echoes, and shows that it works.
func tunnel(t *testing.T, in provider.Instance) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	c := dial(t, addressOf(in))
	// The first bytes of the tunnel come with the request, as impatient clients send them.
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\nhello", l.Addr()); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	echo := make([]byte, len("hello"))
	if _, err := io.ReadFull(r, echo); err != nil || string(echo) != "hello" {
		t.Fatalf("the tunnel echoes %q, %v", echo, err)
	}
	return c
}

// ends says that a connection is closed by the other side.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

func TestDeleteCutsTunnels(t *testing.T) {
	p, in := one(t)
	c := tunnel(t, in)
	other := create(t, p, request("two", in.Port, provider.Credentials{}))
	if err := p.Delete(t.Context(), refOf(in)); err != nil {
		t.Fatal(err)
	}
	ends(t, c)
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("the address still accepts connections")
	}
	tunnel(t, other)
}

func TestTunnelEndsInOneDirectionFirst(t *testing.T) {
	_, in := one(t)
	c := tunnel(t, in)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("the other direction ended with %v", err)
	}
}
