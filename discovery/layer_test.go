package discovery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

// panicking is a lease store with a defect.
type panicking struct {
	lease.Store
	with any
}

func (p panicking) Release(context.Context, string) error { panic(p.with) }

func TestPanicIsAnswered(t *testing.T) {
	var log bytes.Buffer
	c := config(t)
	c.Leases, c.Logger = panicking{with: "a defect"}, logTo(&log)
	got := serve(t, handler(t, c), request(t, "DELETE /v1/leases/x", ""))
	if diff := cmp.Diff(failure("internal", "the server failed; its log says why"), plain(t, got.Body.String())); got.Code != 500 || diff != "" {
		t.Errorf("status %d (-want +got):\n%s", got.Code, diff)
	}
	for _, want := range []string{"level=ERROR", `panic="a defect"`, "panicking.Release"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
}

func TestAbortIsNoDefect(t *testing.T) {
	var log bytes.Buffer
	c := config(t)
	c.Leases, c.Logger = panicking{with: http.ErrAbortHandler}, logTo(&log)
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("recovered %v, want http.ErrAbortHandler", v)
		}
		if strings.Contains(log.String(), "ERROR") {
			t.Errorf("the log calls it an error:\n%s", log.String())
		}
	}()
	serve(t, handler(t, c), request(t, "DELETE /v1/leases/x", ""))
}

// TestBrokenBackupBreaksTheConnection makes sure that nobody takes the first half of a backup for the whole.
func TestBrokenBackupBreaksTheConnection(t *testing.T) {
	failures := map[string]func(){
		"error": func() {},
		"panic": func() { panic("a defect") },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c := config(t)
			c.Logger = logTo(&log)
			c.Backup = func(w io.Writer) error {
				if err := write(w, strings.Repeat("half", 10_000)); err != nil {
					return err
				}
				fail()
				return errors.New("disk on fire")
			}
			server := httptest.NewServer(handler(t, c))
			resp, err := http.Get(server.URL + "/v1/backup")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%d bytes were read without an error", len(body))
			}
			server.Close() // and with it every handler
			if !strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("the log says nothing:\n%s", log.String())
			}
		})
	}
}

// TestBackupTakesItsTime reads a backup that takes longer than the server grants an answer, and then does not read on.
func TestBackupTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		c := config(t)
		c.Backup = func(w io.Writer) error {
			for range 10 {
				if err := write(w, strings.Repeat("x", 8192)); err != nil {
					return err
				}
				time.Sleep(10 * time.Second)
			}
			stalled := time.Now()
			for write(w, strings.Repeat("x", 8192)) == nil {
			}
			ended <- time.Since(stalled)
			return errors.New("the reader is gone")
		}
		listener := newPipes()
		server := &http.Server{Handler: handler(t, c), WriteTimeout: 5 * time.Second, ReadHeaderTimeout: time.Second}
		go server.Serve(listener)
		defer server.Close()
		transport := &http.Transport{DialContext: listener.dial}
		defer transport.CloseIdleConnections()

		resp, err := (&http.Client{Transport: transport}).Get("http://localhost/v1/backup")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 10*8192); err != nil {
			t.Errorf("a backup that moves on broke off: %v", err)
		}
		if took := <-ended; took != 30*time.Second {
			t.Errorf("a reader that stalls was given up after %v, want 30s", took)
		}
		resp.Body.Close()
	})
}

// pipes is a listener without sockets, so that time in it is that of the bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

// requests notes what a Recorder is told.
type requests []string

func (r *requests) Requested(route string, code int, took time.Duration) {
	*r = append(*r, fmt.Sprintf("%s %d %v", route, code, took))
}

// slow is a lease store that takes its time.
type slow struct{ lease.Store }

func (slow) Release(context.Context, string) error {
	time.Sleep(time.Second)
	return nil
}

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got requests
		c := config(t)
		c.Leases, c.Recorder = slow{}, &got
		h := handler(t, c)
		for _, target := range []string{"DELETE /v1/leases/x", "GET /v1/proxies?attr.region=eu", "GET /nowhere", "PUT /v1/leases", "GET /healthz", "GET /"} {
			serve(t, h, request(t, target, ""))
		}
		want := requests{"DELETE /v1/leases/{id} 204 1s", "GET /v1/proxies 200 0s", "unmatched 404 0s", "unmatched 405 0s", "GET /healthz 200 0s", "GET / 200 0s"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// TestLog makes sure that the log has a line for each request, and in it nothing that gives power over a lease.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	c := config(t)
	c.Logger = logTo(&log)
	c.Token = secret.New("correct-horse")
	h := handler(t, c)
	r := request(t, "DELETE /v1/leases/lease-77?key=query-secret", "")
	r.Header.Set("Authorization", "Bearer correct-horse")
	serve(t, h, r)
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("%d lines, want 1", lines)
	}
	for _, want := range []string{"level=DEBUG", "method=DELETE", `route="DELETE /v1/leases/{id}"`, "status=400", "took="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
	for _, never := range []string{"lease-77", "query-secret", "correct-horse"} {
		if strings.Contains(log.String(), never) {
			t.Errorf("the log has %s:\n%s", never, log.String())
		}
	}
}

func TestFailureIsLoggedWithItsCause(t *testing.T) {
	var log bytes.Buffer
	c := config(t)
	c.Proxies, c.Logger = brokenStore{}, logTo(&log)
	serve(t, handler(t, c), request(t, "GET /v1/proxies", ""))
	if !strings.Contains(log.String(), `level=ERROR msg="request failed" route="GET /v1/proxies" error="io: read/write on closed pipe"`) {
		t.Errorf("the log:\n%s", log.String())
	}
}

