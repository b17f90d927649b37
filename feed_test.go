package fleet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// trough is a feed with what it feeds, in a bubble: an engine that runs, and a lease store.
type trough struct {
	t       *testing.T
	secrets *secrets
	store   *proxy.Memory
	feed    *feed
	engine  *health.Engine
	leases  *lease.Memory
	log     *paper
	stop    context.CancelFunc

	mu     sync.Mutex
	probed []health.Target
}

func newTrough(t *testing.T) *trough {
	f := &trough{t: t, secrets: &secrets{}, log: &paper{}}
	f.store = proxy.NewMemory(proxy.MemoryConfig{Fleet: "test", Secrets: f.secrets})
	var err error
	if f.engine, err = health.New(health.Config{Prober: health.ProberFunc(f.probe)}); err != nil {
		t.Fatal(err)
	}
	if f.leases, err = lease.NewMemory(lease.Config{}); err != nil {
		t.Fatal(err)
	}
	f.restart()
	var ctx context.Context
	ctx, f.stop = context.WithCancel(t.Context())
	go f.engine.Run(ctx)
	t.Cleanup(f.stop)
	return f
}

// restart makes the feed forget, as a new process does.
func (f *trough) restart() {
	f.feed = &feed{store: f.store, hasher: hasher, engine: f.engine, leases: f.leases, log: slog.New(slog.NewTextHandler(f.log, nil)),
		login: map[proxy.Key]login{}, defaults: proxy.HealthCheck{URL: "http://target.test/"}}
}

func (f *trough) probe(_ context.Context, t health.Target) health.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probed = append(f.probed, t)
	return health.Result{OK: true, Latency: 30 * time.Millisecond}
}

// put declares the proxy and gives it a status.
func (f *trough) put(spec proxy.Spec, change func(p *proxy.Proxy)) *proxy.Proxy {
	f.t.Helper()
	p, err := f.store.Put(f.t.Context(), one, proxy.Declaration{Spec: spec}, "test")
	if err != nil {
		f.t.Fatal(err)
	}
	return f.status(change, p)
}

// status changes the status of the proxy.
func (f *trough) status(change func(p *proxy.Proxy), p *proxy.Proxy) *proxy.Proxy {
	f.t.Helper()
	change(p)
	p, err := f.store.UpdateStatus(f.t.Context(), p)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// update feeds the proxy and returns the target that is probed next, if there is one.
func (f *trough) update() *health.Target {
	f.mu.Lock()
	f.probed = nil
	f.mu.Unlock()
	f.feed.update(f.t.Context(), one)
	f.engine.Hurry(one.String())
	time.Sleep(2 * time.Second)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.probed) == 0 {
		return nil
	}
	return &f.probed[len(f.probed)-1]
}

// acquire returns what a crawler is given, or why it is given nothing.
func (f *trough) acquire() (lease.Lease, *lease.NoMatch) {
	f.t.Helper()
	g, err := f.leases.Acquire(f.t.Context(), lease.Request{})
	if no, ok := errors.AsType[*lease.NoMatch](err); ok {
		return lease.Lease{}, no
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return g.Leases[0], nil
}

// refuses checks how many proxies there are of which none may be leased.
func (f *trough) refuses(considered int) {
	f.t.Helper()
	if l, no := f.acquire(); no == nil {
		f.t.Errorf("leased: %+v", l)
	} else if no.Considered != considered || no.Unhealthy != considered {
		f.t.Errorf("considered %d, unhealthy %d, want %d of both", no.Considered, no.Unhealthy, considered)
	}
}

// serves makes a record Ready, with an instance made from inputs.
func serves(incarnation string, in proxy.Inputs) func(*proxy.Proxy) {
	return func(p *proxy.Proxy) {
		p.Status = ready(time.Minute).Status
		p.Status.Instance.Incarnation = incarnation
		p.Status.Instance.Hash = hasher.Hash(p.UID, p.Spec, in)
	}
}

var (
	withLogin = proxy.Spec{Provider: "cloud", Credentials: &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "login"}}}
	oldLogin  = map[string]string{"username": "user", "password": "old"}
	newLogin  = map[string]string{"username": "user", "password": "new"}
	madeOld   = proxy.Inputs{Username: secret.New("user"), Password: secret.New("old")}
	madeNew   = proxy.Inputs{Username: secret.New("user"), Password: secret.New("new")}
)

