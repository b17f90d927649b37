package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// ballot is an election whose outcome a test decides.
type ballot struct {
	elect, lose chan struct{}
	leads       atomic.Bool
	terms       atomic.Int32
	other       string // who leads else
}

func newBallot() *ballot { return &ballot{elect: make(chan struct{}), lose: make(chan struct{})} }

func (b *ballot) Run(ctx context.Context, lead func(context.Context) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.elect:
		}
		b.leads.Store(true)
		b.terms.Add(1)
		term, end := context.WithCancel(ctx)
		go func() {
			select {
			case <-b.lose:
				end()
			case <-term.Done():
			}
		}()
		err := lead(term)
		end()
		b.leads.Store(false)
		if err != nil {
			return err
		}
	}
}

func (b *ballot) Leader() (string, bool) { return b.other, b.leads.Load() }
func (b *ballot) Succeeds() bool         { return b.terms.Load() > 1 }

// inMemory is a store of objects that are in no cluster.
type inMemory struct {
	*proxy.Memory
	missing    atomic.Pointer[error] // why it cannot answer
	restricted bool
}

func (m *inMemory) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (m *inMemory) Restricted() bool              { return m.restricted }

func (m *inMemory) Ready() error {
	if why := m.missing.Load(); why != nil {
		return *why
	}
	return nil
}

func (m *inMemory) Synced(ctx context.Context) error {
	for m.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

// board has the results of checks.
type board struct{ pruned atomic.Int32 }

func (b *board) Report(context.Context, monitor.Result) error { return nil }
func (b *board) Prune(context.Context) error                  { b.pruned.Add(1); return nil }

// replica is one whose parts are a test's.
type replica struct {
	*cluster
	t       *testing.T
	ballot  *ballot
	store   *inMemory
	board   *board
	journal *journal
	ended   chan error
}

// newReplica makes one in the folder of the test. The port of its API is taken, and nobody serves there.
func newReplica(t *testing.T, configuration *manifest.Configuration, types map[string]ProviderType) *replica {
	t.Helper()
	return newReplicaWith(t, newOptions(t), access{}, configuration, types)
}

// newReplicaWith makes one with options and an access of its own.
func newReplicaWith(t *testing.T, o runOptions, a access, configuration *manifest.Configuration, types map[string]ProviderType) *replica {
	t.Helper()
	r := &replica{t: t, ballot: newBallot(), board: &board{}, journal: &journal{}, ended: make(chan error, 1),
		store: &inMemory{Memory: proxy.NewMemory(proxy.MemoryConfig{Fleet: "test"})}}
	log := slog.New(slog.NewTextHandler(r.journal, nil))
	f, err := openFront(t.Context(), o, a, configuration, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.discard() })
	r.cluster = &cluster{front: f, options: o, configuration: configuration, types: types, identity: "test",
		objects: r.store, elector: r.ballot, checks: r.board}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a request to the replica as it is now.
func (r *replica) ask(target, body string) *httptest.ResponseRecorder {
	r.t.Helper()
	method, path, _ := strings.Cut(target, " ")
	request := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	request.Host = "localhost"
	w := httptest.NewRecorder()
	r.ServeHTTP(w, request)
	return w
}

// until asks until the answer is as wanted.
func (r *replica) until(target, body string, code int) *httptest.ResponseRecorder {
	r.t.Helper()
	for range 600 {
		if w := r.ask(target, body); w.Code == code {
			return w
		}
		time.Sleep(100 * time.Millisecond) // of the bubble
	}
	r.t.Fatalf("%s is never answered with %d; the log:\n%s", target, code, r.journal)
	return nil
}

func (r *replica) logs(line string) bool { return strings.Contains(r.journal.String(), line) }

// declare adds a proxy that answers all that it is asked for.
func (r *replica) declare(forward *httptest.Server, maxLeases int32) {
	r.t.Helper()
	u, err := url.Parse(forward.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Port())
	_, err = r.store.Put(r.t.Context(), proxy.Key{Namespace: "default", Name: "one"}, proxy.Declaration{Spec: proxy.Spec{
		Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: u.Hostname(), Port: int32(port)}, MaxLeases: maxLeases,
		HealthCheck: proxy.HealthCheck{URL: "http://probe.example/"},
	}}, "test")
	if err != nil {
		r.t.Fatal(err)
	}
}

// forwardProxy is a proxy that needs no target.
func forwardProxy(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	s.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(s.Close)
	return s
}

