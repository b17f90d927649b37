package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/proxy"
)

func TestNewTellsAllProblems(t *testing.T) {
	_, err := New(Config{
		Fleet:        "No Such Name",
		Providers:    map[string]provider.Provider{"empty": nil},
		MaxInstances: map[string]int{"nowhere": 3, "empty": -1},
		HealthCheck:  proxy.HealthCheck{URL: "ftp://x"},
		Health:       health.Config{Workers: -1},
		Lease:        lease.Config{MaxTTL: -time.Second},
		Intervals:    Intervals{Call: -1, FirstRetry: time.Hour},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Fleet: ", "Store: ", `Providers["empty"]`, `MaxInstances["nowhere"]`, `MaxInstances["empty"]`,
		"HealthCheck", "Workers", "MaxTTL", "Intervals.Call", "Intervals.FirstRetry"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error:\n%v", want, err)
		}
	}
}

func TestNewValidatesIdentity(t *testing.T) {
	for identity, want := range map[string]bool{
		"a": true, "crawl-1": true, strings.Repeat("x", 63): true,
		"": false, "Crawl": false, "a_b": false, "a b": false, "a\n": false, strings.Repeat("x", 64): false,
	} {
		_, err := New(Config{Fleet: identity, Store: proxy.NewMemory(proxy.MemoryConfig{})})
		if ok := err == nil; ok != want {
			t.Errorf("%q: %v", identity, err)
		}
	}
}

// TestNewStartsNothing: a bubble does not end while a goroutine of it is left.
func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(Config{Fleet: "test", Store: proxy.NewMemory(proxy.MemoryConfig{})})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Ready(t.Context()); err == nil {
			t.Error("ready before it runs")
		}
	})
}

