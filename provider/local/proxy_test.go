package local_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
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

func TestRequestsFinishWhenRunEnds(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-finish
		_, _ = io.WriteString(w, "whole")
	}))
	defer target.Close()
	p, stop := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}, AllowedDestinations: []string{"127.0.0.1"}})
	in := create(t, p, request("one", freePort(t), provider.Credentials{}))
	answer := make(chan string)
	go func() {
		resp, err := client(t, in, nil).Get(target.URL)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	<-started
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	for dialed := true; dialed; { // until it accepts no more
		c, err := net.DialTimeout("tcp", addressOf(in), limit)
		if dialed = err == nil; dialed {
			_ = c.Close()
		}
	}
	close(finish)
	if got := <-answer; got != "whole" {
		t.Errorf("the request under way ended with %q", got)
	}
	<-stopped
	_, err := p.Get(t.Context(), refOf(in))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "NotRunning" {
		t.Errorf("after Run, Get returned %v, want a transient NotRunning, which says nothing about the instance", err)
	}
}

// A restart changes nothing, and the right password is known although it stands in no file.
func TestRestart(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	dir := filepath.Join(t.TempDir(), "state")
	c := local.Config{Addresses: []string{"127.0.78.1-127.0.78.9"}, AllowedDestinations: []string{"127.0.0.1"}}
	right := credentials()
	p, stop := run(t, dir, c)
	in := create(t, p, request("one", freePort(t), right))
	stop()
	noSecret(t, dir, right)
	p, _ = run(t, dir, c)
	if diff := cmp.Diff(in, get(t, p, in)); diff != "" {
		t.Errorf("instance (-before +after):\n%s", diff)
	}
	for _, try := range []struct {
		user *url.Userinfo
		want int
	}{
		{url.UserPassword(right.Username.Reveal(), "guess"), http.StatusProxyAuthRequired},
		{userinfo(right), http.StatusNotFound},
		{url.UserPassword(right.Username.Reveal(), "guess"), http.StatusProxyAuthRequired},
	} {
		resp, err := client(t, in, try.user).Get(target.URL)
		if body(t, resp, err); resp.StatusCode != try.want {
			t.Errorf("status %d, want %d", resp.StatusCode, try.want)
		}
	}
}

// noSecret looks for credentials in all files of a directory.
func noSecret(t *testing.T, dir string, c provider.Credentials) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for _, s := range []secret.Text{c.Username, c.Password} {
			if strings.Contains(string(text), s.Reveal()) {
				t.Errorf("%s holds a secret", path)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// An address that is taken for a while loses nobody's instance.
func TestAddressTakenAtRestart(t *testing.T) {
	dir := t.TempDir()
	c := local.Config{Addresses: []string{"127.0.78.1"}}
	p, stop := run(t, dir, c)
	in := create(t, p, request("one", freePort(t), provider.Credentials{}))
	stop()
	other, err := net.Listen("tcp", addressOf(in))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, _ = run(t, dir, c)
	now := get(t, p, in)
	if now.State != provider.Provisioning || now.Reason != "AddressUnavailable" || now.Message == "" || now.Incarnation != in.Incarnation {
		t.Errorf("while its address is taken the instance is %+v, want Provisioning and why", now)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, get(t, p, in)); diff != "" {
		t.Errorf("instance (-before +after):\n%s", diff)
	}
}

func TestAddressNoLongerConfigured(t *testing.T) {
	dir := t.TempDir()
	p, stop := run(t, dir, local.Config{Addresses: []string{"127.0.78.1-127.0.78.2"}})
	port := freePort(t)
	in, stays := create(t, p, request("one", port, provider.Credentials{})), create(t, p, request("two", port, provider.Credentials{}))
	stop()
	p, _ = run(t, dir, local.Config{Addresses: []string{"127.0.78.2"}})
	if now := get(t, p, in); now.State != provider.Stopped || now.Reason != "AddressNotConfigured" {
		t.Errorf("without its address the instance is %+v, want Stopped", now)
	}
	if now := get(t, p, stays); now.State != provider.Running {
		t.Errorf("the other instance is %+v, want Running", now)
	}
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("the address still accepts connections")
	}
}

// What another fleet left in the state directory is not served, and does not use up addresses.
func TestForeignInstances(t *testing.T) {
	dir := t.TempDir()
	c := local.Config{Addresses: []string{"127.0.78.1"}}
	theirs := open(t, provider.Environment{Fleet: "another", StateDir: dir}, c)
	stop := runUntilStopped(t, theirs)
	r := request("one", freePort(t), provider.Credentials{})
	foreign := r
	foreign.Name, foreign.Marks.Fleet = "proxy-foreign", "another"
	in := create(t, theirs, foreign)
	stop()
	p, _ := run(t, dir, c)
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List returned %v, %v, want nothing", all, err)
	}
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("the instance of another fleet accepts connections")
	}
	create(t, p, r)
	if _, err := os.Stat(filepath.Join(dir, foreign.Name+".json")); err != nil {
		t.Errorf("the file of the other fleet: %v", err)
	}
}