// A replica answers for the proxies all the time and leases while it leads. What a term has granted ends with it, and whoever
// waits or holds something is told so; nothing of a term is left when the next begins, or when the process ends.
func TestTerms(t *testing.T) {
	forward := forwardProxy(t)
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, &manifest.Configuration{}, nil)
		r.declare(forward, 1)
		ctx, end := context.WithCancel(t.Context())
		go func() { r.ended <- r.keep(ctx) }()
		synctest.Wait()
		if w := r.ask("POST /v1/leases", "{}"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not_ready") {
			t.Errorf("before a term: %d %s", w.Code, w.Body)
		}
		if w := r.ask("GET /v1/proxies", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"name":"one"`) {
			t.Errorf("before a term: %d %s", w.Code, w.Body)
		}
		if text := scraped(r); strings.Contains(text, "proxyfleet_leases_active") {
			t.Error("a replica that does not lead exports figures of the fleet")
		}
		var lease string
		for term := 1; term <= 2; term++ {
			r.ballot.elect <- struct{}{}
			granted := r.until("POST /v1/leases", `{"target":"example.com"}`, http.StatusCreated).Body.String()
			if succeeds := r.logs("leases and cooldowns of the earlier leader are lost"); succeeds != (term > 1) {
				t.Errorf("in term %d it is said that leases are lost: %v", term, succeeds)
			}
			if term > 1 {
				if w := r.ask("POST /v1/leases/"+lease+"/renew", "{}"); w.Code != http.StatusNotFound {
					t.Errorf("a lease of the term before: %d %s", w.Code, w.Body)
				}
			}
			lease = between(granted, `"leaseID":"`, `"`)
			if text := scraped(r); !strings.Contains(text, "proxyfleet_leases_active 1\n") {
				t.Errorf("in term %d:\n%s", term, text)
			}
			waited := r.wait()
			r.ballot.lose <- struct{}{}
			if w := <-waited; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("who waits when a term ends is told %d %s", w.Code, w.Body)
			}
			synctest.Wait()
			if w := r.ask("POST /v1/leases/"+lease+"/renew", "{}"); w.Code != http.StatusServiceUnavailable {
				t.Errorf("after term %d: %d %s", term, w.Code, w.Body)
			}
			if text := scraped(r); strings.Contains(text, "proxyfleet_leases_active") || int(r.board.pruned.Load()) != term {
				t.Errorf("after term %d, pruned %d times:\n%s", term, r.board.pruned.Load(), text)
			}
			if n := strings.Count(r.journal.String(), `level=WARN msg="the term has ended: its leases and cooldowns are lost" leases=1`); n != term {
				t.Errorf("%d terms have ended loudly, not %d:\n%s", n, term, r.journal)
			}
		}
		r.ballot.elect <- struct{}{}
		granted := r.until("POST /v1/leases", `{"target":"example.com"}`, http.StatusCreated).Body.String()
		waited := r.wait()
		close(r.ending) // requests end first
		if w := <-waited; w.Code != http.StatusServiceUnavailable {
			t.Errorf("who waits when the process ends is told %d %s", w.Code, w.Body)
		}
		if w := r.ask("POST /v1/leases/"+between(granted, `"leaseID":"`, `"`)+"/renew", "{}"); w.Code != http.StatusOK {
			t.Errorf("while requests end: %d %s", w.Code, w.Body)
		}
		end()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		// The bubble finds goroutines that are left.
	})
}

// wait has somebody wait for a lease, and returns where the answer will be.
func (r *replica) wait() <-chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder)
	go func() { answered <- r.ask("POST /v1/leases", `{"waitSeconds":60}`) }()
	synctest.Wait()
	return answered
}

func scraped(r *replica) string {
	w := httptest.NewRecorder()
	r.figures.Handler().ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// A replica that does not know the proxies yet says so and does not stand for election.
func TestUnknowingReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, &manifest.Configuration{}, nil)
		r.store.missing.Store(new(errors.New("Proxies have not been read")))
		ctx, end := context.WithCancel(t.Context())
		go func() { r.ended <- r.keep(ctx) }()
		time.Sleep(time.Minute)
		select {
		case r.ballot.elect <- struct{}{}:
			t.Error("it stands for election")
		default:
		}
		if w := r.ask("GET /readyz", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Proxies have not been read") {
			t.Errorf("/readyz: %d %s", w.Code, w.Body)
		}
		r.store.missing.Store(nil)
		time.Sleep(time.Minute)
		if w := r.ask("GET /readyz", ""); w.Code != http.StatusOK {
			t.Errorf("/readyz: %d %s", w.Code, w.Body)
		}
		r.ballot.elect <- struct{}{}
		end()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// What takes its time to be read may be given up by the process.
func TestUnknowingReplicaEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, &manifest.Configuration{}, nil)
		r.store.missing.Store(new(errors.New("Proxies have not been read")))
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := r.keep(ctx); err != nil {
			t.Error(err)
		}
	})
}

// stubborn is a provider that ends when it wants to.
type stubborn struct {
	provider.Provider
	begun, end chan struct{}
}

func (s stubborn) Run(context.Context) error {
	close(s.begun)
	<-s.end
	return nil
}

// A term of which something does not end must have no next one beside it: the process ends instead.
func TestTermThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stubborn{begun: make(chan struct{}), end: make(chan struct{})}
		types := map[string]ProviderType{"stubborn": {New: func(provider.Environment, json.RawMessage) (provider.Provider, error) { return s, nil }}}
		r := newReplica(t, &manifest.Configuration{Providers: []manifest.Provider{{Name: "mule", Type: "stubborn"}}}, types)
		go func() { r.ended <- r.keep(t.Context()) }()
		r.ballot.elect <- struct{}{}
		<-s.begun
		r.ballot.lose <- struct{}{}
		lost := time.Now()
		if err := <-r.ended; err == nil || !strings.Contains(err.Error(), "could not end within 30s") || time.Since(lost) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(lost), err)
		}
		close(s.end)
	})
}

// A configuration that was valid and is so no longer ends the process, whose next start says why.
func TestTermThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no such key")
		types := map[string]ProviderType{"x": {New: func(provider.Environment, json.RawMessage) (provider.Provider, error) { return nil, failure }}}
		r := newReplica(t, &manifest.Configuration{Providers: []manifest.Provider{{Name: "x", Type: "x"}}}, types)
		go func() { r.ended <- r.keep(t.Context()) }()
		r.ballot.elect <- struct{}{}
		if err := <-r.ended; !errors.Is(err, failure) {
			t.Error(err)
		}
	})
}

// A fleet that sees one namespace does not sweep, and says why to whoever asks, unless it is told that all is its own.
func TestNamespacedSweeper(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprint(allowed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, &manifest.Configuration{}, nil)
				r.store.restricted, r.options.cluster.gcNamespaced = true, allowed
				ctx, end := context.WithCancel(t.Context())
				go func() { r.ended <- r.keep(ctx) }()
				r.ballot.elect <- struct{}{}
				want := http.StatusNotImplemented
				if allowed {
					want = http.StatusOK
				}
				for target, body := range map[string]string{"GET /v1/gc/plan": "", "POST /v1/gc/sweep": "", "POST /v1/gc/allow": `{"provider":"x","max":1}`} {
					if allowed && body != "" {
						continue // there is no such provider
					}
					if w := r.until(target, body, want); !allowed && !strings.Contains(w.Body.String(), "--gc-allow-namespaced") {
						t.Errorf("%s: %s", target, w.Body)
					}
				}
				if warned := r.logs(`level=WARN msg="garbage collection is off: `); warned == allowed {
					t.Errorf("it is logged that there is no sweeper: %v", warned)
				}
				end()
				if err := <-r.ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A replica names the leader to nobody but itself: the scheme is that of its own API.
func TestLeaderOfOthers(t *testing.T) {
	r := newReplica(t, &manifest.Configuration{}, nil)
	for _, test := range []struct {
		other string
		leads bool
		want  string
	}{{"", false, ""}, {"192.0.2.1:8090", false, "http://192.0.2.1:8090"}, {"192.0.2.2:8090", true, ""}} {
		r.ballot.other = test.other
		r.ballot.leads.Store(test.leads)
		if got := r.leader(); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// A replica alone leads at once, and for as long as it runs.
func TestAlone(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	led := 0
	err := alone{}.Run(ctx, func(context.Context) error { led++; return nil })
	if _, self := (alone{}).Leader(); err != nil || led != 1 || !self || (alone{}).Succeeds() {
		t.Errorf("led %d times, %v", led, err)
	}
}

// There is no file to copy: the answer says what to do.
func TestBackupOfACluster(t *testing.T) {
	r := newReplica(t, &manifest.Configuration{}, nil)
	if w := r.ask("GET /v1/backup", ""); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "back up the Proxy objects") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