func TestIntervals(t *testing.T) {
	want := Intervals{ProvisioningPoll: 5 * time.Second, DeletionPoll: 5 * time.Second, DriftPoll: time.Minute, Requeue: time.Second,
		Call: 2 * time.Minute, FirstRetry: 5 * time.Second, LastRetry: 5 * time.Minute, QuotaRetry: 5 * time.Minute,
		PermanentRetry: time.Hour, Stable: 10 * time.Minute, Drain: 5 * time.Minute}
	if diff := cmp.Diff(want, Intervals{}.WithDefaults()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	own := Intervals{ProvisioningPoll: 1, DeletionPoll: 2, DriftPoll: 3, Requeue: 4, Call: 5, FirstRetry: 6, LastRetry: 7,
		QuotaRetry: 8, PermanentRetry: 9, Stable: 10, Drain: 11}
	if diff := cmp.Diff(own, own.WithDefaults()); diff != "" {
		t.Errorf("what was given (-want +got):\n%s", diff)
	}
	if err := own.validate(); err != nil {
		t.Error(err)
	}
}

// site is a fleet that runs in a bubble, with a backend in memory and a prober that says what the test says.
type site struct {
	*Fleet
	t       *testing.T
	secrets *secrets
	store   *proxy.Memory
	backend *providertest.Memory
	log     *paper
	stop    context.CancelFunc
	done    chan error

	mu     sync.Mutex
	sick   map[string]bool // by host and port
	probes int
}

func newSite(t *testing.T, change func(*Config)) *site {
	s := &site{t: t, secrets: &secrets{}, backend: &providertest.Memory{}, log: &paper{}, done: make(chan error, 1), sick: map[string]bool{}}
	s.store = proxy.NewMemory(proxy.MemoryConfig{Fleet: "test", Secrets: s.secrets})
	cfg := Config{
		Fleet: "test", Store: s.store, Providers: map[string]provider.Provider{"memory": s.backend.Open("test")},
		Health: health.Config{Prober: health.ProberFunc(s.probe)},
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.Fleet, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs the fleet until the test ends or stops it.
func (s *site) run() *site {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(s.t.Context())
	go func() { s.done <- s.Run(ctx) }()
	s.t.Cleanup(s.stop)
	return s
}

func (s *site) probe(_ context.Context, t health.Target) health.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	if s.sick[fmt.Sprintf("%s:%d", t.Host, t.Port)] {
		return health.Result{Party: health.PartyDial, Message: "refused"}
	}
	return health.Result{OK: true, Latency: 30 * time.Millisecond}
}

func (s *site) probed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes
}

func (s *site) sicken(address string, sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sick[address] = sick
}

func (s *site) declare(name string, spec proxy.Spec) {
	s.t.Helper()
	if _, err := s.store.Put(s.t.Context(), proxy.Key{Namespace: "default", Name: name}, proxy.Declaration{Spec: spec}, "test"); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a proxy to be as it should, a second at a time, and returns the proxy.
func (s *site) until(name, what string, within time.Duration, is func(*proxy.Proxy) bool) *proxy.Proxy {
	s.t.Helper()
	var p *proxy.Proxy
	for begin := time.Now(); time.Since(begin) <= within; time.Sleep(time.Second) {
		synctest.Wait()
		p, _ = s.store.Get(s.t.Context(), proxy.Key{Namespace: "default", Name: name})
		if is(p) {
			return p
		}
	}
	s.t.Fatalf("%s: not %s within %v: %+v\n%s", name, what, within, p, s.log)
	return nil
}

func (s *site) untilReady(name string, port int32) *proxy.Proxy {
	s.t.Helper()
	return s.until(name, "Ready", time.Minute, func(p *proxy.Proxy) bool {
		return p != nil && p.Status.Phase == proxy.Ready && p.Status.Instance.Port == port
	})
}

func (s *site) acquire() (lease.Lease, error) {
	g, err := s.Leases().Acquire(s.t.Context(), lease.Request{})
	if err != nil {
		return lease.Lease{}, err
	}
	return g.Leases[0], nil
}

func (s *site) ends() {
	s.t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		s.t.Errorf("Run: %v", err)
	}
}

// TestFleet follows a proxy from its declaration to its end.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		s.secrets.put("login", map[string]string{"username": "planted-user", "password": "planted-password"})
		spec := proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials}
		s.declare("one", spec)
		first := s.untilReady("one", 3128)
		if since := time.Since(t0); since > 5*time.Second {
			t.Errorf("Ready after %v", since)
		}
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		held, err := s.acquire()
		if err != nil {
			t.Fatal(err)
		}
		if url := held.Proxy.RevealURL().String(); url != "http://planted-user:planted-password@192.0.2.1:3128" {
			t.Errorf("leased: %s", url)
		}

		// An edit: closed to new leases, but the open one is waited for.
		time.Sleep(10 * time.Minute) // so that the backend is believed when it knows nothing
		spec.Port = 8080
		if held, err = s.acquire(); err != nil {
			t.Fatal(err)
		}
		s.declare("one", spec)
		s.until("one", "Replacing", 5*time.Second, func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Replacing })
		if _, err := s.acquire(); err == nil {
			t.Error("leased though it is to be replaced")
		}
		time.Sleep(time.Minute)
		if list, _ := s.backend.Open("test").List(t.Context()); len(list) != 1 || list[0].Incarnation != first.Status.Instance.Incarnation {
			t.Errorf("deleted with a lease open: %+v", list)
		}
		if err := s.Leases().Release(t.Context(), held.ID); err != nil {
			t.Fatal(err)
		}
		second := s.untilReady("one", 8080)
		if second.Status.Instance.Incarnation == first.Status.Instance.Incarnation || second.Status.Instance.Retiring != "" {
			t.Errorf("replaced by %+v", second.Status.Instance)
		}
		if held, err = s.acquire(); err != nil || held.Proxy.Port != 8080 {
			t.Errorf("leased %+v, %v", held.Proxy, err)
		}

		// A deletion.
		time.Sleep(10 * time.Minute)
		if err := s.store.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		s.until("one", "gone", time.Minute, func(p *proxy.Proxy) bool { return p == nil })
		if list, _ := s.backend.Open("test").List(t.Context()); len(list) != 0 {
			t.Errorf("left behind: %+v", list)
		}
		if _, err := s.acquire(); err == nil {
			t.Error("leased though it is gone")
		}
		s.ends()
		if log := s.log.String(); strings.Contains(log, "planted") {
			t.Errorf("the log has a credential:\n%s", log)
		}
	})
}

