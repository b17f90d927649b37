package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// What the API shows of the fixtures.
const (
	berlin = `{"namespace":"default","name":"berlin","uid":"UID","generation":1,"observedGeneration":1,` +
		`"mode":"Managed","phase":"Ready","deleting":false,"conditions":[` +
		`{"type":"Healthy","status":"True","reason":"ProbeSucceeded","lastTransitionTime":"2026-01-02T03:02:00Z"},` +
		`{"type":"Provisioned","status":"True","reason":"Created","message":"runs since 03:04","lastTransitionTime":"2026-01-02T03:01:00Z"}],` +
		`"provider":"gcp","instanceID":"zones/europe-west3-a/instances/proxy-abc","host":"192.0.2.7","port":3128,"latencyMillis":87,` +
		`"lastHealthCheckTime":"2026-01-02T03:03:00Z","attributes":{"region":"eu","tier":""},"maxLeases":10,"activeLeases":2}`
	gateway = `{"namespace":"default","name":"gateway","uid":"UID","generation":1,"observedGeneration":1,` +
		`"mode":"External","phase":"Unhealthy","deleting":false,"conditions":[` +
		`{"type":"Healthy","status":"False","reason":"ProxyAuth","message":"the proxy refused the credentials",` +
		`"lastTransitionTime":"2026-01-02T03:02:00Z"}],` +
		`"host":"gw.example.net","port":1080,"attributes":{"region":"us"},"maxLeases":3,"activeLeases":0}`
	untouched = `{"namespace":"other","name":"new","uid":"UID","generation":1,"observedGeneration":0,` +
		`"mode":"Managed","phase":"Pending","deleting":false,"conditions":[],"provider":"local","attributes":{},"maxLeases":10,"activeLeases":0}`
	leaving = `{"namespace":"other","name":"old","uid":"UID","generation":1,"observedGeneration":0,` +
		`"mode":"Managed","phase":"Ready","deleting":true,"conditions":[],"provider":"local","attributes":{"region":"eu"},"maxLeases":10,"activeLeases":0}`
	leased = `"leaseID":"lease-1","proxy":{"url":"http://us%20&er:pass%3Aw0rd%2F%40%25@192.0.2.7:3128","host":"192.0.2.7","port":3128,` +
		`"name":"berlin","namespace":"default","attributes":{"region":"eu"}},"target":"example.com","expiresAt":"2026-01-02T03:04:05.678Z","ttlSeconds":300`
)

func failure(code, message string) string {
	return fmt.Sprintf(`{"error":%q,"message":%q}`, code, message)
}

// said is the message for an error of the lease store.
func said(err error) string { return strings.TrimPrefix(err.Error(), "lease: ") }

