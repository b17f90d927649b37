package leasehttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

// patience is how long a test waits for what should come at once.
const patience = 10 * time.Second

// newTransport makes a transport whose attempts are quick to give up.
func newTransport(t *testing.T, c leasehttp.Config) *leasehttp.Transport {
	t.Helper()
	if c.Base == nil {
		c.Base = trusting(t)
	}
	if c.Wait == 0 {
		c.Wait = -1
	}
	tr, err := leasehttp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// get asks for a page and returns its body.
func get(t *testing.T, rt http.RoundTripper, url string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, rt, r)
}

func send(t *testing.T, rt http.RoundTripper, r *http.Request) (*http.Response, string, error) {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// site answers with the address that a request came from.
func site(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	fmt.Fprintf(w, "%s %s %s", r.Proto, host, r.Header.Get("Proxy-Authorization"))
}

// TestEveryKindOfProxy sends requests through each kind of proxy to each kind of target.
func TestEveryKindOfProxy(t *testing.T) {
	for _, scheme := range []string{"http", "https", "socks5"} {
		for _, login := range []bool{false, true} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, login %v, TLS %v", scheme, login, secure), func(t *testing.T) {
					var from sync.Map
					target := newTarget(t, secure, func(w http.ResponseWriter, r *http.Request) {
						from.Store(r.RemoteAddr, true)
						site(w, r)
					})
					f := newForward(t, scheme, "127.0.61.7")
					f.ask = login
					store := newStore(t, map[string]lease.Endpoint{"berlin": f.endpoint("berlin")})
					rt := newTransport(t, leasehttp.Config{Store: store})
					const requests = 3
					for range requests {
						resp, body, err := get(t, rt, target.URL)
						if err != nil {
							t.Fatal(err)
						}
						if proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[secure]; body != proto+" 127.0.61.7 " {
							t.Errorf("the target says %q", body)
						}
						if got := leasehttp.Served(resp); got != "default/berlin" {
							t.Errorf("served by %q", got)
						}
						store.empty(t)
					}
					conns := 0
					from.Range(func(any, any) bool { conns++; return true })
					if got := int(f.conns.Load()); got != requests || conns != requests {
						t.Errorf("%d connections to the proxy and %d to the target for %d requests", got, conns, requests)
					}
					if diff := cmp.Diff(slices.Repeat([]string{"berlin ok"}, requests), store.said()); diff != "" {
						t.Errorf("reports (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// fleetOf starts plain proxies, of which the first is first in the store's order.
func fleetOf(t *testing.T, n int) (proxies []*forward, endpoints map[string]lease.Endpoint) {
	t.Helper()
	endpoints = map[string]lease.Endpoint{}
	for i := range n {
		f := newForward(t, "http", fmt.Sprintf("127.0.61.%d", 10+i))
		name := string(rune('a' + i))
		proxies, endpoints[name] = append(proxies, f), f.endpoint(name)
	}
	return proxies, endpoints
}

// TestVerdicts makes sure that what a target says of one proxy is reported, and has the request sent through another.
func TestVerdicts(t *testing.T) {
	packed := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
	signs := leasehttp.Signs{Statuses: []int{418}, Texts: []string{"are you human"}}.Classify
	tests := []struct {
		name     string
		status   int
		body     string
		packed   bool
		classify leasehttp.Classifier
		reports  []string
		again    bool
	}{
		{"ok", 200, "x", false, nil, []string{"a ok"}, false},
		{"not found", 404, "x", false, nil, []string{"a ok"}, false},
		{"moved", 302, "x", false, nil, []string{"a ok"}, false},
		{"rate limited", 429, "", false, nil, []string{"a rate_limited", "b ok"}, true},
		{"forbidden", 403, "go away", false, nil, []string{"a banned", "b ok"}, true},
		{"bad gateway", 502, "", false, nil, []string{"b ok"}, true},
		{"unavailable", 503, "", false, nil, []string{"b ok"}, true},
		{"no answer behind a gateway", 504, "", false, nil, []string{"b ok"}, true},
		{"broken", 500, "", false, nil, nil, false},
		{"a status that is a sign", 418, "", false, signs, []string{"a banned", "b ok"}, true},
		{"the same where it is none", 418, "", false, nil, []string{"a ok"}, false},
		{"a text that is a sign", 200, "so, are you human?", false, signs, []string{"a banned", "b ok"}, true},
		{"the same, packed", 200, packed("so, are you human?"), true, signs, []string{"a banned", "b ok"}, true},
		{"a text that is none", 200, "we are human", false, signs, []string{"a ok"}, false},
		{"another classifier", 200, "", false, func(resp *http.Response, _ []byte, _ error) leasehttp.Verdict {
			return leasehttp.Verdict{Outcome: lease.Failed, Retry: resp.StatusCode == http.StatusOK}
		}, []string{"a failed", "b failed"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			target := newTarget(t, false, func(w http.ResponseWriter, r *http.Request) {
				if host, _, _ := net.SplitHostPort(r.RemoteAddr); host != "127.0.61.10" {
					_, _ = io.WriteString(w, "welcome")
					return
				}
				if test.packed {
					w.Header().Set("Content-Encoding", "gzip")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, endpoints := fleetOf(t, 2)
			store := newStore(t, endpoints)
			rt := newTransport(t, leasehttp.Config{Store: store, Classify: test.classify, Retries: 1})
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target.URL, nil)
			r.Header.Set("Accept-Encoding", "gzip") // the transport then leaves a body packed
			resp, body, err := send(t, rt, r)
			if err != nil {
				t.Fatal(err)
			}
			wantBody, wantStatus, by := test.body, test.status, "default/a"
			if test.again {
				wantBody, wantStatus, by = "welcome", 200, "default/b"
			}
			if got := leasehttp.Served(resp); body != wantBody || resp.StatusCode != wantStatus || got != by {
				t.Errorf("%d %q by %s, want %d %q by %s", resp.StatusCode, body, got, wantStatus, wantBody, by)
			}
			if diff := cmp.Diff(test.reports, store.said()); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			store.empty(t)
		})
	}
}

// TestLastAnswer makes sure that the caller gets what the last proxy got, if there is no better one.
func TestLastAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		proxies, retries int
		buffer           int
		want             string
		served           int
	}{
		"no other proxy":           {2, 9, 0, "default/b", 2},
		"no more attempts":         {9, 3, 0, "default/d", 4},
		"no retries":               {9, -1, 0, "default/a", 1},
		"nothing is read in ahead": {3, 9, -1, "default/c", 3},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			target := newTarget(t, false, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "go away")
			})
			_, endpoints := fleetOf(t, test.proxies)
			store := newStore(t, endpoints)
			rt := newTransport(t, leasehttp.Config{Store: store, Retries: test.retries, Buffer: test.buffer})
			resp, body, err := get(t, rt, target.URL)
			if err != nil {
				t.Fatal(err)
			}
			if got := leasehttp.Served(resp); resp.StatusCode != http.StatusForbidden || body != "go away" || got != test.want || asked != test.served {
				t.Errorf("%d %q by %s after %d requests, want 403 %q by %s after %d", resp.StatusCode, body, got, asked, "go away", test.want, test.served)
			}
			if got := len(store.said()); got != test.served {
				t.Errorf("%d reports", got)
			}
			store.empty(t)
		})
	}
}

// TestAnotherProxy makes sure that the first of the store's order, which is dead and which the store still offers, is not
// tried twice.
func TestAnotherProxy(t *testing.T) {
	proxies, endpoints := fleetOf(t, 4)
	proxies[0].close() // dead
	proxies[2].close()
	target := newTarget(t, false, func(w http.ResponseWriter, r *http.Request) {
		if host, _, _ := net.SplitHostPort(r.RemoteAddr); host == "127.0.61.11" {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	store := newStore(t, endpoints)
	rt := newTransport(t, leasehttp.Config{Store: store, Session: func(*http.Request) string { return "s" }})
	resp, _, err := get(t, rt, target.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := leasehttp.Served(resp); got != "default/d" {
		t.Errorf("served by %s", got)
	}
	if diff := cmp.Diff([]string{"a failed", "b banned", "c failed", "d ok"}, store.said()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	store.empty(t)
}

// TestWhatIsSentAgain makes sure that no target sees a request twice that must not be repeated, and no proxy half a body.
func TestWhatIsSentAgain(t *testing.T) {
	text := strings.Repeat("body ", 1000)
	once := io.MultiReader(strings.NewReader(text)) // cannot be rewound
	tests := []struct {
		name   string
		method string
		body   io.Reader
		key    string
		dead   bool // the first proxy, so that the request never leaves
		again  bool
	}{
		{"GET", "GET", nil, "", false, true},
		{"empty method", "", nil, "", false, true},
		{"PUT", "PUT", strings.NewReader(text), "", false, true},
		{"DELETE", "DELETE", nil, "", false, true},
		{"PATCH", "PATCH", strings.NewReader(text), "", false, false},
		{"POST", "POST", strings.NewReader(text), "", false, false},
		{"POST without a body", "POST", nil, "", false, false},
		{"POST with a key", "POST", strings.NewReader(text), "k", false, true},
		{"POST that never left", "POST", strings.NewReader(text), "", true, true},
		{"PUT of what cannot be rewound", "PUT", once, "", false, false},
		{"the same, which never left", "PUT", io.MultiReader(strings.NewReader(text)), "", true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			target := newTarget(t, false, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = append(got, string(body))
				if len(got) == 1 && !test.dead {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			})
			proxies, endpoints := fleetOf(t, 2)
			if test.dead {
				proxies[0].close()
			}
			store := newStore(t, endpoints)
			r, _ := http.NewRequestWithContext(t.Context(), test.method, target.URL, test.body)
			if test.key != "" {
				r.Header.Set("Idempotency-Key", test.key)
			}
			resp, _, err := send(t, newTransport(t, leasehttp.Config{Store: store}), r)
			if failed := err != nil || resp.StatusCode != http.StatusOK; failed == test.again {
				t.Errorf("response %v, error %v", resp, err)
			}
			want := 1
			if test.again && !test.dead {
				want = 2
			} else if test.dead && !test.again {
				want = 0
			}
			if len(got) != want {
				t.Fatalf("the target got %d requests, want %d", len(got), want)
			}
			for _, body := range got {
				if test.body != nil && body != text {
					t.Errorf("the target got %d bytes of %d", len(body), len(text))
				}
			}
			store.empty(t)
		})
	}
}

// broken is a body that cannot be read to its end.
type broken struct{ n int }

func (b *broken) Read(p []byte) (int, error) {
	if b.n--; b.n < 0 {
		return 0, errors.New("the disk is gone")
	}
	return copy(p, "some"), nil
}

// stuck is a body that says nothing until it is closed, and then that it cannot be read.
type stuck struct {
	once   sync.Once
	closed chan struct{}
}

func (s *stuck) Read([]byte) (int, error) {
	<-s.closed
	return 0, errors.New("the file is closed")
}

func (s *stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// TestBodiesAreClosed makes sure that the body of a request is closed whatever becomes of it.
func TestBodiesAreClosed(t *testing.T) {
	target := newTarget(t, false, site)
	f, dead := newForward(t, "http", "127.0.61.7"), newForward(t, "http", "127.0.61.8")
	dead.close()
	for name, test := range map[string]struct {
		url     string
		proxies map[string]lease.Endpoint
	}{
		"sent":     {target.URL, map[string]lease.Endpoint{"a": f.endpoint("a")}},
		"not sent": {target.URL, map[string]lease.Endpoint{"a": dead.endpoint("a")}},
		"no proxy": {target.URL, nil},
		"no URL":   {"ftp://example.test/", map[string]lease.Endpoint{"a": f.endpoint("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			body := &stuck{closed: make(chan struct{})}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, test.url, struct {
				io.Reader
				io.Closer
			}{strings.NewReader("x"), body})
			_, _, _ = send(t, newTransport(t, leasehttp.Config{Store: newStore(t, test.proxies)}), r)
			select {
			case <-body.closed:
			case <-time.After(patience):
				t.Error("the body is open")
			}
		})
	}
}

// TestTunnelledAnswers makes sure that what comes through a tunnel is the target's, whatever it looks like, and that the
// caller's own look at the proxy's answer is kept.
func TestTunnelledAnswers(t *testing.T) {
	target := newTarget(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Squid-Error", "ERR_ACCESS_DENIED 0")
		w.WriteHeader(http.StatusProxyAuthRequired)
	})
	f := newForward(t, "http", "127.0.61.7")
	store := newStore(t, map[string]lease.Endpoint{"a": f.endpoint("a")})
	base, looks := trusting(t), 0
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if looks++; looks == 2 {
			return errors.New("not this one")
		}
		return nil
	}
	rt := newTransport(t, leasehttp.Config{Store: store, Base: base})
	if resp, _, err := get(t, rt, target.URL); err != nil || resp.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("%v: %v", resp, err)
	}
	_, _, err := get(t, rt, target.URL)
	if failure, ok := errors.AsType[*leasehttp.Error](err); !ok || failure.By != leasehttp.Proxy || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("error %v", err)
	}
}

// TestWhoFailed makes sure that errors name the right party, and that only a proxy's own failure is held against it.
func TestWhoFailed(t *testing.T) {
	tests := []struct {
		name    string
		scheme  string
		secure  bool // the target
		proxy   func(*forward)
		target  http.HandlerFunc
		request func(*http.Request) *http.Request
		distrust,
		login bool
		by      leasehttp.Party
		status  int
		timeout bool
	}{
		{name: "proxy is down", proxy: func(f *forward) { f.close() }, by: leasehttp.Proxy},
		{name: "proxy is down, TLS", secure: true, proxy: func(f *forward) { f.close() }, by: leasehttp.Proxy},
		{name: "socks5 is down", scheme: "socks5", proxy: func(f *forward) { f.close() }, by: leasehttp.Proxy},
		{name: "wrong login", proxy: func(f *forward) { f.ask = true }, by: leasehttp.Proxy, status: 407},
		{name: "wrong login, TLS", secure: true, proxy: func(f *forward) { f.ask = true }, by: leasehttp.Proxy, status: 407},
		{name: "wrong login, socks5", scheme: "socks5", proxy: func(f *forward) { f.ask = true }, by: leasehttp.Proxy},
		{name: "a proxy's certificate", scheme: "https", distrust: true, by: leasehttp.Proxy},
		{name: "refused", secure: true, proxy: func(f *forward) {
			f.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }
		}, by: leasehttp.Proxy, status: 403},
		{name: "refused in clear, Squid", proxy: func(f *forward) {
			f.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Squid-Error", "ERR_ACCESS_DENIED 0")
				w.WriteHeader(http.StatusForbidden)
				return true
			}
		}, by: leasehttp.Proxy, status: 403},
		{name: "refused in clear, RFC 9209", proxy: func(f *forward) {
			f.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Proxy-Status", "proxyfleet; error=destination_ip_prohibited")
				w.WriteHeader(http.StatusForbidden)
				return true
			}
		}, by: leasehttp.Proxy, status: 403},
		{name: "proxy hangs up", proxy: func(f *forward) {
			f.answer = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		}, by: leasehttp.Proxy},
		{name: "proxy says nothing", secure: true, proxy: func(f *forward) {
			f.answer = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		}, by: leasehttp.Proxy, timeout: true},
		{name: "target is down, TLS", secure: true, request: elsewhere("https://127.0.0.1:1/"), by: leasehttp.Target, status: 502},
		{name: "target's certificate", secure: true, distrust: true, by: leasehttp.Target},
		{name: "target's certificate, socks5", scheme: "socks5", secure: true, distrust: true, by: leasehttp.Target},
		{name: "target says nothing", target: hang, by: leasehttp.Target, timeout: true},
		{name: "target says nothing, TLS", secure: true, target: hang, by: leasehttp.Target, timeout: true},
		{name: "target hangs up, TLS", secure: true, target: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, by: leasehttp.Target},
		{name: "target breaks off", target: breakOff, by: leasehttp.Target},
		{name: "target breaks off, TLS", secure: true, target: breakOff, by: leasehttp.Target},
		{name: "no such scheme", request: elsewhere("ftp://example.test/"), by: leasehttp.Client},
		{name: "no host", request: elsewhere("http:///x"), by: leasehttp.Client},
		{name: "bad header", request: func(r *http.Request) *http.Request { r.Header.Set("X", "a\nb"); return r }, by: leasehttp.Client},
		{name: "bad body", request: func(r *http.Request) *http.Request {
			b, _ := http.NewRequestWithContext(r.Context(), http.MethodPut, r.URL.String(), &broken{3})
			return b
		}, by: leasehttp.Client},
		{name: "body that never comes", request: func(r *http.Request) *http.Request {
			b, _ := http.NewRequestWithContext(r.Context(), http.MethodPut, r.URL.String(), &stuck{closed: make(chan struct{})})
			return b
		}, by: leasehttp.Target, timeout: true},
		{name: "gone", target: hang, request: func(r *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
			context.AfterFunc(ctx, cancel)
			return r.WithContext(ctx)
		}, by: leasehttp.Client, timeout: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.target == nil {
				test.target = site
			}
			if test.scheme == "" {
				test.scheme = "http"
			}
			target := newTarget(t, test.secure, test.target)
			f := newForward(t, test.scheme, "127.0.61.7")
			e := f.endpoint("berlin")
			e.User, e.Password = secret.New("nobody"), secret.New(password)
			if test.proxy != nil {
				test.proxy(f)
			}
			store := newStore(t, map[string]lease.Endpoint{"berlin": e})
			var log bytes.Buffer
			c := leasehttp.Config{Store: store, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			if test.timeout {
				c.Timeout = time.Second
			}
			if test.distrust {
				c.Base = &http.Transport{}
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target.URL, nil)
			if test.request != nil {
				r = test.request(r)
			}
			_, _, err := send(t, newTransport(t, c), r)
			failure, ok := errors.AsType[*leasehttp.Error](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if failure.By != test.by || failure.Status != test.status || failure.Timeout() != test.timeout {
				t.Errorf("%q is of %s with status %d, timeout %v; want %s, %d, %v",
					failure, failure.By, failure.Status, failure.Timeout(), test.by, test.status, test.timeout)
			}
			var want []string
			if test.by == leasehttp.Proxy {
				want = []string{"berlin failed"}
			}
			if diff := cmp.Diff(want, store.said()); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			if said := err.Error() + log.String(); strings.Contains(said, "planted") {
				t.Errorf("the password is in %s", said)
			}
			store.empty(t)
		})
	}
}

