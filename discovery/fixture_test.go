package discovery_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// password is planted wherever a credential can be.
const password = "pass:w0rd/@%"

// leases is a lease store that answers as it is told and notes what it was asked.
type leases struct {
	grant   lease.Grant
	err     error
	request lease.Request
	id      string
	ttl     time.Duration
	report  lease.Report
}

func (l *leases) Acquire(_ context.Context, r lease.Request) (lease.Grant, error) {
	l.request = r
	return l.grant, l.err
}

func (l *leases) Renew(_ context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	l.id, l.ttl = id, ttl
	if l.err != nil {
		return lease.Lease{}, l.err
	}
	return l.grant.Leases[0], nil
}

func (l *leases) Release(_ context.Context, id string) error {
	l.id = id
	return l.err
}

func (l *leases) Report(_ context.Context, id string, r lease.Report) error {
	l.id, l.report = id, r
	return l.err
}

// oneLease is a lease of a proxy with credentials that are hard to write into a URL.
func oneLease(id string) lease.Lease {
	return lease.Lease{
		ID: id,
		Proxy: lease.Endpoint{
			Namespace: "default", Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 3128,
			User: secret.New("us &er"), Password: secret.New(password),
			Attributes: map[string]string{"region": "eu"},
		},
		Target:  "example.com",
		Expires: time.Date(2026, 1, 2, 3, 4, 5, 678_999_000, time.UTC),
		TTL:     5 * time.Minute,
	}
}

// brokenStore fails at everything.
type brokenStore struct{ proxy.Store }

func (brokenStore) Get(context.Context, proxy.Key) (*proxy.Proxy, error) {
	return nil, io.ErrClosedPipe
}

func (brokenStore) List(context.Context) ([]*proxy.Proxy, error) { return nil, io.ErrClosedPipe }

// contestedStore is one whose records always changed meanwhile.
type contestedStore struct{ proxy.Store }

func (contestedStore) UpdateMeta(context.Context, *proxy.Proxy) (*proxy.Proxy, error) {
	return nil, proxy.ErrConflict
}

// store holds a managed proxy that is Ready, an external one that is not, one of another namespace that nobody has looked
// at, and one that is Ready and on its way out.
func store(t testing.TB) *proxy.Memory {
	t.Helper()
	m := proxy.NewMemory(proxy.MemoryConfig{Fleet: "test"})
	put(t, m, proxy.Key{Namespace: "default", Name: "berlin"}, proxy.Spec{
		Provider:    "gcp",
		Placement:   proxy.Placement{Zone: "europe-west3-a"},
		CloudInit:   &proxy.CloudInit{Inline: "#cloud-config\npassword: " + password},
		Credentials: &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "berlin-login"}},
		Attributes:  map[string]string{"region": "eu", "tier": ""},
	}, proxy.Status{
		Phase: proxy.Ready,
		Conditions: []proxy.Condition{
			{Type: proxy.Healthy, Status: proxy.True, Reason: "ProbeSucceeded", LastTransitionTime: at(2)},
			{Type: proxy.Provisioned, Status: proxy.True, Reason: "Created", Message: "runs since 03:04", LastTransitionTime: at(1)},
		},
		Instance: proxy.Instance{
			Provider: "gcp", ID: "zones/europe-west3-a/instances/proxy-abc", Incarnation: "42", Host: "192.0.2.7", Port: 3128, Hash: "v1-digest",
		},
		LatencyMillis: 87, LastHealthCheckTime: at(3), ObservedGeneration: 1,
	})
	put(t, m, proxy.Key{Namespace: "default", Name: "gateway"}, proxy.Spec{
		Mode:       proxy.External,
		Endpoint:   &proxy.Endpoint{Scheme: proxy.SOCKS5, Host: "gw.example.net", Port: 1080},
		Attributes: map[string]string{"region": "us"},
		MaxLeases:  3,
	}, proxy.Status{
		Phase: proxy.Unhealthy,
		Conditions: []proxy.Condition{
			{Type: proxy.Healthy, Status: proxy.False, Reason: "ProxyAuth", Message: "the proxy refused the credentials", LastTransitionTime: at(2)},
		},
		Instance: proxy.Instance{Host: "gw.example.net", Port: 1080}, ObservedGeneration: 1,
	})
	put(t, m, proxy.Key{Namespace: "other", Name: "new"}, proxy.Spec{Provider: "local"}, proxy.Status{})
	leaving := proxy.Key{Namespace: "other", Name: "old"}
	put(t, m, leaving, proxy.Spec{Provider: "local", Attributes: map[string]string{"region": "eu"}}, proxy.Status{Phase: proxy.Ready})
	if err := m.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	return m
}

func put(t testing.TB, m *proxy.Memory, k proxy.Key, spec proxy.Spec, status proxy.Status) {
	t.Helper()
	// What kubectl notes of the last apply is the whole document, user data included.
	annotations := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": password}
	p, err := m.Put(t.Context(), k, proxy.Declaration{Spec: spec, Annotations: annotations}, "test")
	if err != nil {
		t.Fatal(err)
	}
	p.Finalizer = true
	if p, err = m.UpdateMeta(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Status = status
	if _, err = m.UpdateStatus(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func at(minute int) proxy.Time {
	return proxy.At(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))
}

// config is of a handler over the fixtures.
func config(t testing.TB) discovery.Config {
	t.Helper()
	return discovery.Config{
		Proxies:      store(t),
		Leases:       &leases{grant: lease.Grant{Leases: []lease.Lease{oneLease("lease-1")}}},
		ActiveLeases: func() map[string]int { return map[string]int{"default/berlin": 2} },
	}
}

func handler(t testing.TB, c discovery.Config) http.Handler {
	t.Helper()
	h, err := discovery.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// request is one to localhost. A target is "GET /path".
func request(t testing.TB, target, body string) *http.Request {
	t.Helper()
	method, path, _ := strings.Cut(target, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host = "localhost:8090"
	return r
}

func serve(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// logTo is a logger that writes all it gets into a buffer.
func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