// TestFleetRotates has one Secret of ten proxies changed: they are replaced a few at a time, and leases go on.
func TestFleetRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		s.secrets.put("login", oldLogin)
		for i := range 10 {
			s.declare(fmt.Sprintf("p%d", i), proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials})
		}
		for i := range 10 {
			s.untilReady(fmt.Sprintf("p%d", i), 3128)
		}
		time.Sleep(10 * time.Minute)
		made := map[string]string{}
		incarnations := func() (fresh int) {
			list, _ := s.store.List(t.Context())
			for _, p := range list {
				if made[p.Name] == "" {
					made[p.Name] = p.Status.Instance.Incarnation
				}
				if p.Status.Phase == proxy.Ready && p.Status.Instance.Incarnation != made[p.Name] {
					fresh++
				}
			}
			return fresh
		}
		incarnations()
		s.secrets.put("login", newLogin)
		passwords := map[string]int{}
		for incarnations() < 10 {
			if time.Since(t0) > time.Hour {
				t.Fatal("not all were replaced")
			}
			l, err := s.acquire()
			if err != nil {
				t.Fatalf("leases do not go on: %v", err)
			}
			passwords[l.Proxy.Password.Reveal()]++
			if err := s.Leases().Release(t.Context(), l.ID); err != nil {
				t.Fatal(err)
			}
			list, _ := s.store.List(t.Context())
			out := 0
			for _, p := range list {
				if p.Status.Phase != proxy.Ready {
					out++
				}
			}
			if out > 2 {
				t.Errorf("%d of 10 are out at once", out)
			}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
		}
		if passwords["old"] == 0 || passwords["new"] == 0 {
			t.Errorf("leased with each password: %v", passwords)
		}
		s.ends()
	})
}

func TestFleetHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hurried []string
		s := newSite(t, func(c *Config) {
			c.Lease.Failed = func(key string) { hurried = append(hurried, key) }
			c.HealthCheck.FailureThreshold = 2
		}).run()
		s.declare("one", proxy.Spec{Provider: "memory"})
		s.untilReady("one", 3128)
		l, err := s.acquire()
		if err != nil {
			t.Fatal(err)
		}

		// A crawler says that it failed: it is probed at once, and after its threshold no more leased.
		s.sicken("192.0.2.1:3128", true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before := s.probed()
		if err := s.Leases().Report(t.Context(), l.ID, lease.Report{Outcome: lease.Failed}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := s.probed() - before; n != 1 || !cmp.Equal(hurried, []string{"default/one"}) {
			t.Errorf("%d probes within 2 s, and the configured function heard of %q", n, hurried)
		}
		p := s.until("one", "Unhealthy", time.Minute, func(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Unhealthy })
		if c, _ := p.Status.Condition(proxy.Healthy); c.Message != "dial: refused" {
			t.Errorf("condition %+v", c)
		}
		if no, ok := errors.AsType[*lease.NoMatch](second(s.acquire())); !ok || no.Unhealthy != 1 {
			t.Errorf("leased, or not for its health: %+v", no)
		}
		s.sicken("192.0.2.1:3128", false)
		s.untilReady("one", 3128)
		s.ends()
	})
}

func second[A, B any](_ A, b B) B { return b }

// TestRestart: what runs is Ready again without leaving Ready, and nothing is made twice.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		s.declare("one", proxy.Spec{Provider: "memory"})
		before := s.untilReady("one", 3128)
		s.ends()
		again := newSite(t, func(c *Config) {
			c.Store, c.Providers["memory"] = s.store, s.backend.Open("test")
		}).run()
		synctest.Wait()
		l, err := again.acquire()
		if err != nil || l.Proxy.Port != 3128 {
			t.Errorf("leased %+v, %v", l.Proxy, err)
		}
		time.Sleep(9 * time.Minute)
		after, err := s.store.Get(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Status.Conditions, after.Status.Conditions); diff != "" || after.Status.Instance != before.Status.Instance {
			t.Errorf("status (-before +after):\n%s", diff)
		}
		again.ends()
	})
}

// runner is a provider with background work.
type runner struct {
	provider.Provider
	run func(context.Context) error
}

func (r runner) Run(ctx context.Context) error { return r.run(ctx) }

// decorator hides all that a provider can do but its methods.
type decorator struct{ provider.Provider }

func (d decorator) Unwrap() provider.Provider { return d.Provider }

