package discovery_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// transport takes requests to somebody who is not reached by a network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// to is a transport to a handler.
func to(h http.Handler) transport {
	return func(r *http.Request) (*http.Response, error) {
		if r.Body == nil {
			r.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), r.Context().Err()
	}
}

// following is the configuration of a replica that does not lead.
func following(t testing.TB, way http.RoundTripper) discovery.Config {
	t.Helper()
	return discovery.Config{Proxies: store(t), Leader: func() string { return "http://192.0.2.1:8090" }, Transport: way}
}

// leading is that of one which does, and can do everything.
func leading(t testing.TB) discovery.Config {
	t.Helper()
	c := config(t)
	c.Providers = func() []monitor.Result { return []monitor.Result{{Provider: "gcp"}} }
	c.Sweeper = &sweeper{}
	c.Explain = func(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
		p, err := c.Proxies.Get(ctx, k)
		return discovery.Explanation{At: time.Unix(0, 0), Proxy: p}, err
	}
	return c
}

// What only the leader knows is answered alike by all replicas, down to the headers.
func TestForwarding(t *testing.T) {
	c := leading(t)
	c.Token, c.Name = secret.New("sesame"), "Zürich\n"
	leader := handler(t, c)
	f := following(t, to(leader))
	f.Token, f.Name = c.Token, c.Name
	follower := handler(t, f)
	for _, test := range []struct{ target, body string }{
		{"POST /v1/leases", `{"target":"example.com"}`},
		{"POST /v1/leases", `{"target":`},
		{"POST /v1/leases?dry=1", `{}`},
		{"POST /v1/leases/lease-1/renew", `{"ttlSeconds":60}`},
		{"POST /v1/leases/a%2Fb/renew", `{}`},
		{"POST /v1/leases/lease-1/report", `{"result":"banned"}`},
		{"DELETE /v1/leases/lease-1", ``},
		{"GET /v1/gc/plan", ``},
		{"POST /v1/gc/sweep", ``},
		{"POST /v1/gc/allow", `{"provider":"gcp","max":2}`},
		{"GET /v1/proxies/default/berlin/explain", ``},
		{"GET /v1/proxies/default/nobody/explain", ``},
		{"GET /v1/providers?a;b", ``},
	} {
		t.Run(test.target+" "+test.body, func(t *testing.T) {
			ask := func(h http.Handler) *httptest.ResponseRecorder {
				r := request(t, test.target, test.body)
				r.Header.Set("Authorization", "Bearer sesame")
				return serve(t, h, r)
			}
			want, got := ask(leader), ask(follower)
			if diff := cmp.Diff(want.Header(), got.Header()); diff != "" || got.Code != want.Code || got.Body.String() != want.Body.String() {
				t.Errorf("got %d %s, want %d %s; headers (-want +got):\n%s", got.Code, got.Body, want.Code, want.Body, diff)
			}
		})
	}
	if got := serve(t, follower, request(t, "POST /v1/leases", `{}`)); got.Code != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", got.Code, got.Body)
	}
}

// Each ID that a lease may have comes through as it is.
func TestForwardedPath(t *testing.T) {
	c := config(t)
	granted := c.Leases.(*leases)
	follower := handler(t, following(t, to(handler(t, c))))
	serve(t, follower, request(t, "DELETE /v1/leases/a%2Fb%25", ""))
	if granted.id != "a/b%" {
		t.Errorf("the leader is asked for %q", granted.id)
	}
}

// oneSpan is a TracerProvider whose spans all have the same ID.
type oneSpan struct{ noop.TracerProvider }

type (
	sameTracer struct{ noop.Tracer }
	sameSpan   struct{ noop.Span }
)

func (oneSpan) Tracer(string, ...trace.TracerOption) trace.Tracer { return sameTracer{} }

func (sameTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return trace.ContextWithSpan(ctx, sameSpan{}), sameSpan{}
}

func (sameSpan) SpanContext() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
}

// A request is judged by whom it was addressed to, and belongs to the trace of the replica that forwards it.
func TestForwardedRequest(t *testing.T) {
	var got *http.Request
	f := following(t, transport(func(r *http.Request) (*http.Response, error) {
		got = r
		return nil, errors.New("down")
	}))
	f.TracerProvider = oneSpan{}
	follower := handler(t, f)
	r := request(t, "POST /v1/leases", `{"target":"example.com"}`)
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.Header.Set("Authorization", "Bearer sesame")
	serve(t, follower, r)
	if got.Host != "localhost:8090" || got.URL.String() != "http://192.0.2.1:8090/v1/leases" ||
		got.Header.Get("Traceparent") != "00-01000000000000000000000000000000-0200000000000000-01" || got.Header.Get("Authorization") != "Bearer sesame" {
		t.Errorf("the leader is asked: %s %s, %v", got.Host, got.URL, got.Header)
	}
	again, err := got.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(again); string(body) != `{"target":"example.com"}` {
		t.Errorf("the body cannot be sent again: %q", body)
	}
}

