package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/secret"
)

// sweeper answers as it is told, and notes what it is asked.
type sweeper struct {
	plan  discovery.SweepPlan
	err   error
	takes time.Duration
	asked []string
}

func (s *sweeper) work(ctx context.Context, what string) (discovery.SweepPlan, error) {
	s.asked = append(s.asked, what)
	select {
	case <-ctx.Done():
		return discovery.SweepPlan{}, ctx.Err()
	case <-time.After(s.takes):
		return s.plan, s.err
	}
}

func (s *sweeper) Plan(ctx context.Context) (discovery.SweepPlan, error) { return s.work(ctx, "plan") }
func (s *sweeper) Sweep(ctx context.Context) (discovery.SweepPlan, error) {
	return s.work(ctx, "sweep")
}

func (s *sweeper) Allow(provider string, limit int) error {
	s.asked = append(s.asked, fmt.Sprintf("allow %s %d", provider, limit))
	return s.err
}

func TestSweepRoutes(t *testing.T) {
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	plan := discovery.SweepPlan{At: moment, Providers: []discovery.ProviderSweep{
		{Provider: "down", Err: errors.New("list: no route to host")},
		{Provider: "gcp", Listed: 3, Braked: true, Allowed: 1, Instances: []discovery.InstanceSweep{
			{ID: "a", Incarnation: "1", UID: "u", Created: moment, Action: discovery.SweepDelete, Reason: "Orphan", Err: errors.New("delete: quota")},
			{ID: "b", Incarnation: "2", UID: "v", Proxy: "default/berlin", Action: discovery.SweepHold, Reason: "Stray"},
			{ID: "c", Action: discovery.SweepKeep, Reason: "UnknownAge"},
		}},
	}}
	const planned = `{"at":"2026-01-02T03:04:05.678Z","providers":[` +
		`{"provider":"down","error":"list: no route to host","listed":0,"braked":false,"allowed":0,"instances":[]},` +
		`{"provider":"gcp","listed":3,"braked":true,"allowed":1,"instances":[` +
		`{"id":"a","incarnation":"1","uid":"u","createdAt":"2026-01-02T03:04:05.678Z","action":"delete","reason":"Orphan","error":"delete: quota"},` +
		`{"id":"b","incarnation":"2","uid":"v","proxy":"default/berlin","action":"hold","reason":"Stray"},` +
		`{"id":"c","action":"keep","reason":"UnknownAge"}]}]}`
	internal := failure("internal", "the server failed; its log says why")
	tests := []struct {
		name   string
		target string
		body   string
		err    error
		takes  time.Duration
		status int
		want   string
		asked  []string
	}{
		{name: "plan", target: "GET /v1/gc/plan", status: 200, want: planned, asked: []string{"plan"}},
		{name: "plan fails", target: "GET /v1/gc/plan", err: io.ErrClosedPipe, status: 500, want: internal, asked: []string{"plan"}},
		{name: "sweep", target: "POST /v1/gc/sweep", takes: 4 * time.Minute, status: 200, want: planned, asked: []string{"sweep"}},
		{name: "sweep by accident", target: "GET /v1/gc/sweep", status: 405, want: failure("method_not_allowed", "this path takes POST only")},
		{name: "sweep fails", target: "POST /v1/gc/sweep", err: io.ErrClosedPipe, status: 500, want: internal, asked: []string{"sweep"}},
		{
			name: "sweep does not end", target: "POST /v1/gc/sweep", takes: time.Hour, status: 503, asked: []string{"sweep"},
			want: failure("timeout", "no end within 5m0s of the sweep, or of one that it waited for: it was stopped; the log says what it deleted, and the next one goes on from there"),
		},
		{
			name: "a plan does not end", target: "GET /v1/gc/plan", takes: time.Hour, status: 503, asked: []string{"plan"},
			want: failure("timeout", "no plan within 5m0s: a provider does not say what it has, and GET /v1/providers may say why"),
		},
		{name: "allow", target: "POST /v1/gc/allow", body: `{"provider":"gcp","max":12}`, status: 204, asked: []string{"allow gcp 12"}},
		{
			name: "allow at nobody", target: "POST /v1/gc/allow", body: `{"max":12}`, status: 400,
			want: failure("invalid_request", "provider must name the provider whose brake is to be lifted"),
		},
		{
			name: "allow nothing", target: "POST /v1/gc/allow", body: `{"provider":"gcp","max":0}`, status: 400,
			want: failure("invalid_request", "max must be at least 1: how many instances may be deleted at most"),
		},
		{
			name: "allow without a bound", target: "POST /v1/gc/allow", body: `{"provider":"gcp"}`, status: 400,
			want: failure("invalid_request", "max must be at least 1: how many instances may be deleted at most"),
		},
		{
			name: "allow a part", target: "POST /v1/gc/allow", body: `{"provider":"gcp","max":1.5}`, status: 400,
			want: failure("invalid_request", "max must be a whole number, not number 1.5"),
		},
		{
			name: "allow at the unknown", target: "POST /v1/gc/allow", body: `{"provider":"gpc","max":1}`, status: 404, asked: []string{"allow gpc 1"},
			err:  fmt.Errorf("%w: gpc; there are gcp, kvm", discovery.ErrUnknownProvider),
			want: failure("unknown_provider", "no such provider: gpc; there are gcp, kvm"),
		},
		{
			name: "allow fails", target: "POST /v1/gc/allow", body: `{"provider":"gcp","max":1}`, err: io.ErrClosedPipe, status: 500, want: internal,
			asked: []string{"allow gcp 1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sweeper{plan: plan, err: test.err, takes: test.takes}
				c := config(t)
				c.Sweeper = s
				got := serve(t, handler(t, c), request(t, test.target, test.body))
				if got.Code != test.status {
					t.Errorf("status %d, want %d", got.Code, test.status)
				}
				if diff := cmp.Diff(test.want, plain(t, got.Body.String())); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.asked, s.asked); diff != "" {
					t.Errorf("asked of the sweeper (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSweepTakesItsTime has a sweep take longer than the server grants an answer, and another whose caller hangs up.
func TestSweepTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweeper{takes: 4 * time.Minute}
		c := config(t)
		c.Sweeper = s
		listener := newPipes()
		server := &http.Server{Handler: handler(t, c), ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute}
		go server.Serve(listener)
		defer server.Close()
		transport := &http.Transport{DialContext: listener.dial}
		defer transport.CloseIdleConnections()
		sweep := func(ctx context.Context) (*http.Response, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/gc/sweep", nil)
			if err != nil {
				t.Fatal(err)
			}
			return (&http.Client{Transport: transport}).Do(r)
		}

		resp, err := sweep(t.Context())
		if err != nil {
			t.Fatalf("a sweep that takes its time broke off: %v", err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
		ctx, hangUp := context.WithTimeout(t.Context(), time.Minute)
		defer hangUp()
		start := time.Now()
		if _, err := sweep(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := server.Shutdown(t.Context()); err != nil { // waits for the handler
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("a sweep that nobody waits for ended after %v", took)
		}
	})
}

// A process that is to end does not wait for plans and sweeps, and their callers are told so.
func TestSweepsEndWithTheProcess(t *testing.T) {
	for _, target := range []string{"GET /v1/gc/plan", "POST /v1/gc/sweep"} {
		synctest.Test(t, func(t *testing.T) {
			ending := make(chan struct{})
			c := config(t)
			c.Sweeper, c.Ending = &sweeper{takes: time.Hour}, ending
			time.AfterFunc(time.Second, func() { close(ending) })
			start := time.Now()
			got := serve(t, handler(t, c), request(t, target, ""))
			want := failure("not_ready", "this process is ending, and has stopped what it was asked for")
			if diff := cmp.Diff(want, plain(t, got.Body.String())); got.Code != 503 || got.Header().Get("Retry-After") != "5" || diff != "" {
				t.Errorf("%s: status %d, Retry-After %s (-want +got):\n%s", target, got.Code, got.Header().Get("Retry-After"), diff)
			}
			if time.Since(start) != time.Second {
				t.Errorf("%s ended after %v", target, time.Since(start))
			}
		})
	}
}

// What this fleet was not given is told apart from what nobody has.
func TestNotOffered(t *testing.T) {
	tests := map[string]string{
		"GET /v1/providers":                      "this fleet does not check its providers",
		"GET /v1/proxies/default/berlin/explain": "this fleet cannot explain its proxies here",
		"GET /v1/gc/plan":                        "this fleet does not sweep here",
		"POST /v1/gc/sweep":                      "this fleet does not sweep here",
		"POST /v1/gc/allow":                      "this fleet does not sweep here",
	}
	h := handler(t, config(t))
	for target, message := range tests {
		got := serve(t, h, request(t, target, `{"provider":"gcp","max":1}`))
		if diff := cmp.Diff(failure("not_supported", message), plain(t, got.Body.String())); got.Code != 501 || diff != "" {
			t.Errorf("%s: status %d (-want +got):\n%s", target, got.Code, diff)
		}
	}
}

// No web page may have instances deleted: not one of another site, and not one that a browser shows the token of by itself.
func TestWhoMaySweep(t *testing.T) {
	tests := []struct {
		name   string
		target string
		with   func(*http.Request)
		status int
	}{
		{"plan by Basic", "GET /v1/gc/plan", func(r *http.Request) { r.SetBasicAuth("any", "correct-horse") }, 200},
		{"plan by Basic, by a page of another site", "GET /v1/gc/plan", func(r *http.Request) {
			r.SetBasicAuth("any", "correct-horse")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, 403},
		{"sweep by Basic", "POST /v1/gc/sweep", func(r *http.Request) { r.SetBasicAuth("any", "correct-horse") }, 401},
		{"allow by Basic", "POST /v1/gc/allow", func(r *http.Request) { r.SetBasicAuth("any", "correct-horse") }, 401},
		{"sweep by Bearer", "POST /v1/gc/sweep", func(r *http.Request) { r.Header.Set("Authorization", "Bearer correct-horse") }, 200},
		{"sweep by a page of another site", "POST /v1/gc/sweep", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer correct-horse")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, 403},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &sweeper{}
			c := config(t)
			c.Sweeper, c.Token = s, secret.New("correct-horse")
			r := request(t, test.target, `{"provider":"gcp","max":1}`)
			test.with(r)
			got := serve(t, handler(t, c), r)
			if got.Code != test.status || (len(s.asked) > 0) != (test.status == 200) {
				t.Errorf("status %d, want %d; the sweeper was asked %v", got.Code, test.status, s.asked)
			}
		})
	}
}
