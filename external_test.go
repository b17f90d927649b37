package fleet

import (
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// outside is the record of an External proxy that was taken as it is that long ago.
func outside(ago time.Duration, edits ...edit) *proxy.Proxy {
	return declared(prepend(edits, func(p *proxy.Proxy) {
		external(p)
		p.Finalizer = false
		p.Status.Format, p.Status.ObservedGeneration, p.Status.Phase = proxy.StatusFormat, 3, proxy.Probing
		p.Status.Instance = proxy.Instance{Incarnation: hasher.Endpoint("uid-1", *p.Spec.Endpoint, secret.Text{}), Host: "192.0.2.9", Port: 3128}
		is(&p.Status, t0.Add(-ago), proxy.Resolved, proxy.True, ReasonResolved, "")
		is(&p.Status, t0.Add(-ago), proxy.Provisioned, proxy.True, ReasonExternalEndpoint, "")
	})...)
}

func healthyOutside(p *proxy.Proxy) {
	is(&p.Status, t0.Add(-time.Minute), proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
	p.Status.Phase, p.Status.LatencyMillis = proxy.Ready, 40
}

func TestExternal(t *testing.T) {
	endpoint := func(change func(*proxy.Endpoint)) edit {
		return func(p *proxy.Proxy) { change(p.Spec.Endpoint) }
	}
	// moved is what becomes of the status when the endpoint is another one.
	moved := func(e proxy.Endpoint, user string) func(*proxy.Status) {
		return func(s *proxy.Status) {
			left(s)
			s.Instance = proxy.Instance{Incarnation: hasher.Endpoint("uid-1", e, secret.New(user)), Host: e.Host, Port: e.Port}
			s.Phase = proxy.Probing
		}
	}
	user := func(w *world) {
		w.store.inputs = func() (proxy.Inputs, error) {
			return proxy.Inputs{Username: secret.New("user"), Password: secret.New("pass")}, nil
		}
	}
	retired := func(s *proxy.Status) {
		left(s)
		becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, "")
	}
	runRows(t, []row{
		{
			name:   "taken as it is: no finalizer, no call, no other look",
			record: declared(external, unfinalized),
			calls:  []string{"status Probing ExternalEndpoint"},
			change: func(s *proxy.Status) { *s = outside(0).Status },
		},
		{
			name:   "nothing changes",
			record: outside(time.Minute, healthyOutside),
		},
		{
			name:   "the verdict of the probes",
			record: outside(time.Minute),
			given: func(w *world) {
				w.reconciler.Health = verdict{outside(0).Status.Instance.Incarnation, health.Snapshot{Verdict: health.Healthy,
					Reported: health.Result{OK: true, Latency: 40 * time.Millisecond}}}
			},
			calls: []string{"status Ready ExternalEndpoint"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
				s.Phase, s.LatencyMillis = proxy.Ready, 40
			},
		},
		{
			name:   "another host is another proxy",
			record: outside(time.Minute, healthyOutside, endpoint(func(e *proxy.Endpoint) { e.Host = "192.0.2.10" })),
			calls:  []string{"status Probing ExternalEndpoint"},
			change: moved(proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.10", Port: 3128}, ""),
		},
		{
			name:   "another port",
			record: outside(time.Minute, healthyOutside, endpoint(func(e *proxy.Endpoint) { e.Port = 8080 })),
			calls:  []string{"status Probing ExternalEndpoint"},
			change: moved(proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.9", Port: 8080}, ""),
		},
		{
			name:   "another scheme",
			record: outside(time.Minute, healthyOutside, endpoint(func(e *proxy.Endpoint) { e.Scheme = proxy.SOCKS5 })),
			calls:  []string{"status Probing ExternalEndpoint"},
			change: moved(proxy.Endpoint{Scheme: proxy.SOCKS5, Host: "192.0.2.9", Port: 3128}, ""),
		},
		{
			name:   "another user",
			record: outside(time.Minute, healthyOutside),
			given:  user,
			calls:  []string{"status Probing ExternalEndpoint"},
			change: moved(proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.9", Port: 3128}, "user"),
		},
		{
			name:   "an edit that moves nothing",
			record: outside(time.Minute, healthyOutside, func(p *proxy.Proxy) { p.Spec.Attributes = map[string]string{"a": "b"} }),
		},
		{
			name:   "the references are not resolved: it goes on with what it has",
			record: outside(time.Minute, healthyOutside),
			given:  unresolved,
			calls:  []string{"status Ready ExternalEndpoint"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},
		{
			name:   "the references of a new one are not resolved",
			record: declared(external, unfinalized),
			given:  unresolved,
			calls:  []string{"status Pending"},
			change: func(s *proxy.Status) {
				s.Format, s.ObservedGeneration, s.Phase = proxy.StatusFormat, 3, proxy.Pending
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},

		// What follows must not happen, for stores refuse to change the mode. Should it, no instance is left behind.
		{
			name:   "it was Managed: the instance goes first",
			record: ready(time.Hour, external),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: retired,
			after:  5 * time.Second,
		},
		{
			name:   "it was Managed by a later release",
			record: ready(time.Hour, external),
			given: func(w *world) {
				in := there(provider.Running, "i-1")
				in.Marks.Hash = "v2-0"
				has(in)(w)
			},
			calls:  []string{"get cloud/a", "status Replacing Replacing", "delete cloud/a i-1"},
			change: retired,
			after:  5 * time.Second,
		},
		{
			name:   "it was Managed, and a create may be under way",
			record: planned(time.Minute, external),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "it was Managed, and the ID is free",
			record: planned(5*time.Minute, external),
			calls:  []string{"get cloud/a", "status Pending Provisioning"},
			change: func(s *proxy.Status) { forgotten(s); s.Phase = proxy.Pending },
			after:  time.Second,
		},
		{
			name:   "it was Managed, and nothing is left but the finalizer",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven, external),
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "it was Managed, and nothing is left",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven, external, unfinalized),
			calls:  []string{"status Probing ExternalEndpoint"},
			change: func(s *proxy.Status) {
				s.Instance = outside(0).Status.Instance
				becomes(s, proxy.Probing, proxy.True, ReasonExternalEndpoint, "")
			},
		},
	})
}

// TestExternalWithoutEndpoint: what no store lets pass is an error, not a panic.
func TestExternalWithoutEndpoint(t *testing.T) {
	w := newWorld(t, declared(unfinalized, func(p *proxy.Proxy) { p.Spec = proxy.Spec{Mode: proxy.External} }))
	if _, err := w.reconcile(); err == nil {
		t.Error("no error")
	}
}