// While nobody leads, or nobody answers, callers are told when to come again.
func TestNoLeader(t *testing.T) {
	lost := following(t, transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }))
	nobody := following(t, nil)
	nobody.Leader, nobody.Transport = func() string { return "" }, to(http.NotFoundHandler())
	nameless := nobody
	nameless.Leader = func() string { return "http://" }
	circle := following(t, nil)
	var asked int
	circle.Transport = transport(func(r *http.Request) (*http.Response, error) {
		asked++
		return to(handler(t, circle))(r)
	})
	stranger := leading(t)
	stranger.Name = "another"
	misled := following(t, to(handler(t, stranger)))
	misled.Name = "crawl"
	for _, test := range []struct {
		name    string
		c       discovery.Config
		message string
	}{
		{"the leader is that of another fleet", misled, "the replica that this was forwarded to keeps another fleet"},
		{"nobody leads", nobody, "no replica leads at the moment"},
		{"the leader has no address", nameless, "the replica that leads does not say where it is"},
		{"the leader is down", lost, "the replica that leads has not answered, and may have done what it was asked for"},
		{"replicas that take each other for the leader", circle, "the replica that this was forwarded to does not lead"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, target := range []string{"POST /v1/leases", "POST /v1/leases/x/renew", "POST /v1/leases/x/report", "DELETE /v1/leases/x",
				"GET /v1/gc/plan", "POST /v1/gc/sweep", "POST /v1/gc/allow", "GET /v1/providers", "GET /v1/proxies/default/berlin/explain"} {
				got := serve(t, handler(t, test.c), request(t, target, `{}`))
				if got.Code != http.StatusServiceUnavailable || strings.TrimSpace(got.Body.String()) != failure("not_ready", test.message) ||
					cmp.Diff(got.Header()["Retry-After"], []string{"2"}) != "" {
					t.Errorf("%s: %d %v %s", target, got.Code, got.Header(), got.Body)
				}
			}
		})
	}
	if asked != 9 {
		t.Errorf("9 requests were forwarded %d times", asked)
	}
}

// What a replica knows itself it answers, whatever becomes of the leader, and says nothing of what it does not know.
func TestFollowerAnswers(t *testing.T) {
	f := following(t, transport(func(r *http.Request) (*http.Response, error) { return nil, errors.New("down") }))
	f.Backup = func(io.Writer) error { return discovery.NotOffered("back up the cluster") }
	follower := handler(t, f)
	for target, want := range map[string]int{"GET /healthz": 200, "GET /readyz": 200, "GET /v1/proxies": 200, "GET /v1/proxies/default/berlin": 200,
		"POST /v1/proxies/default/berlin/retry": 200, "POST /v1/proxies/default/berlin/skip-cleanup": 200,
		"GET /": 200, "GET /proxies/default/berlin": 200, "GET /v1/backup": 501} {
		got := serve(t, follower, request(t, target, ""))
		if got.Code != want || strings.Contains(got.Body.String(), "activeLeases") || got.Header().Get("Retry-After") != "" {
			t.Errorf("%s: %d %v %s", target, got.Code, got.Header(), got.Body)
		}
	}
	fleet := serve(t, follower, request(t, "GET /", "")).Body.String()
	if !strings.Contains(fleet, "The replica that leads does not answer") || !strings.Contains(fleet, "–/10") || strings.Contains(fleet, "Open leases") {
		t.Errorf("the page:\n%s", fleet)
	}
	if got := serve(t, follower, request(t, "GET /v1/backup", "")); !strings.Contains(got.Body.String(), "back up the cluster") {
		t.Errorf("backup: %s", got.Body)
	}
}

// A replica that cannot answer yet says so, and that it will.
func TestUnreadReplica(t *testing.T) {
	f := following(t, to(http.NotFoundHandler()))
	f.Proxies, f.Leader = brokenStore{}, func() string { return "" }
	f.Ready = func(context.Context) error { return errors.New("Proxies have not been read") }
	for _, target := range []string{"GET /v1/proxies", "GET /v1/proxies/default/berlin", "GET /", "GET /proxies/default/berlin"} {
		got := serve(t, handler(t, f), request(t, target, ""))
		if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "not ready: Proxies have not been read") {
			t.Errorf("%s: %d %v %s", target, got.Code, got.Header(), got.Body)
		}
	}
}

