package discovery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/proxy"
)

// explaining returns the function of a handler that explains the proxies of its store with what is known beside them.
func explaining(c discovery.Config, known discovery.Explanation) func(context.Context, proxy.Key) (discovery.Explanation, error) {
	return func(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
		p, err := c.Proxies.Get(ctx, k)
		if err != nil {
			return discovery.Explanation{}, err
		}
		known.Proxy = p
		return known, nil
	}
}

// Whose edit is not followed sees both providers, everywhere.
func TestDeclaredProvider(t *testing.T) {
	c := config(t)
	k := proxy.Key{Namespace: "default", Name: "berlin"}
	if _, err := c.Proxies.(*proxy.Memory).Put(t.Context(), k, proxy.Declaration{Spec: proxy.Spec{Provider: "kvm"}}, "test"); err != nil {
		t.Fatal(err)
	}
	c.Explain = explaining(c, discovery.Explanation{})
	h := handler(t, c)
	for _, target := range []string{"GET /v1/proxies", "GET /v1/proxies/default/berlin", "GET /v1/proxies/default/berlin/explain"} {
		if body := plain(t, serve(t, h, request(t, target, "")).Body.String()); !strings.Contains(body, `"provider":"gcp","declaredProvider":"kvm"`) {
			t.Errorf("%s: %s", target, body)
		}
	}
	if body := serve(t, h, request(t, "GET /proxies/default/berlin", "")).Body.String(); !strings.Contains(body, "Declared provider") || !strings.Contains(body, "kvm") {
		t.Errorf("the page: %s", body)
	}
}

// What providers write has no bound, and what the API answers has one.
func TestExplainClips(t *testing.T) {
	page := strings.Repeat("<p>\xff", 2<<20)
	c := config(t)
	c.Explain = explaining(c, discovery.Explanation{
		Problem:  errors.New(page),
		Observed: &discovery.Observation{State: "Stopped", Reason: page, Message: page, Err: errors.New(page)},
		LastPass: &discovery.Pass{Err: errors.New(page)},
	})
	h := handler(t, c)
	for _, target := range []string{"GET /v1/proxies/default/berlin/explain", "GET /proxies/default/berlin"} {
		if got := serve(t, h, request(t, target, "")); got.Code != 200 || got.Body.Len() > 64<<10 || !strings.Contains(got.Body.String(), "…") {
			t.Errorf("%s: status %d, %d bytes", target, got.Code, got.Body.Len())
		}
	}
}

