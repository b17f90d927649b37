package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// feed tells the health engine what to probe and the lease store what to lease, record by record. Whoever has news of a
// record calls update, from any goroutine.
type feed struct {
	store    proxy.Store
	hasher   *Hasher
	engine   *health.Engine
	leases   *lease.Memory
	defaults proxy.HealthCheck
	log      *slog.Logger

	// mu makes reading a record and telling of it one step, so that what was read last is what was told last.
	mu sync.Mutex
	// login is what each incarnation was made with. After a rotation the old instance serves on, with its old password,
	// until its turn to be replaced.
	login map[proxy.Key]login
}

type login struct {
	incarnation string
	inputs      proxy.Inputs
}

// update takes over a record as it is now, and what the engine says of its instance.
func (f *feed) update(ctx context.Context, k proxy.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.store.Get(ctx, k)
	switch {
	case errors.Is(err, proxy.ErrNotFound):
		f.forget(k)
		f.leases.Remove(k.String())
		return
	case err != nil:
		f.log.WarnContext(ctx, "record not read: probes and leases go by the last one", "proxy", k, "err", err)
		return
	case p.Deleting:
		f.forget(k)
		f.leases.Remove(k.String())
		return
	}
	in, fit := f.inputs(ctx, p)
	probed := fit != none && p.Status.Instance.Host != "" && !f.edited(p, in) && f.probe(ctx, p, in, fit)
	if !probed {
		f.engine.Remove(k.String())
	}
	f.leases.Set(candidate(p, in, probed && f.well(p, fit)))
}

func (f *feed) forget(k proxy.Key) {
	delete(f.login, k)
	f.engine.Remove(k.String())
}

// fit is how well the inputs at hand are known to be those that an instance was made with.
type fit int

const (
	none   fit = iota // there are none at hand
	newest            // they are the newest; a probe has to show whether the instance takes them
	original
)

// inputs returns what the instance was made with, as far as that is known.
func (f *feed) inputs(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, fit) {
	in, err := f.store.Inputs(ctx, p)
	instance := p.Status.Instance
	if err == nil && (p.Spec.Mode == proxy.External || f.hasher.Matches(instance.Hash, p.UID, p.Spec, in)) {
		f.login[p.Key] = login{instance.Incarnation, in}
		return in, original
	}
	if last, ok := f.login[p.Key]; ok && last.incarnation == instance.Incarnation {
		return last.inputs, original
	}
	if err != nil {
		return in, none
	}
	return in, newest
}

// well says whether probes of this process have nothing against leasing the instance. The status says so too, but only after
// a pass, which waits for a provider. Where it is not known that the inputs fit, probes must have shown it.
func (f *feed) well(p *proxy.Proxy, fit fit) bool {
	s, _ := f.engine.Snapshot(p.Key.String(), p.Status.Instance.Incarnation)
	if fit == original {
		return s.Verdict != health.Unhealthy
	}
	return s.Verdict == health.Healthy
}

// edited says whether the spec of an External proxy names another endpoint than the status: until the next pass has seen
// that, it would be spoken to in a way that belongs to neither.
func (f *feed) edited(p *proxy.Proxy, in proxy.Inputs) bool {
	return p.Spec.Mode == proxy.External && p.Status.Instance.Incarnation != f.hasher.Endpoint(p.UID, *p.Spec.Endpoint, in.Username)
}

// probe has the engine probe the instance, and says whether it does.
func (f *feed) probe(ctx context.Context, p *proxy.Proxy, in proxy.Inputs, fit fit) bool {
	t, err := target(p, in, p.Spec.HealthCheck.WithDefaults(f.defaults))
	if fit != original {
		t.Seed = health.Unknown // the verdict in the status was not on these inputs
	}
	if err == nil {
		err = f.engine.Set(t)
	}
	if err != nil {
		f.log.ErrorContext(ctx, "proxy cannot be probed, and so is not leased", "proxy", p.Key, "err", err)
	}
	return err == nil
}

// endpoint is where a proxy listens and how it is spoken to.
func endpoint(p *proxy.Proxy, in proxy.Inputs) lease.Endpoint {
	scheme := proxy.HTTP
	if p.Spec.Mode == proxy.External {
		scheme = p.Spec.Endpoint.Scheme
	}
	return lease.Endpoint{Namespace: p.Namespace, Name: p.Name, Scheme: string(scheme), Host: p.Status.Instance.Host,
		Port: int(p.Status.Instance.Port), User: in.Username, Password: in.Password}
}

// candidate is what the lease store is to know. Only what is Ready may be leased, and only while it is probed and no probes
// speak against it.
func candidate(p *proxy.Proxy, in proxy.Inputs, leasable bool) lease.Candidate {
	return lease.Candidate{
		Key:         p.Key.String(),
		Incarnation: p.Status.Instance.Incarnation,
		Endpoint:    endpoint(p, in),
		Attributes:  p.Spec.Attributes,
		MaxLeases:   int(p.Spec.MaxLeases),
		Healthy:     leasable && p.Status.Phase == proxy.Ready,
		Latency:     time.Duration(p.Status.LatencyMillis) * time.Millisecond,
	}
}

// target is what the engine is to probe. The verdict in the status is for an engine that does not know the proxy yet.
func target(p *proxy.Proxy, in proxy.Inputs, check proxy.HealthCheck) (health.Target, error) {
	e := endpoint(p, in)
	t := health.Target{
		Key: p.Key.String(), Incarnation: p.Status.Instance.Incarnation,
		Scheme: e.Scheme, Host: e.Host, Port: e.Port, User: in.Username, Password: in.Password,
		URL: check.URL, Interval: time.Duration(check.Interval), Timeout: time.Duration(check.Timeout),
		SuccessThreshold: int(check.SuccessThreshold), FailureThreshold: int(check.FailureThreshold),
		Seed: seed(p), SeedLatency: time.Duration(p.Status.LatencyMillis) * time.Millisecond,
	}
	for _, code := range check.ExpectedStatus {
		t.ExpectedStatus = append(t.ExpectedStatus, int(code))
	}
	var err, proxyErr error
	if t.TLS, err = tlsConfig("spec.healthCheck.tls", check.TLS); p.Spec.Mode == proxy.External {
		t.ProxyTLS, proxyErr = tlsConfig("spec.endpoint.tls", p.Spec.Endpoint.TLS)
	}
	return t, errors.Join(err, proxyErr)
}

func seed(p *proxy.Proxy) health.Verdict {
	switch c, _ := p.Status.Condition(proxy.Healthy); c.Status {
	case proxy.True:
		return health.Healthy
	case proxy.False:
		return health.Unhealthy
	}
	return health.Unknown
}

// tlsConfig is how a certificate is verified; nil is the system's way.
func tlsConfig(field string, t *proxy.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // the operator's word
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, fmt.Errorf("%s.ca: holds no certificate that can be read", field)
		}
	}
	return c, nil
}
