package leasehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

// These tests run in bubbles of virtual time, which end only when every goroutine has. Connections are pipes, and the proxies
// at their other ends answer for every target themselves.

// pipes is a listener that is dialled within the process.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

// newPipes serves proxies at the other end of pipes, for as long as the test runs.
func newPipes(t *testing.T, h http.HandlerFunc) *http.Transport {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(p) }()
	t.Cleanup(func() { _ = s.Close() })
	return &http.Transport{DialContext: p.dial}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

const page = "http://www.example.com/"

func single(t *testing.T) *watched {
	t.Helper()
	return newStore(t, map[string]lease.Endpoint{"berlin": {Namespace: "default", Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 3128}})
}

// TestRenewal reads a body for longer than its lease lasts, forgets it, and finds it again.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newPipes(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(50 * time.Second) // longer than the lease lasts, before the header
			for range 20 {
				_, _ = io.WriteString(w, "0123456789")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Second)
			}
		})
		store := single(t)
		rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Buffer: -1, TTL: 30 * time.Second, Timeout: time.Minute})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range 10 {
			if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			if store.Active("default/berlin") != 1 {
				t.Fatal("the lease has expired while its body was read")
			}
		}
		time.Sleep(time.Minute)
		if store.Active("default/berlin") != 0 {
			t.Error("a body that nobody reads holds its lease")
		}
		renewed := store.renewals
		time.Sleep(time.Hour)
		if store.renewals != renewed {
			t.Error("the lease of a forgotten body is renewed")
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Errorf("a body that comes to its end without its lease: %v", err)
		}
		store.empty(t)
		if diff := cmp.Diff([]string{"berlin ok"}, store.said()); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

// TestSilence makes sure that a body which says nothing for too long ends with an error and its lease, and one that is slow
// does not.
func TestSilence(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		ok    bool
	}{"slow": {20 * time.Second, true}, "silent": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(w http.ResponseWriter, r *http.Request) {
					for range 10 {
						_, _ = io.WriteString(w, "0123456789")
						_ = http.NewResponseController(w).Flush()
						select {
						case <-r.Context().Done():
						case <-time.After(test.pause):
						}
					}
				})
				store := single(t)
				rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Buffer: -1})
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				time.Sleep(time.Minute) // this silence is the caller's
				began := time.Now()
				body, err := io.ReadAll(resp.Body)
				failure, failed := errors.AsType[*leasehttp.Error](err)
				if failed == test.ok || failed && (failure.By != leasehttp.Target || !failure.Timeout()) {
					t.Errorf("error %v", err)
				}
				if test.ok && len(body) != 100 || !test.ok && time.Since(began) != 30*time.Second {
					t.Errorf("%d bytes after %v", len(body), time.Since(began))
				}
				store.empty(t)
			})
		})
	}
}

// TestCancel cancels a request in each of its phases, and finds the lease given back.
func TestCancel(t *testing.T) {
	for name, buffer := range map[string]int{"before the header": 0, "while it is read ahead": 1000, "while the body is read": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(w http.ResponseWriter, r *http.Request) {
					if buffer != 0 {
						_, _ = io.WriteString(w, "some")
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
				store := single(t)
				rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Buffer: buffer})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
				_, _, err := send(t, rt, r)
				if failure, ok := errors.AsType[*leasehttp.Error](err); !ok || failure.By != leasehttp.Client || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				store.empty(t)
				if said := store.said(); len(said) != 0 {
					t.Errorf("reports %v", said)
				}
			})
		})
	}
}