func TestRoutes(t *testing.T) {
	lost := errors.New("disk on fire at /var/lib/secret-place")
	internal := failure("internal", "the server failed; its log says why")
	tests := []struct {
		name    string
		target  string
		body    string
		with    func(*discovery.Config)
		refuse  error // what the lease store answers
		status  int
		want    string // body
		headers map[string]string
	}{
		{name: "alive", target: "GET /healthz", status: 200, want: "ok", headers: map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		{name: "ready", target: "GET /readyz", status: 200, want: "ok"},
		{
			name: "not ready", target: "GET /readyz",
			with: func(c *discovery.Config) {
				c.Ready = func(context.Context) error { return errors.New("the lease log is being read") }
			},
			status: 503, want: failure("not_ready", "not ready: the lease log is being read"), headers: map[string]string{"Retry-After": "1"},
		},

		{
			name: "list", target: "GET /v1/proxies", status: 200,
			want:    `{"proxies":[` + berlin + `,` + gateway + `,` + untouched + `,` + leaving + `],"count":4}`,
			headers: map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
		},
		{name: "list by attribute", target: "GET /v1/proxies?attr.region=us", status: 200, want: `{"proxies":[` + gateway + `],"count":1}`},
		{name: "list by all of two attributes", target: "GET /v1/proxies?attr.region=eu&attr.tier=", status: 200, want: `{"proxies":[` + berlin + `],"count":1}`},
		{name: "list what can be leased", target: "GET /v1/proxies?healthy=true", status: 200, want: `{"proxies":[` + berlin + `],"count":1}`},
		{
			name: "list what cannot", target: "GET /v1/proxies?healthy=false", status: 200,
			want: `{"proxies":[` + gateway + `,` + untouched + `,` + leaving + `],"count":3}`,
		},
		{name: "list a namespace", target: "GET /v1/proxies?namespace=other", status: 200, want: `{"proxies":[` + untouched + `,` + leaving + `],"count":2}`},
		{name: "list nothing", target: "GET /v1/proxies?attr.region=mars", status: 200, want: `{"proxies":[],"count":0}`},
		{
			name: "list the first page", target: "GET /v1/proxies?limit=1&namespace=default", status: 200,
			want: `{"proxies":[` + berlin + `],"count":2,"continue":"ZGVmYXVsdC9iZXJsaW4"}`,
		},
		{
			name: "list the last page", target: "GET /v1/proxies?limit=1&namespace=default&continue=ZGVmYXVsdC9iZXJsaW4", status: 200,
			want: `{"proxies":[` + gateway + `],"count":2}`,
		},
		{name: "list of a broken store", target: "GET /v1/proxies", with: func(c *discovery.Config) { c.Proxies = brokenStore{} }, status: 500, want: internal},

		{name: "show", target: "GET /v1/proxies/default/berlin", status: 200, want: berlin},
		{name: "show the unknown", target: "GET /v1/proxies/default/paris", status: 404, want: failure("unknown_proxy", "default/paris: proxy not found")},
		{name: "show of a broken store", target: "GET /v1/proxies/default/berlin", with: func(c *discovery.Config) { c.Proxies = brokenStore{} }, status: 500, want: internal},
		{name: "skip cleanup", target: "POST /v1/proxies/default/berlin/skip-cleanup", status: 200, want: berlin},
		{name: "skip cleanup of the unknown", target: "POST /v1/proxies/default/paris/skip-cleanup", status: 404, want: failure("unknown_proxy", "default/paris: proxy not found")},
		{name: "retry", target: "POST /v1/proxies/default/berlin/retry", status: 200, want: berlin},
		{name: "retry of the unknown", target: "POST /v1/proxies/default/paris/retry", status: 404, want: failure("unknown_proxy", "default/paris: proxy not found")},
		{
			name: "retry of what others always change", target: "POST /v1/proxies/default/berlin/retry",
			with:   func(c *discovery.Config) { c.Proxies = contestedStore{c.Proxies} },
			status: 503, want: failure("timeout", "the request ended before it was done"),
		},

		{name: "acquire", target: "POST /v1/leases", body: `{}`, status: 201, want: `{` + leased + `,"moved":false}`, headers: map[string]string{"Cache-Control": "no-store"}},
		{
			name: "acquire two", target: "POST /v1/leases", body: `{"count":2,"session":"s"}`,
			with: func(c *discovery.Config) {
				c.Leases = &leases{grant: lease.Grant{Moved: true, Leases: []lease.Lease{oneLease("lease-1"), oneLease("lease-2")}}}
			},
			status: 201, want: `{` + leased + `,"moved":true,"leases":[{` + leased + `},{` + strings.Replace(leased, "lease-1", "lease-2", 1) + `}]}`,
		},
		{
			name: "acquire without credentials or attributes", target: "POST /v1/leases", body: `{}`,
			with: func(c *discovery.Config) {
				c.Leases = &leases{grant: lease.Grant{Leases: []lease.Lease{{
					ID: "l", Proxy: lease.Endpoint{Namespace: "n", Name: "p", Scheme: "socks5", Host: "2001:db8::1", Port: 1080},
				}}}}
			},
			status: 201,
			want: `{"leaseID":"l","proxy":{"url":"socks5://[2001:db8::1]:1080","host":"2001:db8::1","port":1080,"name":"p","namespace":"n","attributes":{}},` +
				`"expiresAt":"0001-01-01T00:00:00Z","ttlSeconds":0,"moved":false}`,
		},
		{
			name: "acquire of a store that answers nothing", target: "POST /v1/leases", body: `{}`,
			with:   func(c *discovery.Config) { c.Leases = &leases{} },
			status: 500, want: internal,
		},
		{
			name: "no match", target: "POST /v1/leases", body: `{}`,
			refuse: &lease.NoMatch{Considered: 10, AtCapacity: 1, InCooldown: 2, Unhealthy: 3, Eligible: 4, RetryAfter: 1500 * time.Millisecond},
			status: 409,
			want: `{"error":"no_match","message":"no proxy is free: of 10 that match, 3 not ready, 1 at capacity, 2 in cooldown, 4 eligible",` +
				`"considered":10,"atCapacity":1,"inCooldown":2,"unhealthy":3,"eligible":4,"retryAfterSeconds":2}`,
			headers: map[string]string{"Retry-After": "2"},
		},
		{
			name: "no match, and nobody knows until when", target: "POST /v1/leases", body: `{}`, refuse: &lease.NoMatch{}, status: 409,
			want:    `{"error":"no_match","message":"no proxy matches the selector","considered":0,"atCapacity":0,"inCooldown":0,"unhealthy":0,"eligible":0}`,
			headers: map[string]string{"Retry-After": ""},
		},
		{
			name: "ttl above the maximum", target: "POST /v1/leases", body: `{"ttlSeconds":604800}`,
			refuse: fmt.Errorf("%w: 168h0m0s, maximum 1h0m0s", lease.ErrTTL),
			status: 400, want: failure("invalid_ttl", said(lease.ErrTTL)+": 168h0m0s, maximum 1h0m0s"),
		},
		{name: "request ID of another request", target: "POST /v1/leases", body: `{}`, refuse: lease.ErrRequestMismatch, status: 422, want: failure("request_mismatch", said(lease.ErrRequestMismatch))},
		{name: "not supported", target: "POST /v1/leases", body: `{"waitSeconds":1}`, refuse: lease.ErrNotSupported, status: 501, want: failure("not_supported", said(lease.ErrNotSupported)+": waitSeconds")},
		{
			name: "nothing of it supported", target: "POST /v1/leases", body: `{"session":"s","count":2,"waitSeconds":1}`, refuse: lease.ErrNotSupported,
			status: 501, want: failure("not_supported", said(lease.ErrNotSupported)+": session, count above 1, waitSeconds"),
		},
		{name: "not supported for another reason", target: "POST /v1/leases", body: `{"count":1}`, refuse: lease.ErrNotSupported, status: 501, want: failure("not_supported", said(lease.ErrNotSupported))},
		{
			name: "another process leads", target: "POST /v1/leases", body: `{}`, refuse: lease.ErrNotReady,
			status: 503, want: failure("not_ready", said(lease.ErrNotReady)), headers: map[string]string{"Retry-After": "5"},
		},
		{
			name: "acquire before the proxies are known", target: "POST /v1/leases", body: `{}`, with: unready, refuse: &lease.NoMatch{},
			status: 503, want: failure("not_ready", "not ready: the records are being read"), headers: map[string]string{"Retry-After": "1"},
		},
		{name: "acquire fails", target: "POST /v1/leases", body: `{}`, refuse: lost, status: 500, want: internal},
		{name: "acquire is given up", target: "POST /v1/leases", body: `{}`, refuse: context.Canceled, status: 503, want: failure("timeout", "the request ended before it was done")},

		{name: "renew", target: "POST /v1/leases/lease-1/renew", body: `{"ttlSeconds":60}`, status: 200, want: `{` + leased + `}`},
		{name: "renew the unknown", target: "POST /v1/leases/x/renew", body: `{}`, refuse: lease.ErrUnknown, status: 404, want: failure("unknown_lease", said(lease.ErrUnknown))},
		{name: "renew what is gone", target: "POST /v1/leases/x/renew", body: `{}`, refuse: lease.ErrProxyGone, status: 410, want: failure("proxy_gone", said(lease.ErrProxyGone))},
		{name: "renew for too long", target: "POST /v1/leases/x/renew", body: `{"ttlSeconds":604800}`, refuse: lease.ErrTTL, status: 400, want: failure("invalid_ttl", said(lease.ErrTTL))},
		{name: "renew elsewhere", target: "POST /v1/leases/x/renew", body: `{}`, refuse: lease.ErrNotReady, status: 503, want: failure("not_ready", said(lease.ErrNotReady))},
		{
			name: "renew before the proxies are known", target: "POST /v1/leases/x/renew", body: `{}`, with: unready, refuse: lease.ErrProxyGone,
			status: 503, want: failure("not_ready", "not ready: the records are being read"), headers: map[string]string{"Retry-After": "1"},
		},
		{name: "renew fails", target: "POST /v1/leases/x/renew", body: `{}`, refuse: lost, status: 500, want: internal},

		{name: "report", target: "POST /v1/leases/lease-1/report", body: `{"result":"banned","target":"example.com"}`, status: 204},
		{name: "report nonsense", target: "POST /v1/leases/x/report", body: `{"result":"meh"}`, refuse: lease.ErrInvalidResult, status: 400, want: failure("invalid_result", "result must be ok, rate_limited, banned or failed")},
		{name: "report on the unknown", target: "POST /v1/leases/x/report", body: `{"result":"ok"}`, refuse: lease.ErrUnknown, status: 404, want: failure("unknown_lease", said(lease.ErrUnknown))},
		{name: "report elsewhere", target: "POST /v1/leases/x/report", body: `{"result":"ok"}`, refuse: lease.ErrNotReady, status: 503, want: failure("not_ready", said(lease.ErrNotReady))},
		{
			name: "report before the proxies are known", target: "POST /v1/leases/x/report", body: `{"result":"ok"}`, with: unready,
			status: 503, want: failure("not_ready", "not ready: the records are being read"), headers: map[string]string{"Retry-After": "1"},
		},
		{name: "report fails", target: "POST /v1/leases/x/report", body: `{"result":"ok"}`, refuse: lost, status: 500, want: internal},

		{name: "release", target: "DELETE /v1/leases/lease-1", status: 204},
		{name: "release elsewhere", target: "DELETE /v1/leases/x", refuse: lease.ErrNotReady, status: 503, want: failure("not_ready", said(lease.ErrNotReady))},
		{name: "release fails", target: "DELETE /v1/leases/x", refuse: lost, status: 500, want: internal},

		{
			name: "backup", target: "GET /v1/backup",
			with:   func(c *discovery.Config) { c.Backup = func(w io.Writer) error { return write(w, "state") } },
			status: 200, want: "state", headers: map[string]string{"Content-Type": "application/octet-stream", "Cache-Control": "no-store"},
		},
		{name: "no backup", target: "GET /v1/backup", status: 501, want: failure("not_supported", "this fleet keeps no state that could be backed up here")},
		{name: "backup fails at once", target: "GET /v1/backup", with: func(c *discovery.Config) { c.Backup = func(io.Writer) error { return lost } }, status: 500, want: internal},

		{name: "no such path", target: "GET /v2/proxies", status: 404, want: failure("not_found", "the API has no such path")},
		{name: "the root, for more than a look", target: "POST /", status: 405, want: failure("method_not_allowed", "this path takes GET, HEAD only")},
		{
			name: "no such method", target: "PUT /v1/leases", status: 405, want: failure("method_not_allowed", "this path takes POST only"),
			headers: map[string]string{"Allow": "POST", "Content-Type": "application/json"},
		},
		{
			name: "no such method of a list", target: "DELETE /v1/proxies", status: 405, want: failure("method_not_allowed", "this path takes GET, HEAD only"),
			headers: map[string]string{"Allow": "GET, HEAD"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(t)
				if test.refuse != nil {
					c.Leases = &leases{err: test.refuse}
				}
				if test.with != nil {
					test.with(&c)
				}
				got := serve(t, handler(t, c), request(t, test.target, test.body))
				if got.Code != test.status {
					t.Errorf("status %d, want %d", got.Code, test.status)
				}
				if diff := cmp.Diff(test.want, plain(t, got.Body.String())); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				for name, want := range test.headers {
					if value := got.Header().Get(name); value != want {
						t.Errorf("%s is %q, want %q", name, value, want)
					}
				}
			})
		})
	}
}