// TestCredentialsAreInGrantedLeasesOnly asks every route, in every way that can go wrong, and looks for the password.
func TestCredentialsAreInGrantedLeasesOnly(t *testing.T) {
	var log bytes.Buffer
	c := config(t)
	c.Logger = logTo(&log)
	h := handler(t, c)
	const escaped = "pass%3Aw0rd%2F%40%25"
	targets := []string{
		"GET /v1/proxies", "GET /v1/proxies/default/berlin", "GET /v1/proxies/other/old",
		"POST /v1/proxies/default/berlin/skip-cleanup", "POST /v1/proxies/default/berlin/retry",
		"POST /v1/leases/lease-1/report", "DELETE /v1/leases/lease-1", "GET /v1/backup", "GET /nowhere",
	}
	for _, target := range targets {
		if body := serve(t, h, request(t, target, `{"result":"ok"}`)).Body.String(); strings.Contains(body, password) || strings.Contains(body, escaped) {
			t.Errorf("%s answers with the password: %s", target, body)
		}
	}
	for _, target := range []string{"POST /v1/leases", "POST /v1/leases/lease-1/renew"} {
		body := serve(t, h, request(t, target, `{}`)).Body.String()
		if !strings.Contains(body, `"url":"http://us%20&er:`+escaped+`@192.0.2.7:3128"`) {
			t.Errorf("%s answers without the credentials: %s", target, body)
		}
		if strings.Contains(body, password) || strings.Count(body, escaped) != 1 {
			t.Errorf("%s answers with the password elsewhere: %s", target, body)
		}
	}
	if strings.Contains(log.String(), password) || strings.Contains(log.String(), escaped) {
		t.Errorf("the log has the password:\n%s", log.String())
	}
}

// spans is a TracerProvider that notes the spans that ended.
type spans struct {
	noop.TracerProvider
	ended []string
}

type tracer struct {
	noop.Tracer
	spans *spans
}

type span struct {
	noop.Span
	spans *spans
	text  string
	attrs []attribute.KeyValue
	code  codes.Code
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{spans: s} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(opts...)
	parent := "none"
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		parent = sc.SpanID().String()
	}
	s := &span{spans: t.spans, text: fmt.Sprintf("%s %v parent=%s", name, c.SpanKind(), parent)}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetAttributes(kv ...attribute.KeyValue) { s.attrs = append(s.attrs, kv...) }

func (s *span) SetStatus(code codes.Code, _ string) { s.code = code }

func (s *span) End(...trace.SpanEndOption) {
	text := s.text
	for _, kv := range s.attrs {
		text += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
	}
	s.spans.ended = append(s.spans.ended, text+" "+s.code.String())
}

func TestSpans(t *testing.T) {
	tests := []struct {
		name   string
		target string
		parent string
		leases lease.Store
		want   []string
	}{
		{
			name: "route", target: "DELETE /v1/leases/lease-77", leases: &leases{},
			want: []string{"DELETE /v1/leases/{id} server parent=none http.request.method=DELETE http.response.status_code=204 http.route=/v1/leases/{id} Unset"},
		},
		{
			name: "page", target: "GET /",
			want: []string{"GET / server parent=none http.request.method=GET http.response.status_code=200 http.route=/ Unset"},
		},
		{
			name: "below the caller's", target: "GET /v1/proxies", parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			want: []string{"GET /v1/proxies server parent=b7ad6b7169203331 http.request.method=GET http.response.status_code=200 http.route=/v1/proxies Unset"},
		},
		{
			name: "no traceparent", target: "GET /v1/proxies/a/b", parent: "nonsense",
			want: []string{"GET /v1/proxies/{namespace}/{name} server parent=none http.request.method=GET http.response.status_code=404 " +
				"http.route=/v1/proxies/{namespace}/{name} Unset"},
		},
		{
			name: "failure", target: "DELETE /v1/leases/x", leases: &leases{err: io.ErrClosedPipe},
			want: []string{"DELETE /v1/leases/{id} server parent=none http.request.method=DELETE http.response.status_code=500 http.route=/v1/leases/{id} Error"},
		},
		{
			name: "panic", target: "DELETE /v1/leases/x", leases: panicking{with: "a defect"},
			want: []string{"DELETE /v1/leases/{id} server parent=none http.request.method=DELETE http.response.status_code=500 http.route=/v1/leases/{id} Error"},
		},
		{
			name: "no route", target: "GET /nowhere/lease-77",
			want: []string{"unmatched server parent=none http.request.method=GET http.response.status_code=404 Unset"},
		},
		{name: "liveness", target: "GET /healthz"},
		{name: "readiness", target: "GET /readyz"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := &spans{}
			c := config(t)
			c.TracerProvider = got
			if test.leases != nil {
				c.Leases = test.leases
			}
			r := request(t, test.target, "")
			if test.parent != "" {
				r.Header.Set("Traceparent", test.parent)
			}
			serve(t, handler(t, c), r)
			if diff := cmp.Diff(test.want, got.ended); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMiddlewareOrder holds two things that only the order of the layers can bring about: a body that nobody may send is
// not read, and a request that is refused is told to log and recorder.
func TestMiddlewareOrder(t *testing.T) {
	var got requests
	c := config(t)
	c.Token, c.Recorder = secret.New("correct-horse"), &got
	body := &countingReader{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/leases", body)
	if w := serve(t, handler(t, c), r); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
	if body.read != 0 {
		t.Errorf("%d bytes of the body were read", body.read)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "POST /v1/leases 401 ") {
		t.Errorf("recorded %v", got)
	}
}

type countingReader struct{ read int }

func (c *countingReader) Read(b []byte) (int, error) {
	c.read += len(b)
	return len(b), nil
}

var _ discovery.Recorder = (*requests)(nil)
