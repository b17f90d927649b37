package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// serve starts a server of the API and makes a client of it.
func serve(t testing.TB, c discovery.Config) *client.Client {
	t.Helper()
	if c.Proxies == nil {
		c.Proxies = proxy.NewMemory(proxy.MemoryConfig{})
	}
	if c.Leases == nil {
		c.Leases = fixed{}
	}
	h, err := discovery.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return newClient(t, client.Config{BaseURL: server.URL, Token: c.Token})
}

// fixed is a lease store that always answers the same.
type fixed struct {
	grant lease.Grant
	err   error
}

func (f fixed) Acquire(context.Context, lease.Request) (lease.Grant, error) { return f.grant, f.err }

func (f fixed) Renew(context.Context, string, time.Duration) (lease.Lease, error) {
	if f.err != nil {
		return lease.Lease{}, f.err
	}
	return f.grant.Leases[0], nil
}

func (f fixed) Release(context.Context, string) error { return f.err }

func (f fixed) Report(context.Context, string, lease.Report) error { return f.err }

// TestErrorsSurvive makes sure that whoever leases over HTTP learns what one who leases in-process would.
func TestErrorsSurvive(t *testing.T) {
	sentinels := []error{
		lease.ErrUnknown, lease.ErrProxyGone, lease.ErrTTL, lease.ErrInvalidResult,
		lease.ErrRequestMismatch, lease.ErrNotSupported, lease.ErrNotReady,
	}
	for _, want := range sentinels {
		t.Run(want.Error(), func(t *testing.T) {
			c := serve(t, discovery.Config{Leases: fixed{err: fmt.Errorf("%w: details", want)}})
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // a server is asked again after 5
			defer cancel()
			_, acquired := c.Acquire(ctx, lease.Request{})
			_, renewed := c.Renew(ctx, "x", 0)
			errs := map[string]error{
				"acquire": acquired, "renew": renewed,
				"release": c.Release(ctx, "x"), "report": c.Report(ctx, "x", lease.Report{}),
			}
			for call, got := range errs {
				for _, s := range sentinels {
					if errors.Is(got, s) != (s == want) {
						t.Errorf("%s: %v is %v: %v", call, got, s, s != want)
					}
				}
				if e, ok := errors.AsType[*client.APIError](got); !ok || e.Status < 400 || e.Code == "" {
					t.Errorf("%s: %#v is no APIError", call, got)
				}
			}
		})
	}
}

func TestNoMatchSurvives(t *testing.T) {
	want := &lease.NoMatch{Considered: 10, AtCapacity: 1, InCooldown: 2, Unhealthy: 3, Eligible: 4, RetryAfter: 7 * time.Second}
	c := serve(t, discovery.Config{Leases: fixed{err: want}})
	_, err := c.Acquire(t.Context(), lease.Request{})
	got, ok := errors.AsType[*lease.NoMatch](err)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRetryAfterSurvives(t *testing.T) {
	c := serve(t, discovery.Config{Leases: fixed{err: lease.ErrNotReady}})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	err := c.Release(ctx, "x")
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.RetryAfter != 5*time.Second {
		t.Errorf("error %#v", err)
	}
}

func TestOtherErrors(t *testing.T) {
	tests := []struct {
		name   string
		call   func(context.Context, *client.Client) error
		status int
		code   string
	}{
		{"failure", func(ctx context.Context, c *client.Client) error { return c.Release(ctx, "x") }, 500, "internal"},
		{"unknown proxy", func(ctx context.Context, c *client.Client) error {
			_, err := c.Retry(ctx, "default", "paris")
			return err
		}, 404, "unknown_proxy"},
		{"no backup", func(ctx context.Context, c *client.Client) error { return c.Backup(ctx, io.Discard) }, 501, "not_supported"},
	}
	c := serve(t, discovery.Config{Leases: fixed{err: io.ErrClosedPipe}})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.call(t.Context(), c)
			e, ok := errors.AsType[*client.APIError](err)
			if !ok || e.Status != test.status || e.Code != test.code || e.Message == "" {
				t.Errorf("error %#v", err)
			}
		})
	}
}