// plain returns a body as the table has it, where the UIDs of the fixtures are not spelled out.
func plain(t *testing.T, body string) string {
	t.Helper()
	all, err := store(t).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		body = strings.ReplaceAll(body, `"name":"`+p.Name+`","uid":"`+p.UID+`"`, `"name":"`+p.Name+`","uid":"UID"`)
	}
	return strings.TrimSuffix(body, "\n")
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}

func TestRequestsReachTheLeaseStore(t *testing.T) {
	c := config(t)
	store := c.Leases.(*leases)
	h := handler(t, c)

	body := `{"selector":{"region":"eu"},"target":"example.com","ttlSeconds":90,"requestID":"r","session":"s","count":3,"waitSeconds":7}`
	serve(t, h, request(t, "POST /v1/leases", body))
	want := lease.Request{
		ID: "r", Selector: map[string]string{"region": "eu"}, Target: "example.com",
		TTL: 90 * time.Second, Wait: 7 * time.Second, Session: "s", Count: 3,
	}
	if diff := cmp.Diff(want, store.request); diff != "" {
		t.Errorf("acquire (-want +got):\n%s", diff)
	}

	serve(t, h, request(t, "POST /v1/leases/a%2Fb/renew", `{"ttlSeconds":60}`))
	if store.id != "a/b" || store.ttl != time.Minute {
		t.Errorf("renew got %q, %v", store.id, store.ttl)
	}
	serve(t, h, request(t, "POST /v1/leases/c/report", `{"result":"banned","target":"example.org"}`))
	if diff := cmp.Diff(lease.Report{Outcome: lease.Banned, Target: "example.org"}, store.report); diff != "" || store.id != "c" {
		t.Errorf("report got %q (-want +got):\n%s", store.id, diff)
	}
	serve(t, h, request(t, "DELETE /v1/leases/d", ""))
	if store.id != "d" {
		t.Errorf("release got %q", store.id)
	}

	for text, sign := range map[string]time.Duration{"9223372036854775807": 1, "-9223372036854775808": -1} {
		serve(t, h, request(t, "POST /v1/leases", `{"ttlSeconds":`+text+`}`))
		if sign*store.request.TTL < 1000*time.Hour {
			t.Errorf("%s seconds turned into %v", text, store.request.TTL)
		}
	}
}