// TestExplain looks at all that an explanation can have, at one that has nothing beside the record, and at its errors.
func TestExplain(t *testing.T) {
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("CET", 3600))
	everything := discovery.Explanation{
		At: moment.Add(time.Second), Problem: errors.New("placement.zone: no such zone"), Outdated: true, Backoff: moment.Add(2 * time.Minute),
		Observed: &discovery.Observation{
			State: "Running", Incarnation: "42", Host: "192.0.2.7", Port: 3128, Reason: "Migrating", Message: "to another host",
		},
		Verdict: "unhealthy",
		Probes: []discovery.Probe{
			{At: moment, Party: "target", Message: "the target hung up", Latency: 1500 * time.Millisecond},
			{At: moment.Add(-time.Minute), OK: true, Latency: 87 * time.Millisecond, StatusCode: 204},
		},
		Leases:    []discovery.OpenLease{{Target: "example.com", Granted: moment, Expires: moment.Add(time.Minute)}, {Expires: moment}},
		Cooldowns: []discovery.Cooldown{{Target: "example.org", Until: moment}, {Until: moment, HalfOpen: true}},
		LastPass:  &discovery.Pass{At: moment, Took: 12 * time.Millisecond, Err: errors.New("quota"), Next: moment.Add(time.Minute)},
	}
	tests := []struct {
		name   string
		proxy  string
		known  discovery.Explanation
		status int
		want   string
	}{
		{
			name: "everything", proxy: "default/berlin", known: everything, status: 200,
			want: `{"at":"2026-01-02T02:04:06.678Z","proxy":` + berlin +
				`,"problem":"placement.zone: no such zone","outdated":true,"backoff":"2026-01-02T02:06:05.678Z"` +
				`,"instance":{"provider":"gcp","id":"zones/europe-west3-a/instances/proxy-abc","incarnation":"42"}` +
				`,"observed":{"state":"Running","incarnation":"42","host":"192.0.2.7","port":3128,"reason":"Migrating","message":"to another host"}` +
				`,"verdict":"unhealthy","probes":[{"at":"2026-01-02T02:04:05.678Z","ok":false,"party":"target","message":"the target hung up","latencyMillis":1500},` +
				`{"at":"2026-01-02T02:03:05.678Z","ok":true,"latencyMillis":87,"statusCode":204}]` +
				`,"leases":[{"target":"example.com","grantedAt":"2026-01-02T02:04:05.678Z","expiresAt":"2026-01-02T02:05:05.678Z"},{"expiresAt":"2026-01-02T02:04:05.678Z"}]` +
				`,"cooldowns":[{"target":"example.org","until":"2026-01-02T02:04:05.678Z","state":"cooling"},{"until":"2026-01-02T02:04:05.678Z","state":"half-open"}]` +
				`,"lastPass":{"at":"2026-01-02T02:04:05.678Z","tookMillis":12,"error":"quota","next":"2026-01-02T02:05:05.678Z"}}`,
		},
		{
			name: "nothing", proxy: "other/new", status: 200,
			want: `{"at":"2000-01-01T00:00:00Z","proxy":` + untouched + `,"outdated":false,"probes":[],"leases":[],"cooldowns":[]}`,
		},
		{
			name: "what could not be observed", proxy: "other/new", status: 200,
			known: discovery.Explanation{Observed: &discovery.Observation{Err: errors.New("get: the project is gone")}, LastPass: &discovery.Pass{At: moment}},
			want: `{"at":"2000-01-01T00:00:00Z","proxy":` + untouched +
				`,"outdated":false,"observed":{"error":"get: the project is gone"},"probes":[],"leases":[],"cooldowns":[],"lastPass":{"at":"2026-01-02T02:04:05.678Z","tookMillis":0}}`,
		},
		{
			name: "an endpoint that nobody has to make", proxy: "default/gateway", status: 200,
			want: `{"at":"2000-01-01T00:00:00Z","proxy":` + gateway + `,"outdated":false,"probes":[],"leases":[],"cooldowns":[]}`,
		},
		{name: "unknown", proxy: "default/paris", status: 404, want: failure("unknown_proxy", "default/paris: proxy not found")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(t)
				c.Explain = explaining(c, test.known)
				got := serve(t, handler(t, c), request(t, "GET /v1/proxies/"+test.proxy+"/explain", ""))
				if got.Code != test.status {
					t.Errorf("status %d, want %d", got.Code, test.status)
				}
				if diff := cmp.Diff(test.want, plain(t, got.Body.String())); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An instance that was tried shows when it is tried again, and nothing shows the digest of its inputs.
func TestExplainAttempts(t *testing.T) {
	c := config(t)
	k := proxy.Key{Namespace: "other", Name: "failing"}
	put(t, c.Proxies.(*proxy.Memory), k, proxy.Spec{Provider: "gcp"}, proxy.Status{Instance: proxy.Instance{
		Provider: "gcp", ID: "i", Incarnation: "43", Retiring: "42", Attempt: 3, Planned: at(1), Retry: at(2), Hash: "v1-digest", Asked: "asked",
	}})
	c.Explain = explaining(c, discovery.Explanation{})
	got := serve(t, handler(t, c), request(t, "GET /v1/proxies/other/failing/explain", "")).Body.String()
	want := `"instance":{"provider":"gcp","id":"i","incarnation":"43","attempt":3,"planned":"2026-01-02T03:01:00Z","retry":"2026-01-02T03:02:00Z","retiring":"42"}`
	if !strings.Contains(got, want) || strings.Contains(got, "digest") || strings.Contains(got, password) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

// A provider that hangs does not hang the one who asks.
func TestExplainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		c.Explain = func(ctx context.Context, _ proxy.Key) (discovery.Explanation, error) {
			<-ctx.Done()
			return discovery.Explanation{}, ctx.Err()
		}
		start := time.Now()
		got := serve(t, handler(t, c), request(t, "GET /v1/proxies/default/berlin/explain", ""))
		if took := time.Since(start); got.Code != 503 || took != 15*time.Second {
			t.Errorf("status %d after %v, want 503 after 15s", got.Code, took)
		}
	})
}