// TestRunEndsInOrder: the passes give up their calls, and when they have ended the providers do.
func TestRunEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		hung := &cloud{name: "hung", journal: &journal{}, create: func(ctx context.Context, _ provider.Request) (provider.Instance, error) {
			j.note("create begins")
			<-ctx.Done()
			time.Sleep(time.Second)
			j.note("create ends")
			return provider.Instance{}, provider.Interrupted(ctx, "create")
		}}
		s := newSite(t, func(c *Config) {
			c.Providers["hung"] = decorator{runner{hung, func(ctx context.Context) error {
				j.note("provider begins")
				<-ctx.Done()
				j.note("provider is told to end")
				time.Sleep(time.Second)
				j.note("provider ends")
				return nil
			}}}
		}).run()
		s.declare("one", proxy.Spec{Provider: "hung"})
		time.Sleep(10 * time.Second)
		s.ends()
		if diff := cmp.Diff([]string{"provider begins", "create begins", "create ends", "provider is told to end", "provider ends"}, j.take()); diff != "" {
			t.Errorf("what happened (-want +got):\n%s", diff)
		}
		p, err := s.store.Get(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if c, _ := p.Status.Condition(proxy.Provisioned); c.Reason != ReasonProvisioning || c.Message != "" {
			t.Errorf("what was given up is in the condition: %+v", c)
		}
	})
}

// lostWatch is a store whose watch ends by itself.
type lostWatch struct {
	*proxy.Memory
	err error
}

func (s lostWatch) Watch(context.Context, func(proxy.Key)) error { return s.err }

func TestRunFails(t *testing.T) {
	errBroken := errors.New("the lights went out")
	fails := func(err error) func(*Config) {
		return func(c *Config) {
			c.Providers["broken"] = runner{&cloud{}, func(context.Context) error {
				time.Sleep(time.Minute)
				return err
			}}
		}
	}
	watches := func(err error) func(*Config) {
		return func(c *Config) { c.Store = lostWatch{proxy.NewMemory(proxy.MemoryConfig{}), err} }
	}
	for name, test := range map[string]struct {
		change func(*Config)
		err    error
		text   string
	}{
		"a provider":                      {fails(errBroken), errBroken, `provider "broken"`},
		"a provider, of somebody's end":   {fails(context.Canceled), context.Canceled, `provider "broken"`},
		"a provider, of somebody's delay": {fails(context.DeadlineExceeded), context.DeadlineExceeded, `provider "broken"`},
		"the watch":                       {watches(errBroken), errBroken, "watch of the store"},
		"the watch, without a reason":     {watches(nil), nil, "watch of the store"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, test.change).run()
				err := <-s.done
				if err == nil || test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestRunEnds: however the context ends, that is no failure.
func TestRunEnds(t *testing.T) {
	contexts := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"canceled": context.WithCancel,
		"with a cause": func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(parent)
			return ctx, func() { cancel(errors.New("the operator said so")) }
		},
		"out of time": func(parent context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(parent, 10*time.Second)
		},
		"from the start": func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(parent)
			cancel()
			return ctx, cancel
		},
	}
	for name, make := range contexts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, func(c *Config) {
					c.Providers["own"] = runner{&cloud{}, func(ctx context.Context) error {
						<-ctx.Done()
						return fmt.Errorf("own: %w", ctx.Err())
					}}
				})
				s.declare("one", proxy.Spec{Provider: "memory"})
				ctx, cancel := make(t.Context())
				defer cancel()
				time.AfterFunc(20*time.Second, cancel)
				if err := s.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// slowWatch is a store that delivers when it is told to.
type slowWatch struct {
	*proxy.Memory
	deliver chan proxy.Key
}

func (s slowWatch) Watch(ctx context.Context, fn func(proxy.Key)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case k := <-s.deliver:
			fn(k)
		}
	}
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliver := make(chan proxy.Key)
		s := newSite(t, func(c *Config) {
			c.Store = slowWatch{c.Store.(*proxy.Memory), deliver}
			c.Providers["memory"] = &cloud{create: func(ctx context.Context, _ provider.Request) (provider.Instance, error) {
				<-ctx.Done() // providers do not matter
				return provider.Instance{}, ctx.Err()
			}, journal: &journal{}}
		})
		for _, name := range []string{"one", "two", "three"} {
			s.declare(name, proxy.Spec{Provider: "memory"})
		}
		s.run()
		synctest.Wait()
		for _, name := range []string{"one", "two"} {
			if err := s.Ready(t.Context()); err == nil {
				t.Errorf("ready before %s was read", name)
			}
			deliver <- proxy.Key{Namespace: "default", Name: name}
			synctest.Wait()
		}
		if err := s.store.Delete(t.Context(), proxy.Key{Namespace: "default", Name: "three"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("all that is left was read: %v", err)
		}
		s.declare("four", proxy.Spec{Provider: "memory"})
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("ready no more: %v", err)
		}
		s.ends()
	})
}

