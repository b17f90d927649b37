package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// demoToken is what those who look at the demonstration have to know.
const demoToken = "correct-horse-battery"

// demo is a fleet with something to see: most of it is well, some of it is not, for reasons that look like real ones.
type demo struct {
	store  *proxy.Memory
	config discovery.Config
}

func newDemo(t testing.TB) *demo {
	t.Helper()
	d := &demo{store: proxy.NewMemory(proxy.MemoryConfig{Fleet: "crawl-eu"})}
	active := map[string]int{}
	for i := range 12 {
		city := [...]string{"amsterdam", "berlin", "paris", "warsaw"}[i%4]
		key := proxy.Key{Namespace: "crawl", Name: fmt.Sprintf("%s-%d", city, i/4+1)}
		active[key.String()] = [...]int{3, 0, 10, 7, 1}[i%5]
		put(t, d.store, key, proxy.Spec{Provider: "gcp", Attributes: map[string]string{"region": "eu", "city": city}},
			demoStatus("gcp", fmt.Sprintf("203.0.113.%d", 10+i), int64(38+i*i*3)))
	}
	external := proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTPS, Host: "gate.example.net", Port: 443}}
	put(t, d.store, proxy.Key{Namespace: "research", Name: "residential"}, external,
		demoStatus("", "gate.example.net", 412))
	put(t, d.store, proxy.Key{Namespace: "crawl", Name: "rack-1"}, proxy.Spec{Provider: "rack"}, troubled(
		demoStatus("rack", "192.0.2.14", 0), proxy.Unhealthy, proxy.Healthy, "ProbeFailed", "dial: no answer from 192.0.2.14:3128 within 10s", 4*time.Minute))
	put(t, d.store, proxy.Key{Namespace: "crawl", Name: "rack-2"}, proxy.Spec{Provider: "rack"}, troubled(
		proxy.Status{}, proxy.Failed, proxy.Provisioned, "PermanentError", "ImageNotFound: pool default has no volume debian-13.qcow2", 3*time.Hour))
	put(t, d.store, proxy.Key{Namespace: "crawl", Name: "madrid-1"}, proxy.Spec{Provider: "gcp"}, troubled(
		proxy.Status{}, proxy.Provisioning, proxy.Provisioned, "Provisioning", "", 40*time.Second))
	d.config = discovery.Config{
		Name: "crawl-eu", Proxies: d.store, Leases: &leases{}, Token: secret.New(demoToken),
		ActiveLeases: func() map[string]int { return active },
		Cooldowns:    func() int { return 17 },
		Held:         func() map[string]int { return map[string]int{"rack": 4} },
		Providers:    demoProviders,
		Explain:      d.explain,
	}
	return d
}

func demoStatus(provider, host string, latency int64) proxy.Status {
	s := proxy.Status{
		Phase:         proxy.Ready,
		Instance:      proxy.Instance{Provider: provider, Host: host, Port: 3128, Attempt: 1, Planned: ago(26 * time.Hour)},
		LatencyMillis: latency, LastHealthCheckTime: ago(12 * time.Minute), ObservedGeneration: 1,
	}
	switch provider {
	case "gcp":
		s.Instance.ID, s.Instance.Incarnation = "zones/europe-west3-a/instances/proxy-4mzqk2vd7xw3n5ha", "7301846529910773645"
	case "rack":
		s.Instance.ID, s.Instance.Incarnation = "hosts/kvm-2/domains/proxy-w7c2dq5xkz3mvn4b", "0b0e1c5e-6a35-4a55-9d4b-3f6f0d2b7c11"
	}
	s.SetCondition(proxy.Condition{Type: proxy.Healthy, Status: proxy.True, Reason: "ProbeSucceeded", LastTransitionTime: ago(25 * time.Hour)})
	s.SetCondition(proxy.Condition{Type: proxy.Provisioned, Status: proxy.True, Reason: "Created", LastTransitionTime: ago(26 * time.Hour)})
	s.SetCondition(proxy.Condition{Type: proxy.Resolved, Status: proxy.True, Reason: "Resolved", LastTransitionTime: ago(26 * time.Hour)})
	return s
}

func troubled(s proxy.Status, phase proxy.Phase, aspect proxy.ConditionType, reason, message string, since time.Duration) proxy.Status {
	s.Phase = phase
	s.RemoveCondition(aspect)
	s.SetCondition(proxy.Condition{Type: aspect, Status: proxy.False, Reason: reason, Message: message, LastTransitionTime: ago(since)})
	return s
}

func ago(d time.Duration) proxy.Time { return proxy.At(time.Now().Add(-d)) }

func demoProviders() []monitor.Result {
	now := time.Now()
	target := func(name string, ready bool, reason, message string) monitor.Target {
		return monitor.Target{
			TargetStatus: provider.TargetStatus{Target: name, Ready: ready, Reason: reason, Message: message},
			Since:        now.Add(-4 * time.Minute), Checked: now.Add(-20 * time.Second), Took: 80 * time.Millisecond,
		}
	}
	return []monitor.Result{
		{Provider: "gcp", CanCheck: true, Checked: now, Targets: []monitor.Target{target("projects/crawl-eu", true, "", "")}},
		{Provider: "rack", CanCheck: true, Checked: now, Targets: []monitor.Target{
			target("kvm-1", true, "", ""), target("kvm-2", false, "Unreachable", "ssh: no route to host 192.0.2.2"), target("kvm-3", true, "", ""),
		}},
	}
}

// explain tells of every proxy what can be told of one.
func (d *demo) explain(ctx context.Context, k proxy.Key) (discovery.Explanation, error) {
	p, err := d.store.Get(ctx, k)
	if err != nil {
		return discovery.Explanation{}, err
	}
	now := time.Now()
	return discovery.Explanation{
		Proxy:    p,
		Observed: &discovery.Observation{State: "Running", Incarnation: p.Status.Instance.Incarnation, Host: p.Status.Instance.Host},
		Probes: []discovery.Probe{
			{At: now.Add(-9 * time.Second), Party: "dial", Message: "no answer from 192.0.2.14:3128 within 10s", Latency: 10 * time.Second},
			{At: now.Add(-39 * time.Second), Party: "dial", Message: "no answer from 192.0.2.14:3128 within 10s", Latency: 10 * time.Second},
			{At: now.Add(-69 * time.Second), OK: true, Latency: 83 * time.Millisecond, StatusCode: 204},
		},
		Leases: []discovery.OpenLease{
			{Target: "shop.example.com", Granted: now.Add(-3 * time.Minute), Expires: now.Add(2 * time.Minute)},
			{Expires: now.Add(4 * time.Minute)},
		},
		Cooldowns: []discovery.Cooldown{
			{Target: "news.example.org", Until: now.Add(7 * time.Minute)},
			{Target: "maps.example.com", Until: now.Add(-time.Minute), HalfOpen: true},
		},
		LastPass: &discovery.Pass{At: now.Add(-15 * time.Second), Took: 210 * time.Millisecond, Next: now.Add(45 * time.Second),
			Err: errors.New("get: transient: ssh: no route to host 192.0.2.2")},
	}, nil
}

// become puts a proxy into another state.
func (d *demo) become(t testing.TB, k proxy.Key, change func(*proxy.Status)) {
	t.Helper()
	p, err := d.store.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	change(&p.Status)
	if _, err := d.store.UpdateStatus(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}