func feeds(t *testing.T, name string, test func(t *testing.T, f *trough)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newTrough(t)) })
	})
}

func TestFeed(t *testing.T) {
	feeds(t, "a Ready proxy is probed and leased", func(t *testing.T, f *trough) {
		f.secrets.put("login", oldLogin)
		spec := withLogin.Clone()
		spec.Attributes, spec.MaxLeases = map[string]string{"region": "eu"}, 1
		spec.HealthCheck = proxy.HealthCheck{Interval: proxy.Duration(time.Minute), ExpectedStatus: []int32{200, 204},
			TLS: &proxy.TLS{ServerName: "inside"}}
		f.put(spec, serves("i-1", madeOld))
		got := f.update()
		if got == nil {
			t.Fatal("not probed")
		}
		if got.TLS == nil || got.TLS.ServerName != "inside" || got.ProxyTLS != nil {
			t.Errorf("TLS %v, of the proxy %v", got.TLS, got.ProxyTLS)
		}
		got.TLS = nil
		want := health.Target{Key: "default/one", Incarnation: "i-1", Scheme: "http", Host: "192.0.2.1", Port: 3128,
			User: madeOld.Username, Password: madeOld.Password, URL: "http://target.test/", ExpectedStatus: []int{200, 204},
			Interval: time.Minute, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3,
			Seed: health.Healthy, SeedLatency: 40 * time.Millisecond}
		if diff := cmp.Diff(want, *got, cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Errorf("target (-want +got):\n%s", diff)
		}
		l, _ := f.acquire()
		endpoint := lease.Endpoint{Namespace: "default", Name: "one", Scheme: "http", Host: "192.0.2.1", Port: 3128,
			User: madeOld.Username, Password: madeOld.Password, Attributes: spec.Attributes}
		if diff := cmp.Diff(endpoint, l.Proxy, cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Errorf("leased (-want +got):\n%s", diff)
		}
		if _, no := f.acquire(); no == nil || no.AtCapacity != 1 {
			t.Errorf("a second lease of one: %+v", no)
		}
	})

	feeds(t, "the verdict of an earlier process holds until probes say otherwise", func(t *testing.T, f *trough) {
		f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.feed.update(t.Context(), one)
		s, known := f.engine.Snapshot("default/one", "i-1")
		if !known || s.Verdict != health.Healthy || s.Reported.Latency != 40*time.Millisecond {
			t.Errorf("snapshot %+v, %v", s, known)
		}
	})

	feeds(t, "removed", func(t *testing.T, f *trough) {
		f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.update()
		if err := f.store.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if got := f.update(); got != nil {
			t.Errorf("still probed: %+v", got)
		}
		f.refuses(0)
		if len(f.feed.login) != 0 {
			t.Error("its credentials are kept")
		}
	})

	feeds(t, "being deleted", func(t *testing.T, f *trough) {
		p := f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		p.Finalizer = true
		if _, err := f.store.UpdateMeta(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		f.update()
		l, _ := f.acquire()
		if err := f.store.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if got := f.update(); got != nil {
			t.Errorf("still probed: %+v", got)
		}
		f.refuses(0)
		if _, err := f.leases.Renew(t.Context(), l.ID, 0); !errors.Is(err, lease.ErrProxyGone) {
			t.Errorf("its lease: %v", err)
		}
		if len(f.feed.login) != 0 {
			t.Error("its credentials are kept")
		}
	})

	feeds(t, "without an address", func(t *testing.T, f *trough) {
		p := f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.update()
		f.status(func(p *proxy.Proxy) { left(&p.Status) }, p)
		if got := f.update(); got != nil {
			t.Errorf("still probed: %+v", got)
		}
		f.refuses(1)
		if log := f.log.String(); log != "" {
			t.Errorf("that is nothing to log: %s", log)
		}
	})

	feeds(t, "phases: only Ready is leased, and all with an address are probed", func(t *testing.T, f *trough) {
		p := f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		for _, phase := range []proxy.Phase{proxy.Probing, proxy.Unhealthy, proxy.Replacing, proxy.Provisioning, proxy.Failed} {
			p = f.status(func(p *proxy.Proxy) { p.Status.Phase = phase }, p)
			if f.update() == nil {
				t.Errorf("%s: not probed", phase)
			}
			f.refuses(1)
		}
		f.status(func(p *proxy.Proxy) { p.Status.Phase = proxy.Ready }, p)
		f.update()
		if _, no := f.acquire(); no != nil {
			t.Errorf("Ready again: %v", no)
		}
	})

	feeds(t, "a rotated password: the instance serves on with the one that it was made with", func(t *testing.T, f *trough) {
		f.secrets.put("login", oldLogin)
		p := f.put(withLogin, serves("i-1", madeOld))
		f.update()
		f.secrets.put("login", newLogin)
		for range 2 {
			if got := f.update(); got == nil || !got.Password.Equal(madeOld.Password) {
				t.Errorf("probed: %+v", got)
			}
			if l, _ := f.acquire(); !l.Proxy.Password.Equal(madeOld.Password) {
				t.Errorf("leased with another password")
			}
		}
		f.status(serves("i-2", madeNew), p)
		if got := f.update(); got == nil || !got.Password.Equal(madeNew.Password) {
			t.Errorf("the successor is probed: %+v", got)
		}
		if l, _ := f.acquire(); !l.Proxy.Password.Equal(madeNew.Password) {
			t.Errorf("the successor is leased with another password")
		}
	})

	feeds(t, "rotated while nobody ran: what is there is leased when a probe says that the new password fits", func(t *testing.T, f *trough) {
		f.secrets.put("login", newLogin)
		f.put(withLogin, serves("i-1", madeOld))
		f.feed.update(t.Context(), one) // before any probe
		f.refuses(1)
		if got := f.update(); got == nil || !got.Password.Equal(madeNew.Password) || got.Seed != health.Unknown {
			t.Errorf("probed: %+v", got)
		}
		f.feed.update(t.Context(), one) // as the news of the verdict brings it about
		if l, no := f.acquire(); no != nil || !l.Proxy.Password.Equal(madeNew.Password) {
			t.Errorf("leased: %v, %v", l, no)
		}
	})

	feeds(t, "an old password is not the successor's", func(t *testing.T, f *trough) {
		f.secrets.put("login", oldLogin)
		p := f.put(withLogin, serves("i-1", madeOld))
		f.update()
		f.secrets.put("login", nil)
		f.status(serves("i-2", madeNew), p)
		if got := f.update(); got != nil {
			t.Errorf("probed: %+v", got)
		}
		f.refuses(1)
	})

	feeds(t, "the Secret is gone: it goes on with what it was made with", func(t *testing.T, f *trough) {
		f.secrets.put("login", oldLogin)
		f.put(withLogin, serves("i-1", madeOld))
		f.update()
		f.secrets.put("login", nil)
		if got := f.update(); got == nil || !got.Password.Equal(madeOld.Password) {
			t.Errorf("probed: %+v", got)
		}
		if l, no := f.acquire(); no != nil || !l.Proxy.Password.Equal(madeOld.Password) {
			t.Errorf("leased: %v, %v", l, no)
		}
		f.restart()
		if got := f.update(); got != nil {
			t.Errorf("probed by a process that never knew the Secret: %+v", got)
		}
		f.refuses(1)
	})

	feeds(t, "replaced: probes start afresh", func(t *testing.T, f *trough) {
		p := f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.update()
		f.status(func(p *proxy.Proxy) {
			left(&p.Status)
			p.Status.Instance.Incarnation, p.Status.Instance.Host, p.Status.Instance.Port = "i-2", "192.0.2.2", 3128
			p.Status.Phase = proxy.Probing
		}, p)
		f.feed.update(t.Context(), one)
		if s, known := f.engine.Snapshot("default/one", "i-2"); !known || s.Verdict != health.Unknown {
			t.Errorf("snapshot of the successor: %+v, %v", s, known)
		}
		if got := f.update(); got == nil || got.Incarnation != "i-2" || got.Host != "192.0.2.2" || got.Seed != health.Unknown {
			t.Errorf("probed: %+v", got)
		}
	})

	feeds(t, "External", func(t *testing.T, f *trough) {
		f.secrets.put("login", oldLogin)
		spec := proxy.Spec{Mode: proxy.External, Credentials: withLogin.Credentials,
			Endpoint: &proxy.Endpoint{Scheme: proxy.HTTPS, Host: "gw.test", Port: 443, TLS: &proxy.TLS{ServerName: "gw", InsecureSkipVerify: true}}}
		taken := func(p *proxy.Proxy) {
			p.Status = outside(time.Minute, healthyOutside).Status
			p.Status.Instance.Host, p.Status.Instance.Port = "gw.test", 443
			p.Status.Instance.Incarnation = hasher.Endpoint(p.UID, *spec.Endpoint, madeOld.Username)
		}
		f.put(spec, taken)
		got := f.update()
		if got == nil || got.Scheme != "https" || got.Host != "gw.test" || got.Port != 443 || !got.Password.Equal(madeOld.Password) ||
			got.ProxyTLS == nil || got.ProxyTLS.ServerName != "gw" || !got.ProxyTLS.InsecureSkipVerify || got.TLS != nil {
			t.Errorf("probed: %+v", got)
		}
		if l, no := f.acquire(); no != nil || l.Proxy.Scheme != "https" {
			t.Errorf("leased: %+v, %v", l.Proxy, no)
		}
		f.secrets.put("login", newLogin) // of an endpoint that somebody else runs, the newest is right
		if got := f.update(); got == nil || !got.Password.Equal(madeNew.Password) {
			t.Errorf("probed: %+v", got)
		}
		f.secrets.put("login", nil)
		if got := f.update(); got == nil || !got.Password.Equal(madeNew.Password) {
			t.Errorf("probed without its Secret: %+v", got)
		}
		f.secrets.put("login", newLogin)
		edited := spec.Clone()
		edited.Endpoint.Host = "other.test"
		f.put(edited, func(*proxy.Proxy) {})
		if got := f.update(); got != nil {
			t.Errorf("probed before a pass has seen the new endpoint: %+v", got)
		}
		f.refuses(1)
	})

	feeds(t, "certificates that cannot be read", func(t *testing.T, f *trough) {
		f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.update()
		spec := proxy.Spec{Provider: "cloud", HealthCheck: proxy.HealthCheck{TLS: &proxy.TLS{CA: "no certificate"}}}
		if _, err := target(&proxy.Proxy{Spec: spec}, proxy.Inputs{}, spec.HealthCheck); err == nil {
			t.Fatal("no error")
		}
		// No store takes such a spec; the defaults of the fleet are not a store's.
		f.feed.defaults = spec.HealthCheck
		if got := f.update(); got != nil {
			t.Errorf("probed: %+v", got)
		}
		f.refuses(1)
		if log := f.log.String(); !strings.Contains(log, "spec.healthCheck.tls.ca") || !strings.Contains(log, "default/one") {
			t.Errorf("the log does not say why:\n%s", log)
		}
	})

	feeds(t, "the store fails: probes and leases go by what they know", func(t *testing.T, f *trough) {
		f.put(proxy.Spec{Provider: "cloud"}, serves("i-1", proxy.Inputs{}))
		f.update()
		f.feed.store = unreadable{&ledger{Memory: f.store}, t0.Add(time.Hour)}
		if f.update() == nil {
			t.Error("not probed")
		}
		if _, no := f.acquire(); no != nil {
			t.Errorf("not leased: %v", no)
		}
		if !strings.Contains(f.log.String(), "default/one") {
			t.Errorf("the log: %s", f.log)
		}
	})
}