func TestTokenIsAsked(t *testing.T) {
	h, err := discovery.New(discovery.Config{Proxies: proxy.NewMemory(proxy.MemoryConfig{}), Leases: fixed{}, Token: secret.New("correct-horse")})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for token, want := range map[string]int{"": 401, "wrong": 401, "correct-horse": 0} {
		err := newClient(t, client.Config{BaseURL: server.URL, Token: secret.New(token)}).Release(t.Context(), "x")
		status := 0
		if e, ok := errors.AsType[*client.APIError](err); ok {
			status = e.Status
		}
		if status != want {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// sameLease compares leases, credentials included. Times cross the wire to the millisecond.
func sameLease() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b secret.Text) bool { return a.Equal(b) }),
		cmpopts.EquateEmpty(),
		cmpopts.EquateApproxTime(time.Millisecond),
	}
}

func TestGrantsSurvive(t *testing.T) {
	endpoints := map[string]lease.Endpoint{
		"no credentials": {Scheme: "http", Host: "192.0.2.7", Port: 3128},
		"credentials":    {Scheme: "https", Host: "gw.example.net", Port: 443, User: secret.New("user"), Password: secret.New("password")},
		"any character": {
			Scheme: "http", Host: "gw_1.example.net", Port: 65535,
			User: secret.New("u:s@e/r?#%[]é\x00\n "), Password: secret.New("p:a@s/s?#%[]&+=\"\\\x7f\r\t "),
		},
		"user alone":     {Scheme: "socks5", Host: "127.0.0.1", Port: 1080, User: secret.New("user")},
		"password alone": {Scheme: "socks5", Host: "127.0.0.1", Port: 1080, Password: secret.New("password")},
		"IPv6":           {Scheme: "http", Host: "2001:db8::1", Port: 3128},
		"IPv6 of a zone": {Scheme: "http", Host: "fe80::1%eth0", Port: 3128, User: secret.New("user")},
		"attributes":     {Scheme: "http", Host: "h", Port: 1, Attributes: map[string]string{"region": "eu", "<&>": "\u2028"}},
	}
	for name, endpoint := range endpoints {
		t.Run(name, func(t *testing.T) {
			endpoint.Namespace, endpoint.Name = "default", "berlin"
			one := lease.Lease{ID: "one", Proxy: endpoint, Target: "example.com", Expires: time.Now().Add(time.Hour), TTL: 90 * time.Second}
			two := one
			two.ID = "two"
			for _, want := range []lease.Grant{{Leases: []lease.Lease{one}}, {Leases: []lease.Lease{one, two}, Moved: true}} {
				c := serve(t, discovery.Config{Leases: fixed{grant: want}})
				got, err := c.Acquire(t.Context(), lease.Request{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, sameLease()); diff != "" {
					t.Errorf("grant (-want +got):\n%s", diff)
				}
				renewed, err := c.Renew(t.Context(), "one", 0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(one, renewed, sameLease()); diff != "" {
					t.Errorf("renewed (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestMemoryBehindTheAPI takes a lease through its life, with the store of a fleet at the other end.
func TestMemoryBehindTheAPI(t *testing.T) {
	store, err := lease.NewMemory(lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		store.Set(lease.Candidate{
			Key: "default/" + name, Incarnation: "1", MaxLeases: 1, Healthy: true,
			Endpoint:   lease.Endpoint{Namespace: "default", Name: name, Scheme: "http", Host: "192.0.2.7", Port: 3128},
			Attributes: map[string]string{"region": "eu"},
		})
	}
	c := serve(t, discovery.Config{Leases: store, ActiveLeases: store.Counts})
	request := lease.Request{ID: "r", Selector: map[string]string{"region": "eu"}, Target: "example.com"}
	acquire := func(r lease.Request) lease.Lease {
		t.Helper()
		g, err := c.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return g.Leases[0]
	}
	first := acquire(request)
	if again := acquire(request); again.ID != first.ID {
		t.Errorf("the same request got %s, then %s", first.ID, again.ID)
	}
	if renewed, err := c.Renew(t.Context(), first.ID, time.Minute); err != nil || renewed.TTL != time.Minute || renewed.ID != first.ID {
		t.Errorf("renewed to %v: %v", renewed, err)
	}
	if err := c.Report(t.Context(), first.ID, lease.Report{Outcome: lease.Banned}); err != nil {
		t.Error(err)
	}
	if err := c.Release(t.Context(), first.ID); err != nil {
		t.Error(err)
	}
	second := acquire(lease.Request{Target: "example.com"})
	if second.Proxy.Name == first.Proxy.Name {
		t.Errorf("got %s, which is banned", second.Proxy.Name)
	}
	_, err = c.Acquire(t.Context(), lease.Request{Target: "example.com"})
	none, ok := errors.AsType[*lease.NoMatch](err)
	if !ok || none.Considered != 2 || none.InCooldown != 1 || none.AtCapacity != 1 || none.RetryAfter <= 0 {
		t.Errorf("%v: %#v", err, none)
	}
	store.Remove("default/" + second.Proxy.Name)
	if _, err := c.Renew(t.Context(), second.ID, 0); !errors.Is(err, lease.ErrProxyGone) {
		t.Errorf("renew of what is gone: %v", err)
	}
}

func TestProxies(t *testing.T) {
	const all = 501 // three pages
	m := proxy.NewMemory(proxy.MemoryConfig{})
	for i := range all {
		d := proxy.Declaration{Spec: proxy.Spec{Provider: "local", Attributes: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}}
		if _, err := m.Put(t.Context(), proxy.Key{Namespace: "default", Name: fmt.Sprintf("p%04d", i)}, d, "test"); err != nil {
			t.Fatal(err)
		}
	}
	c := serve(t, discovery.Config{Proxies: m})
	listed, err := c.ListProxies(t.Context(), client.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range listed {
		if want := fmt.Sprintf("p%04d", i); p.Name != want {
			t.Fatalf("proxy %d is %s, want %s", i, p.Name, want)
		}
	}
	odd, err := c.ListProxies(t.Context(), client.Filter{Namespace: "default", Attributes: map[string]string{"odd": "true"}, Healthy: new(false)})
	if err != nil || len(listed) != all || len(odd) != all/2 {
		t.Errorf("%d proxies, %d of them odd (%v); want %d and %d", len(listed), len(odd), err, all, all/2)
	}

	if p, err := c.GetProxy(t.Context(), "default", "p0001"); err != nil || p.Provider != "local" || p.Attributes["odd"] != "true" {
		t.Errorf("got %v: %v", p, err)
	}
	if p, err := c.SkipCleanup(t.Context(), "default", "p0001"); err != nil || p.Name != "p0001" {
		t.Errorf("skip-cleanup got %v: %v", p, err)
	}
	if p, err := c.Retry(t.Context(), "default", "p0001"); err != nil || p.Name != "p0001" {
		t.Errorf("retry got %v: %v", p, err)
	}
	record, err := m.Get(t.Context(), proxy.Key{Namespace: "default", Name: "p0001"})
	if err != nil || record.Annotations[proxy.SkipCleanupAnnotation] != "true" || record.Annotations[proxy.RetryAnnotation] == "" {
		t.Errorf("annotations %v: %v", record.Annotations, err)
	}
}

// sweeper has one instance that nobody knows, until it is swept.
type sweeper struct{ allowed string }

func (s *sweeper) plan(action discovery.SweepAction) (discovery.SweepPlan, error) {
	return discovery.SweepPlan{Providers: []discovery.ProviderSweep{{
		Provider: "gcp", Listed: 1, Instances: []discovery.InstanceSweep{{ID: "i", Action: action, Reason: "Orphan"}},
	}}}, nil
}

func (s *sweeper) Plan(context.Context) (discovery.SweepPlan, error) {
	return s.plan(discovery.SweepHold)
}

func (s *sweeper) Sweep(context.Context) (discovery.SweepPlan, error) {
	return s.plan(discovery.SweepDelete)
}

func (s *sweeper) Allow(provider string, limit int) error {
	if provider != "gcp" {
		return fmt.Errorf("%w: %s", discovery.ErrUnknownProvider, provider)
	}
	s.allowed = fmt.Sprint(provider, limit)
	return nil
}

// TestOperators asks a server what operators ask it.
func TestOperators(t *testing.T) {
	m := proxy.NewMemory(proxy.MemoryConfig{})
	if _, err := m.Put(t.Context(), proxy.Key{Namespace: "default", Name: "berlin"}, proxy.Declaration{Spec: proxy.Spec{Provider: "gcp"}}, "test"); err != nil {
		t.Fatal(err)
	}
	s := &sweeper{}
	c := serve(t, discovery.Config{
		Proxies:   m,
		Providers: func() []monitor.Result { return []monitor.Result{{Provider: "gcp", CanCheck: true}} },
		Explain: func(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
			p, err := m.Get(ctx, k)
			return discovery.Explanation{Proxy: p, Observed: &discovery.Observation{State: discovery.StateNotFound}}, err
		},
		Sweeper: s,
	})
	if e, err := c.Explain(t.Context(), "default", "berlin"); err != nil || e.Proxy.Name != "berlin" || e.Observed.State != "NotFound" || e.At.IsZero() {
		t.Errorf("explain got %v: %v", e, err)
	}
	if e, ok := errors.AsType[*client.APIError](second(c.Explain(t.Context(), "default", "paris"))); !ok || e.Code != "unknown_proxy" {
		t.Errorf("explain of the unknown: %v", e)
	}
	if l, err := c.ListProviders(t.Context()); err != nil || l.Count != 1 || l.Providers[0].Name != "gcp" || l.Providers[0].Ready != "Unknown" {
		t.Errorf("providers: %v: %v", l, err)
	}
	if p, err := c.PlanSweep(t.Context()); err != nil || p.Providers[0].Instances[0].Action != client.SweepHold {
		t.Errorf("plan: %v: %v", p, err)
	}
	if p, err := c.Sweep(t.Context()); err != nil || p.Providers[0].Instances[0].Action != client.SweepDelete {
		t.Errorf("sweep: %v: %v", p, err)
	}
	if err := c.AllowSweep(t.Context(), "gcp", 12); err != nil || s.allowed != "gcp12" {
		t.Errorf("allowed %q: %v", s.allowed, err)
	}
	if e, ok := errors.AsType[*client.APIError](c.AllowSweep(t.Context(), "gpc", 12)); !ok || e.Code != "unknown_provider" {
		t.Errorf("allow at the unknown: %v", e)
	}
}

func second[T any](_ T, err error) error { return err }

func TestBackup(t *testing.T) {
	state := bytes.Repeat([]byte("state"), 100_000)
	c := serve(t, discovery.Config{Backup: func(w io.Writer) error {
		_, err := w.Write(state)
		return err
	}})
	var got bytes.Buffer
	if err := c.Backup(t.Context(), &got); err != nil || !bytes.Equal(got.Bytes(), state) {
		t.Errorf("%d of %d bytes: %v", got.Len(), len(state), err)
	}

	c = serve(t, discovery.Config{Backup: func(w io.Writer) error {
		if _, err := w.Write(state); err != nil {
			return err
		}
		return io.ErrClosedPipe
	}})
	if err := c.Backup(t.Context(), io.Discard); err == nil {
		t.Error("half a backup is no error")
	}
}