// hanging is a provider whose looks take until somebody gives them up, while it is told to hang.
type hanging struct {
	provider.Provider
	hangs atomic.Bool
}

func (h *hanging) Get(ctx context.Context, r provider.Ref) (provider.Instance, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return provider.Instance{}, provider.Interrupted(ctx, "get")
	}
	return h.Provider.Get(ctx, r)
}

// TestUnhealthyIsNotLeased: from the verdict on, nobody is given a proxy whose probes fail, though no pass ends that could
// say so in its status, because the provider hangs. When probes succeed again, it is leased again.
func TestUnhealthyIsNotLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &hanging{}
		s := newSite(t, func(c *Config) {
			cloud.Provider = c.Providers["memory"]
			c.Providers["memory"], c.Intervals.Call = cloud, 24*time.Hour
		}).run()
		s.declare("one", proxy.Spec{Provider: "memory"})
		was := s.untilReady("one", 3128)
		verdict := func(want health.Verdict) {
			t.Helper()
			for range 300 {
				time.Sleep(time.Second)
				synctest.Wait()
				if got, _ := s.engine.Snapshot("default/one", was.Status.Instance.Incarnation); got.Verdict == want {
					return
				}
			}
			t.Fatalf("no verdict %s", want)
		}
		cloud.hangs.Store(true)
		for range 2 {
			s.sicken("192.0.2.1:3128", true)
			verdict(health.Unhealthy)
			if no, ok := errors.AsType[*lease.NoMatch](second(s.acquire())); !ok || no.Considered != 1 || no.Unhealthy != 1 || no.RetryAfter != 0 {
				t.Errorf("leased, or not for its health: %+v", no)
			}
			s.sicken("192.0.2.1:3128", false)
			verdict(health.Healthy)
			if _, err := s.acquire(); err != nil {
				t.Errorf("well again: %v", err)
			}
		}
		if p, err := s.store.Get(t.Context(), one); err != nil || p.Version != was.Version {
			t.Errorf("a pass has ended: %+v, %v", p.Status, err)
		}
		s.ends()
	})
}

// deafWatch is a store whose watch tells nothing while it is deaf.
type deafWatch struct {
	*proxy.Memory
	deaf atomic.Bool
}

func (s *deafWatch) Watch(ctx context.Context, fn func(proxy.Key)) error {
	return s.Memory.Watch(ctx, func(k proxy.Key) {
		if !s.deaf.Load() {
			fn(k)
		}
	})
}

// witness is a provider that says when it is told to delete.
type witness struct {
	provider.Provider
	deletes func()
}

func (w witness) Delete(ctx context.Context, r provider.Ref) error {
	w.deletes()
	return w.Provider.Delete(ctx, r)
}

// TestNothingIsDeletedWhileItIsOffered: an instance is deleted when nobody can lease it any more, and then it is, though the
// watch of the store never tells that its record was deleted, or edited: the passes that come by themselves see it.
func TestNothingIsDeletedWhileItIsOffered(t *testing.T) {
	for name, act := range map[string]func(s *site){
		"the record is deleted": func(s *site) {
			if err := s.store.Delete(s.t.Context(), one); err != nil {
				s.t.Fatal(err)
			}
		},
		"the record is edited": func(s *site) { s.declare("one", proxy.Spec{Provider: "memory", Port: 8080}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *site
				var deleted time.Time
				var store *deafWatch
				s = newSite(t, func(c *Config) {
					store = &deafWatch{Memory: c.Store.(*proxy.Memory)}
					c.Store = store
					c.Providers["memory"] = witness{c.Providers["memory"], func() {
						deleted = time.Now()
						if s.Leases().Offered("default/one") {
							t.Error("deleted while it could be leased")
						}
					}}
				}).run()
				s.declare("one", proxy.Spec{Provider: "memory"})
				s.untilReady("one", 3128)
				time.Sleep(10 * time.Minute)
				store.deaf.Store(true)
				began := time.Now()
				act(s)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if deleted.IsZero() || deleted.Sub(began) > time.Minute+5*time.Second {
					t.Errorf("deleted at %v, when it had been wanted since %v", deleted, began)
				}
				s.ends()
			})
		})
	}
}