// People see the page of the leader, who knows more.
func TestPagesAreTheLeaders(t *testing.T) {
	follower := handler(t, following(t, to(handler(t, leading(t)))))
	if fleet := serve(t, follower, request(t, "GET /", "")).Body.String(); !strings.Contains(fleet, "Open leases") || !strings.Contains(fleet, "2/10") {
		t.Errorf("the page:\n%s", fleet)
	}
}

// A body that is too long never gets to the leader.
func TestForwardedBodyIsBounded(t *testing.T) {
	follower := handler(t, following(t, transport(func(*http.Request) (*http.Response, error) {
		t.Error("the leader is asked")
		return nil, errors.New("down")
	})))
	got := serve(t, follower, request(t, "POST /v1/leases", `{"target":"`+strings.Repeat("a", 64<<10)+`"}`))
	if got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Body.String(), "body_too_large") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// A leader that hangs is given up, later where the request was ready to wait.
func TestLeaderHangs(t *testing.T) {
	hung := transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	for _, test := range []struct {
		target, body string
		code         int
		took         time.Duration
	}{
		{"POST /v1/leases", `{}`, 503, 15 * time.Second},
		{"POST /v1/leases", `{"waitSeconds":20}`, 503, 35 * time.Second},
		{"POST /v1/leases", `{"waitSeconds":100000000000}`, 503, 75 * time.Second},
		{"POST /v1/leases", `{"waitSeconds":-5}`, 503, 15 * time.Second},
		{"GET /v1/proxies/default/berlin/explain", "", 503, 30 * time.Second},
		{"GET /v1/gc/plan", "", 503, 5*time.Minute + 15*time.Second},
		{"GET /", "", 200, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			got := serve(t, handler(t, following(t, hung)), request(t, test.target, test.body))
			if took := time.Since(begun); took != test.took || got.Code != test.code {
				t.Errorf("%s %s: %d %s after %v, want %d after %v", test.target, test.body, got.Code, got.Body, took, test.code, test.took)
			}
		})
	}
}

// patient is a lease store with nothing to grant, whose callers wait until they are tired of it.
type patient struct {
	lease.Store
	waiting, ended chan struct{}
}

func (p patient) Acquire(ctx context.Context, _ lease.Request) (lease.Grant, error) {
	close(p.waiting)
	<-ctx.Done()
	close(p.ended)
	return lease.Grant{}, ctx.Err()
}

// Who waits at the leader through another replica and gives up waits there no longer; when that replica ends, he is told so.
func TestForwardedWait(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(cancel func(), ending chan struct{})
		want string
	}{
		{"the caller goes", func(cancel func(), _ chan struct{}) { cancel() }, "timeout"},
		{"the replica ends", func(_ func(), ending chan struct{}) { close(ending) }, "not_ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, ending := patient{waiting: make(chan struct{}), ended: make(chan struct{})}, make(chan struct{})
			c := config(t)
			c.Leases = p
			server := httptest.NewServer(handler(t, c))
			defer server.Close()
			f := following(t, http.DefaultTransport)
			f.Leader, f.Ending = func() string { return server.URL }, ending
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-p.waiting
				test.end(cancel, ending)
			}()
			got := serve(t, handler(t, f), request(t, "POST /v1/leases", `{"waitSeconds":60}`).WithContext(ctx))
			<-p.ended
			if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), test.want) {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
}

// A leader that dies in the middle of an answer leaves no part of one that passes for the whole.
func TestLeaderDiesWhileItAnswers(t *testing.T) {
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"providers":[`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer leader.Close()
	f := following(t, http.DefaultTransport)
	f.Leader = func() string { return leader.URL }
	follower := httptest.NewServer(handler(t, f))
	defer follower.Close()
	answer, err := http.Get(follower.URL + "/v1/providers")
	if err != nil {
		return // it was cut before its head was sent
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("%s %q passes for an answer", answer.Status, body)
	}
}

func TestConfigurationOfAFollower(t *testing.T) {
	_, err := discovery.New(discovery.Config{Proxies: store(t), Leader: func() string { return "" }})
	if err == nil || err.Error() != "discovery: Transport is required with Leader" {
		t.Error(err)
	}
}
