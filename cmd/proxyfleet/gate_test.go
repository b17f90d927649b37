package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

// moment is when a call of the cloud brings death.
type moment int

const (
	before moment = iota // the caller is killed and the call has no effect
	during               // the caller is killed and the call has its effect then
	after                // the call has its effect, and the caller is killed before it is answered
	late                 // the caller is killed and the call has its effect when the trap is released
)

// trap springs at the first call that it is for.
type trap struct {
	when     moment
	method   string
	hits     func(*http.Request, cloud.Spec) bool // nil: all
	answered func(status int) bool                // after: whether this is the answer; nil: all that are no refusals
	kill     func()                               // returns when the caller is dead, or lets it live for another trap
	sprung   chan struct{}                        // closed when kill has returned
	release  chan struct{}                        // late
	made     chan cloud.Instance                  // late: what the call made; closed without one
}

func newTrap(when moment, method string, kill func()) *trap {
	return &trap{when: when, method: method, kill: kill,
		sprung: make(chan struct{}), release: make(chan struct{}), made: make(chan cloud.Instance, 1)}
}

// gate is where the calls for a cloud pass.
type gate struct {
	cloud http.Handler

	mu  sync.Mutex
	set *trap // at most one
}

// newGate serves the API of a cloud until the end of the test.
func newGate(t *testing.T, c http.Handler) (g *gate, url string) {
	g = &gate{cloud: c}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return g, server.URL
}

// arm sets a trap in place of the one that there is; nil: none.
func (g *gate) arm(t *trap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set = t
}

// meets returns the trap if a call is for it.
func (g *gate) meets(r *http.Request, body []byte) *trap {
	var spec cloud.Spec
	_ = json.Unmarshal(body, &spec) // most calls have none
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.set; t != nil && t.method == r.Method && (t.hits == nil || t.hits(r, spec)) {
		return t
	}
	return nil
}

// springs lets a trap spring, unless it did or was taken away.
func (g *gate) springs(t *trap) bool {
	g.mu.Lock()
	armed := g.set == t
	if armed {
		g.set = nil
	}
	g.mu.Unlock()
	if armed {
		t.kill()
		close(t.sprung)
	}
	return armed
}

// ServeHTTP lets a call pass, or springs the trap.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r = r.WithContext(context.WithoutCancel(r.Context())) // the call goes on when its caller is gone
	r.Body = io.NopCloser(bytes.NewReader(body))
	t := g.meets(r, body)
	switch {
	case t != nil && t.when == after:
		answer := g.serve(r)
		if t.at(answer.Code) {
			g.springs(t)
		}
		pass(w, answer) // the caller may live
	case t == nil || !g.springs(t):
		g.cloud.ServeHTTP(w, r)
	case t.when == during:
		g.serve(r)
	case t.when == late:
		defer close(t.made)
		<-t.release
		var made cloud.Instance
		if answer := g.serve(r); answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &made) == nil {
			t.made <- made
		}
	}
}

// at says whether the trap springs at an answer.
func (t *trap) at(status int) bool {
	if t.answered == nil {
		return status < http.StatusBadRequest
	}
	return t.answered(status)
}

// serve lets the cloud do what it is asked for. A lost answer has the status 500.
func (g *gate) serve(r *http.Request) (answer *httptest.ResponseRecorder) {
	answer = httptest.NewRecorder()
	defer func() {
		if lost := recover(); lost != nil {
			if err, ok := lost.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(lost)
			}
			answer.Code = http.StatusInternalServerError
		}
	}()
	g.cloud.ServeHTTP(answer, r)
	return answer
}

func pass(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, answer.Body) // the caller may be dead
}

// named hits calls for an instance whose name begins like this.
func named(prefix string) func(*http.Request, cloud.Spec) bool {
	return func(r *http.Request, s cloud.Spec) bool {
		_, name, _ := strings.Cut(r.URL.Path, "/instances/")
		return s.Name != "" && strings.HasPrefix(s.Name, prefix) || name != "" && strings.HasPrefix(name, prefix)
	}
}

// lists hits lists; that of the second page, too, or no other.
func lists(second bool) func(*http.Request, cloud.Spec) bool {
	return func(r *http.Request, _ cloud.Spec) bool {
		return strings.HasSuffix(r.URL.Path, "/instances") && r.URL.Query().Has("pageToken") == second
	}
}

// plant makes an instance at a cloud, as somebody else would.
func plant(t *testing.T, url, fleet, uid, name, zone string) (id int64) {
	t.Helper()
	body, err := json.Marshal(cloud.Spec{Name: name, Labels: map[string]string{"proxyfleet-fleet": fleet, "proxyfleet-uid": uid, "proxyfleet-hash": "v1-x"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/zones/"+zone+"/instances", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var made cloud.Instance
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.ID == 0 {
		t.Fatalf("the cloud makes no %s: %s, %v", name, answer.Status, err)
	}
	return made.ID
}