func elsewhere(url string) func(*http.Request) *http.Request {
	return func(r *http.Request) *http.Request {
		other, err := http.NewRequestWithContext(r.Context(), r.Method, url, nil)
		if err != nil {
			panic(err)
		}
		return other
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// breakOff promises more than it sends.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "not so much")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// TestBreakingOff makes sure that a response which breaks off is asked for again where the caller has not seen it yet.
func TestBreakingOff(t *testing.T) {
	const long = 100_000
	for name, test := range map[string]struct {
		buffer int
		again  bool
	}{"within what is read ahead": {0, true}, "after it": {10, false}} {
		t.Run(name, func(t *testing.T) {
			target := newTarget(t, false, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(long))
				_, _ = io.WriteString(w, strings.Repeat("x", long/2))
				_ = http.NewResponseController(w).Flush()
				if host, _, _ := net.SplitHostPort(r.RemoteAddr); host == "127.0.61.10" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, strings.Repeat("x", long/2))
			})
			_, endpoints := fleetOf(t, 2)
			store := newStore(t, endpoints)
			rt := newTransport(t, leasehttp.Config{Store: store, Buffer: test.buffer})
			resp, body, err := get(t, rt, target.URL)
			failure, failed := errors.AsType[*leasehttp.Error](err)
			if failed == test.again || failed && failure.By != leasehttp.Target {
				t.Errorf("error %v", err)
			}
			if test.again && (len(body) != long || leasehttp.Served(resp) != "default/b") {
				t.Errorf("%d bytes by %s", len(body), leasehttp.Served(resp))
			}
			want := []string{"b ok"}
			if !test.again {
				want = nil // nothing is well with a
			}
			if diff := cmp.Diff(want, store.said()); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			store.empty(t)
		})
	}
}