func TestAddressesRunOut(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1-127.0.78.3"}})
	port := freePort(t)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.78.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var first provider.Instance
	for i, want := range []string{"127.0.78.2", "127.0.78.3"} {
		in := create(t, p, request(want, port, provider.Credentials{}))
		if in.Host != want {
			t.Errorf("instance %d is at %s, want %s, the first that is free", i, in.Host, want)
		}
		if i == 0 {
			first = in
		}
	}
	next := request("next", port, provider.Credentials{})
	_, err = p.Create(t.Context(), next)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "AddressUnavailable" {
		t.Errorf("Create where the last free address is in use returned %v, want a transient AddressUnavailable", err)
	}
	create(t, p, request("elsewhere", freePort(t), provider.Credentials{}))
	_, err = p.Create(t.Context(), next)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrQuotaExceeded || e.Reason != "NoFreeAddress" {
		t.Errorf("Create without a free address returned %v, want a quota", err)
	}
	if err := p.Delete(t.Context(), refOf(first)); err != nil {
		t.Fatal(err)
	}
	if in := create(t, p, next); in.Host != first.Host {
		t.Errorf("the next instance is at %s, want %s, which became free", in.Host, first.Host)
	}
}

func TestExposedProxiesNeedCredentials(t *testing.T) {
	p := open(t, provider.Environment{Fleet: fleetID, StateDir: t.TempDir()}, local.Config{
		Addresses: []string{"127.0.78.1", "192.0.2.1"}, AllowNonLoopback: true,
	})
	_, err := p.Plan(request("one", 3128, provider.Credentials{}))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Reason != provider.MissingField || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("Plan without credentials returned %v, want a MissingField that names them", err)
	}
	if _, err := p.Plan(request("one", 3128, credentials())); err != nil {
		t.Errorf("Plan with credentials: %v", err)
	}
}

// The slow hash is made outside the mutex, where another create may overtake it.
func TestCreatesAtOnceWithCredentials(t *testing.T) {
	raw, err := json.Marshal(local.Config{Addresses: []string{"127.0.78.1-127.0.78.9"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(provider.Environment{Fleet: fleetID, StateDir: t.TempDir()}, raw)
	if err != nil {
		t.Fatal(err)
	}
	runUntilStopped(t, p)
	r := request("one", freePort(t), credentials())
	var made [3]provider.Instance
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			in, err := p.Create(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			made[i] = in
		})
	}
	group.Wait()
	for _, in := range made[1:] {
		if diff := cmp.Diff(made[0], in); diff != "" {
			t.Errorf("two creates returned (-one +other):\n%s", diff)
		}
	}
}

// A state directory that takes no file costs an attempt and leaves nothing behind.
func TestUnwritableState(t *testing.T) {
	dir := t.TempDir()
	p, stop := run(t, dir, local.Config{Addresses: []string{"127.0.78.1"}})
	r := request("one", freePort(t), provider.Credentials{})
	create(t, p, request("other", r.Port, provider.Credentials{})) // Run has prepared the directory by now
	if err := p.Delete(t.Context(), provider.Ref{ID: "listeners/" + provider.Name(fleetID, "other"), UID: "other"}); err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(dir, r.Name+".json.part")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := p.Create(t.Context(), r)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "StateUnwritable" {
		t.Errorf("Create returned %v, want a transient StateUnwritable", err)
	}
	if _, err := p.Get(t.Context(), provider.Ref{ID: "listeners/" + r.Name, UID: "one"}); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get returned %v, want NotFound", err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	create(t, p, r)
	stop()
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, state, config, want string
	}{
		{"no state directory", "", `{"addresses":["127.0.0.1"]}`, "no state directory"},
		{"no configuration", t.TempDir(), ``, "config.addresses: at least one"},
		{"foreign file", dir, `{"addresses":["127.0.0.1"]}`, "notes.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := local.New(provider.Environment{Fleet: fleetID, StateDir: c.state}, []byte(c.config))
			if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New returned %v and %v, want an error that says %q", p, err, c.want)
			}
		})
	}
}

func TestRunsOnce(t *testing.T) {
	p, stop := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}})
	create(t, p, request("one", freePort(t), provider.Credentials{}))
	runner, _ := provider.As[provider.Runner](p)
	if err := runner.Run(t.Context()); err == nil {
		t.Error("a second Run returned no error")
	}
	stop()
}
