package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is one that a collector was sent.
type span struct {
	name              string
	trace, id, parent string
	attributes        map[string]string
}

// spans is a collector: it takes OTLP over HTTP, and keeps what came.
type spans struct {
	mu  sync.Mutex
	all []span
	raw bytes.Buffer
}

// collectSpans has all programs that the test starts send their spans to a collector.
func collectSpans(t *testing.T) *spans {
	t.Helper()
	c := new(spans)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // ms from one export to the next
	return c
}

func (c *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				got := span{s.Name, hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), map[string]string{}}
				for _, a := range s.Attributes {
					got.attributes[a.Key] = a.Value.GetStringValue()
				}
				c.all = append(c.all, got)
			}
		}
	}
}

// received returns all that came so far.
func (c *spans) received() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// chain returns the names of a span and of those above it, as far as they came.
func (c *spans) chain(s span) string {
	names := s.name
	for up := true; up; {
		up = false
		for _, above := range c.received() {
			if above.trace == s.trace && above.id == s.parent {
				s, up = above, true
				names = above.name + " > " + names
				break
			}
		}
	}
	return names
}

// await waits for a span with this chain, and returns it.
func (c *spans) await(t *testing.T, chain string) (found span) {
	t.Helper()
	eventually(t, func() string {
		var names []string
		for _, s := range c.received() {
			name := c.chain(s)
			if name == chain {
				found = s
				return ""
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return fmt.Sprintf("no span is %q; there are:\n%s", chain, strings.Join(names, "\n"))
	})
	return found
}

// A collector is sent what the fleet did, each unit of work as a trace, and requests below the spans of those who sent them.
func TestSpans(t *testing.T) {
	c := collectSpans(t)
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration(), login("a"), declared{name: "one"}.String())
	s := p.start("--trace-health-probes", "--gc-interval", "1s", "--provider-check-interval", "10s")
	s.await(1, "Ready")

	made := c.await(t, "Reconcile Proxy > reconcile.managed > provider.create")
	if made.attributes["provider.name"] != "here" || made.attributes["provider.instance.id"] == "" {
		t.Errorf("the span of the create says %v", made.attributes)
	}
	c.await(t, "Reconcile Proxy > status.patch")
	c.await(t, "gc.sweep > provider.list")
	c.await(t, "providerhealth.check")
	c.await(t, "health.probe")

	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/proxies", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	eventually(t, func() string {
		for _, s := range c.received() {
			if s.name == "GET /v1/proxies" && s.trace == trace && s.parent == parent {
				return ""
			}
		}
		return "the request is not below the span of its caller"
	})
	if !strings.Contains(s.log.String(), `"traceID":"`+trace+`"`) {
		t.Error("the line of the request does not say to which trace it belongs")
	}

	for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
		if value, ok := p.target.header(name); ok {
			t.Errorf("the target of the probes was sent %s: %s", name, value)
		}
	}
	if p.target.probed(s.list()["one"].Host) == 0 {
		t.Error("the target was not probed")
	}
}

// Without a word from the operator probes make no spans, and what the last passes did arrives although the process ends.
func TestSpansOfAnEnd(t *testing.T) {
	c := collectSpans(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration(), login("a"), declared{name: "one"}.String())
	s := p.start()
	s.await(1, "Ready")
	s.signal(syscall.SIGTERM)
	if state := s.wait(); state.ExitCode() != 0 {
		t.Fatalf("the fleet ended with %v", state)
	}
	c.await(t, "Reconcile Proxy > reconcile.managed > provider.create")
	for _, s := range c.received() {
		if s.name == "health.probe" {
			t.Error("a probe has a span")
		}
	}
}

func TestUnknownExporter(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration())
	r := call(t, "run", "-f", p.path("fleet.yaml"), "--listen", "127.0.0.1:0")
	if r.code != 1 || !strings.Contains(r.stderr, "OTEL_TRACES_EXPORTER=zipkin") || !complaint.MatchString(r.stderr) {
		t.Errorf("the start: %+v", r)
	}
}