// TestHeldWhileRead makes sure that a lease lasts as long as its body, and ends with it, however that ends.
func TestHeldWhileRead(t *testing.T) {
	page := make([]byte, 3<<20)
	_, _ = rand.Read(page)
	target := newTarget(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	f := newForward(t, "http", "127.0.61.7")
	store := newStore(t, map[string]lease.Endpoint{"berlin": f.endpoint("berlin")})
	rt := newTransport(t, leasehttp.Config{Store: store})
	for name, end := range map[string]func(*http.Response){
		"read": func(resp *http.Response) {
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, page[2<<20:]) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
		},
		"closed":       func(resp *http.Response) { _ = resp.Body.Close() },
		"closed twice": func(resp *http.Response) { _ = resp.Body.Close(); _ = resp.Body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target.URL, nil)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 2<<20)); err != nil {
				t.Fatal(err)
			}
			if got := store.Counts()["default/berlin"]; got != 1 || len(store.said()) != 0 {
				t.Errorf("%d leases are open while the body is read", got)
			}
			end(resp)
			store.empty(t)
			if diff := cmp.Diff([]string{"berlin ok"}, store.said()); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			_ = resp.Body.Close()
		})
	}
}

// TestSmallBodies makes sure that the lease of a small response ends before its reader has begun.
func TestSmallBodies(t *testing.T) {
	target := newTarget(t, false, site)
	f := newForward(t, "http", "127.0.61.7")
	store := newStore(t, map[string]lease.Endpoint{"berlin": f.endpoint("berlin")})
	rt := newTransport(t, leasehttp.Config{Store: store})
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r, _ := http.NewRequestWithContext(t.Context(), method, target.URL, nil)
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		store.empty(t)
		if body, err := io.ReadAll(resp.Body); err != nil || (len(body) > 0) != (method == http.MethodGet) {
			t.Errorf("%s: %q %v", method, body, err)
		}
	}
}