// TestWaiting makes sure that a request waits for a proxy for as long as it is told to, and no longer.
func TestWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		wait, free time.Duration // free is when a proxy comes
		ok         bool
		took       time.Duration
	}{
		"in time":         {2 * time.Minute, 100 * time.Second, true, 100 * time.Second},
		"too late":        {2 * time.Minute, time.Hour, false, 2 * time.Minute},
		"by default":      {0, time.Hour, false, time.Minute},
		"without waiting": {-1, time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(http.ResponseWriter, *http.Request) {})
				store := newStore(t, nil)
				rt, err := leasehttp.New(leasehttp.Config{Store: store, Base: base, Wait: test.wait})
				if err != nil {
					t.Fatal(err)
				}
				timer := time.AfterFunc(test.free, func() {
					store.set("berlin", lease.Endpoint{Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 1})
				})
				defer timer.Stop()
				began := time.Now()
				_, _, err = get(t, rt, page)
				if took := time.Since(began); (err == nil) != test.ok || took != test.took {
					t.Errorf("after %v: %v", took, err)
				}
				failure, failed := errors.AsType[*leasehttp.Error](err)
				if _, none := errors.AsType[*lease.NoMatch](err); failed && (failure.By != leasehttp.Fleet || !none) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestGoneWhileWaiting cancels a request that waits for a proxy, its first or another one.
func TestGoneWhileWaiting(t *testing.T) {
	for name, store := range map[string]func(*testing.T) *watched{
		"for the first": func(t *testing.T) *watched { return newStore(t, nil) },
		"for another": func(t *testing.T) *watched {
			s := single(t)
			s.Set(lease.Candidate{Key: "default/paris", Endpoint: lease.Endpoint{Name: "paris"}, Healthy: true}) // at capacity
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
				store := store(t)
				rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Wait: time.Hour})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
				resp, _, err := send(t, rt, r)
				if failure, ok := errors.AsType[*leasehttp.Error](err); !ok || failure.By != leasehttp.Client || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v: %v", resp, err)
				}
				store.empty(t)
			})
		})
	}
}

// TestDialling makes sure that an attempt to reach a proxy ends with the request.
func TestDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		rt := newTransport(t, leasehttp.Config{Store: single(t), Base: base})
		began := time.Now()
		_, _, err := get(t, rt, page)
		if failure, ok := errors.AsType[*leasehttp.Error](err); !ok || failure.By != leasehttp.Proxy || !failure.Timeout() || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// lazy is a store that takes its time to renew, even when it is told to stop.
type lazy struct {
	*watched
	renewing atomic.Int32
}

func (s *lazy) Renew(ctx context.Context, _ string, _ time.Duration) (lease.Lease, error) {
	s.renewing.Add(1)
	<-ctx.Done()
	time.Sleep(time.Second)
	s.renewing.Add(-1)
	return lease.Lease{}, ctx.Err()
}

// TestNoCallIsLeft makes sure that nobody calls the store for a body any more that is closed.
func TestNoCallIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newPipes(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "some") })
		store := &lazy{watched: single(t)}
		rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Buffer: -1, TTL: 30 * time.Second})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if n := store.renewing.Load(); n != 1 {
			t.Errorf("%d renewals are under way", n)
		}
		_ = resp.Body.Close()
		if store.renewing.Load() != 0 {
			t.Error("a renewal is under way after the end")
		}
		store.empty(t)
	})
}

// script is a store that answers from a list, and then grants.
type script struct {
	*watched
	answers []error
	asked   []time.Duration // since the start
	waits   []time.Duration
	start   time.Time
}

func (s *script) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	s.asked, s.waits = append(s.asked, time.Since(s.start)), append(s.waits, r.Wait)
	if len(s.answers) > 0 {
		err := s.answers[0]
		s.answers = s.answers[1:]
		return lease.Grant{}, err
	}
	return s.watched.Acquire(ctx, r)
}