func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		h := handler(t, c)
		annotation := func(name string) string {
			p, err := c.Proxies.Get(t.Context(), proxy.Key{Namespace: "default", Name: "berlin"})
			if err != nil {
				t.Fatal(err)
			}
			return p.Annotations[name]
		}
		serve(t, h, request(t, "POST /v1/proxies/default/berlin/skip-cleanup", ""))
		if got := annotation(proxy.SkipCleanupAnnotation); got != "true" {
			t.Errorf("skip-cleanup is %q", got)
		}
		serve(t, h, request(t, "POST /v1/proxies/default/berlin/retry", ""))
		first := annotation(proxy.RetryAnnotation)
		time.Sleep(time.Microsecond)
		serve(t, h, request(t, "POST /v1/proxies/default/berlin/retry", ""))
		if second := annotation(proxy.RetryAnnotation); first == "" || second == first {
			t.Errorf("retry asked with %q, then with %q", first, second)
		}
	})
}

func TestHeadHasTheHeadersOfGet(t *testing.T) {
	got := serve(t, handler(t, config(t)), request(t, "HEAD /v1/proxies", ""))
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("HEAD got %d, %v", got.Code, got.Header())
	}
}

// There is one path for each thing, and no answer but JSON: what only looks like a path is not there.
func TestOddPaths(t *testing.T) {
	h := handler(t, config(t))
	for _, path := range []string{"//v1/leases", "/v1//leases", "/v1/./leases", "/v1/proxies/../leases", "/v1/leases/", "//healthz", "/./readyz"} {
		for _, method := range []string{"GET", "POST"} {
			r := request(t, method+" /", "{}")
			r.URL.Path = path
			got := serve(t, h, r)
			if diff := cmp.Diff(failure("not_found", "the API has no such path"), strings.TrimSpace(got.Body.String())); got.Code != 404 || diff != "" {
				t.Errorf("%s %s: status %d (-want +got):\n%s", method, path, got.Code, diff)
			}
		}
	}
}

// unready is a configuration of a process that has just started.
func unready(c *discovery.Config) {
	c.Ready = func(context.Context) error { return errors.New("the records are being read") }
}