// TestRedirects makes sure that each hop is leased for its own target.
func TestRedirects(t *testing.T) {
	var second string
	target := newTarget(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, second, http.StatusFound)
		}
	})
	second = strings.Replace(target.URL, "127.0.0.1", "localhost", 1) + "/there"
	f := newForward(t, "http", "127.0.0.1")
	store := newStore(t, map[string]lease.Endpoint{"berlin": f.endpoint("berlin")})
	client := &http.Client{Transport: newTransport(t, leasehttp.Config{Store: store}), Timeout: patience}
	resp, err := client.Get(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := leasehttp.Served(resp); resp.Request.URL.Path != "/there" || got != "default/berlin" {
		t.Errorf("%s by %q", resp.Request.URL, got)
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "localhost"}, store.targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	store.empty(t)
}

// TestSessions makes sure that a session stays with its proxy, and that requests outside of it do not.
func TestSessions(t *testing.T) {
	target := newTarget(t, false, site)
	_, endpoints := fleetOf(t, 3)
	m, err := lease.NewMemory(lease.Config{Policy: lease.Spread{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range endpoints {
		m.Set(lease.Candidate{Key: "default/" + name, Endpoint: e, MaxLeases: 10, Healthy: true})
	}
	rt := newTransport(t, leasehttp.Config{Store: m, Session: func(r *http.Request) string { return r.URL.Query().Get("user") }})
	served := map[string]map[string]bool{}
	for range 6 {
		for _, user := range []string{"", "", "anna", "bert"} {
			resp, _, err := get(t, rt, target.URL+"?user="+user)
			if err != nil {
				t.Fatal(err)
			}
			if served[user] == nil {
				served[user] = map[string]bool{}
			}
			served[user][leasehttp.Served(resp)] = true
		}
	}
	if len(served["anna"]) != 1 || len(served["bert"]) != 1 || len(served[""]) < 2 {
		t.Errorf("served by %v", served)
	}
}

func TestDomain(t *testing.T) {
	for url, want := range map[string]string{
		"https://example.com/":              "example.com",
		"https://www.example.com:8443/":     "example.com",
		"https://A.B.Example.CO.UK./":       "example.co.uk",
		"https://someone.github.io/":        "someone.github.io",
		"https://www.bücher.example/":       "xn--bcher-kva.example",
		"https://www.xn--bcher-kva.example": "xn--bcher-kva.example",
		"https://食狮.公司.cn/":                 "xn--85x722f.xn--55qx5d.cn",
		"http://localhost/":                 "localhost",
		"http://shop/":                      "shop",
		"http://co.uk/":                     "co.uk",
		"http://192.0.2.7:80/":              "192.0.2.7",
		"http://[2001:DB8::1]/":             "2001:db8::1",
		"http://under_score.example.com/":   "example.com",
	} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := leasehttp.Domain(r); got != want {
			t.Errorf("%s is %s, want %s", url, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	_, err := leasehttp.New(leasehttp.Config{TTL: -1, Timeout: -1, Base: &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil },
	}})
	for _, name := range []string{"Store", "TTL", "Timeout", "Base"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// TestNoSharedTLS makes sure that no TLS session is resumed through another proxy, whatever the settings say.
func TestNoSharedTLS(t *testing.T) {
	var resumed bool
	target := newTarget(t, true, func(_ http.ResponseWriter, r *http.Request) { resumed = resumed || r.TLS.DidResume })
	_, endpoints := fleetOf(t, 2)
	base := trusting(t)
	base.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	rt := newTransport(t, leasehttp.Config{Store: newStore(t, endpoints), Base: base})
	for range 3 {
		if _, _, err := get(t, rt, target.URL); err != nil {
			t.Fatal(err)
		}
	}
	if resumed {
		t.Error("a TLS session was resumed")
	}
}

// TestNothingIsLeft sends requests that end in many ways at once, and finds no goroutine, connection or lease of them later.
func TestNothingIsLeft(t *testing.T) {
	targets := []string{
		newTarget(t, true, site).URL, newTarget(t, false, site).URL, newTarget(t, true, hang).URL, newTarget(t, false, hang).URL,
		newTarget(t, true, breakOff).URL, newTarget(t, false, breakOff).URL, "https://127.0.0.1:1",
		newTarget(t, true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }).URL,
		newTarget(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }).URL,
	}
	store := newStore(t, nil)
	for i, scheme := range []string{"http", "https", "socks5"} {
		store.set(scheme, newForward(t, scheme, fmt.Sprintf("127.0.61.%d", 20+i)).endpoint(scheme))
	}
	rt := newTransport(t, leasehttp.Config{Store: store, Timeout: 200 * time.Millisecond, Buffer: 1000})
	before := goroutines()
	var all sync.WaitGroup
	for i := range 4 * len(targets) {
		all.Go(func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, targets[i%len(targets)], nil)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				return
			}
			if i%2 == 0 {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			_ = resp.Body.Close()
		})
	}
	all.Wait()
	store.empty(t)
	for end := time.Now().Add(patience); goroutines() > before; runtime.Gosched() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// goroutines counts those that have to do with a client's connections.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	text := string(stacks[:runtime.Stack(stacks, true)])
	n := 0
	for one := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains(one, "persistConn") || strings.Contains(one, "http2clientConnReadLoop") || strings.Contains(one, "http2ClientConn") || strings.Contains(one, "leasehttp.(*") {
			n++
		}
	}
	return n
}