// TestAskingAgain makes sure that a store which answers early is asked again when it said so, and no later than the wait.
func TestAskingAgain(t *testing.T) {
	busy := func(after time.Duration) error {
		return &lease.NoMatch{Considered: 1, AtCapacity: 1, RetryAfter: after}
	}
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		answers []error
		asked   []time.Duration
		ok      bool
	}{
		"when it said":            {[]error{busy(7 * time.Second), busy(20 * time.Second)}, []time.Duration{0, 7 * time.Second, 27 * time.Second}, true},
		"when it did not say":     {[]error{busy(0), busy(0)}, []time.Duration{0, time.Second, 2 * time.Second}, true},
		"not beyond the wait":     {[]error{busy(40 * time.Second), busy(40 * time.Second)}, []time.Duration{0, 40 * time.Second}, false},
		"a store that starts":     {[]error{lease.ErrNotReady, lease.ErrNotReady}, []time.Duration{0, time.Second, 2 * time.Second}, true},
		"a server that is away":   {[]error{refused}, []time.Duration{0, time.Second}, true},
		"what is not to be had":   {[]error{lease.ErrNotSupported}, []time.Duration{0}, false},
		"a request that is wrong": {[]error{lease.ErrTTL}, []time.Duration{0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(http.ResponseWriter, *http.Request) {})
				store := &script{watched: single(t), answers: test.answers, start: time.Now()}
				rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Wait: time.Minute})
				_, _, err := get(t, rt, page)
				if (err == nil) != test.ok {
					t.Errorf("error %v", err)
				}
				if diff := cmp.Diff(test.asked, store.asked); diff != "" {
					t.Errorf("asked after (-want +got):\n%s", diff)
				}
				for i, wait := range store.waits {
					if wait > 30*time.Second || wait > time.Minute-store.asked[i] {
						t.Errorf("asked to wait %v after %v", wait, store.asked[i])
					}
				}
			})
		})
	}
}

// TestWaitingForAnother makes sure that a request whose proxy failed waits for another one where one may come free, and gets
// its error at once where none can.
func TestWaitingForAnother(t *testing.T) {
	for name, test := range map[string]struct {
		others int
		free   time.Duration
		took   time.Duration
		ok     bool
	}{
		"there is none":       {0, 0, 0, false},
		"it comes free":       {1, 20 * time.Second, 20 * time.Second, true},
		"it never comes free": {1, time.Hour, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := newPipes(t, func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Proxy-Authorization") == "" {
						panic(http.ErrAbortHandler)
					}
				})
				store := single(t)
				for range test.others {
					e := lease.Endpoint{Namespace: "default", Name: "paris", Scheme: "http", Host: "192.0.2.8", Port: 1, User: secret.New("u")}
					store.Set(lease.Candidate{Key: "default/paris", Endpoint: e, MaxLeases: 1, Healthy: true, Attributes: map[string]string{"is": "paris"}})
					g, err := store.Memory.Acquire(t.Context(), lease.Request{Selector: map[string]string{"is": "paris"}})
					if err != nil {
						t.Fatal(err)
					}
					timer := time.AfterFunc(test.free, func() { _ = store.Release(t.Context(), g.Leases[0].ID) })
					defer timer.Stop()
				}
				rt := newTransport(t, leasehttp.Config{Store: store, Base: base, Wait: time.Minute})
				began := time.Now()
				resp, _, err := get(t, rt, page)
				if took := time.Since(began); (err == nil) != test.ok || took != test.took {
					t.Errorf("after %v: %v %v", took, resp, err)
				}
				if failure, failed := errors.AsType[*leasehttp.Error](err); failed && failure.By != leasehttp.Proxy {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestUpgrade makes sure that a connection which switches protocols works both ways, and is leased until it is closed.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newPipes(t, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, c)
		})
		store := single(t)
		rt := newTransport(t, leasehttp.Config{Store: store, Base: base})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := resp.Body.(io.Writer)
		if !ok {
			t.Fatalf("the body is a %T", resp.Body)
		}
		_, _ = io.WriteString(w, "hello")
		if got := make([]byte, 5); store.Active("default/berlin") != 1 {
			t.Error("no lease is open")
		} else if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "hello" {
			t.Errorf("%q %v", got, err)
		}
		_ = resp.Body.Close()
		store.empty(t)
	})
}
