package fleet_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// A fleet of proxies that exist already: they are declared, probed and leased.
func Example() {
	// A proxy that answers for every site itself; yours has an address of its own.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())

	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "crawl"})
	f, err := fleet.New(fleet.Config{
		Fleet:       "crawl",
		Store:       store,
		HealthCheck: proxy.HealthCheck{URL: "http://target.test/"}, // is requested through each proxy
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()

	spec := fleet.Spec{
		Mode:       proxy.External,
		Endpoint:   &proxy.Endpoint{Scheme: proxy.HTTP, Host: address.Addr().String(), Port: int32(address.Port())},
		Attributes: map[string]string{"region": "eu"},
	}
	if _, err := store.Put(ctx, fleet.Key{Namespace: "default", Name: "berlin"}, proxy.Declaration{Spec: spec}, "example"); err != nil {
		fmt.Println(err)
	}

	l, err := acquire(ctx, f.Leases(), lease.Request{Selector: map[string]string{"region": "eu"}, Target: "shop.test"})
	fmt.Println(l.Proxy.Name, l.Proxy.Scheme, l.Target, err)
	fmt.Println(f.Leases().Report(ctx, l.ID, lease.Report{Outcome: lease.Banned}))

	cancel()
	fmt.Println(<-ended)
	// Output:
	// berlin http shop.test <nil>
	// <nil>
	// <nil>
}

// acquire asks until there is a proxy that is known to be healthy.
func acquire(ctx context.Context, leases lease.Store, r lease.Request) (lease.Lease, error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		g, err := leases.Acquire(ctx, r)
		if err == nil {
			return g.Leases[0], nil
		}
		select {
		case <-ctx.Done():
			return lease.Lease{}, err
		case <-again.C:
		}
	}
}

// Store, provider, prober and policy are contracts: a fleet takes any that fulfil them.
func Example_contracts() {
	store := audited{proxy.NewMemory(proxy.MemoryConfig{Fleet: "crawl"}), make(chan fleet.Status, 100)}
	f, err := fleet.New(fleet.Config{
		Fleet:     "crawl",
		Store:     store,
		Providers: map[string]provider.Provider{"rack": &rack{hosts: []string{"10.0.0.1", "10.0.0.2"}}},
		Health:    health.Config{Prober: health.ProberFunc(ping), Tick: 10 * time.Millisecond},
		Lease:     lease.Config{Policy: fullestFirst{}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()

	for _, name := range []string{"first", "second"} {
		spec := fleet.Spec{Provider: "rack", Placement: proxy.Placement{Zone: "basement"}, MaxLeases: 2}
		if _, err := store.Put(ctx, fleet.Key{Namespace: "default", Name: name}, proxy.Declaration{Spec: spec}, "example"); err != nil {
			fmt.Println(err)
		}
		for s := range store.written {
			fmt.Println(name, "is", s.Phase, "at", cmp.Or(s.Instance.Host, "no address yet"))
			if s.Phase == proxy.Ready {
				break
			}
		}
		if _, err := acquire(ctx, f.Leases(), lease.Request{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("leases:", f.Leases().Active("default/first"), f.Leases().Active("default/second"))

	cancel()
	fmt.Println(<-ended)
	// Output:
	// first is Provisioning at no address yet
	// first is Probing at 10.0.0.1
	// first is Ready at 10.0.0.1
	// second is Provisioning at no address yet
	// second is Probing at 10.0.0.2
	// second is Ready at 10.0.0.2
	// leases: 2 0
	// <nil>
}

// audited is a store that shows each status that is written to another store.
type audited struct {
	*proxy.Memory
	written chan fleet.Status
}

func (a audited) UpdateStatus(ctx context.Context, p *fleet.Proxy) (*fleet.Proxy, error) {
	p, err := a.Memory.UpdateStatus(ctx, p)
	if err == nil {
		a.written <- p.Status
	}
	return p, err
}

// fullestFirst is a policy that uses one proxy up before it touches the next.
type fullestFirst struct{}

func (fullestFirst) Rank(s lease.Standing) lease.Rank {
	return lease.Rank{A: uint64(s.MaxLeases - s.Active)}
}

// ping is a prober that believes whatever has an address.
func ping(_ context.Context, t health.Target) health.Result {
	if t.Host == "" {
		return health.Result{Party: health.PartyConfig, Message: "there is no address"}
	}
	return health.Result{OK: true, Latency: 5 * time.Millisecond}
}

// rack is a provider of machines that stand in a rack: to make an instance is to take the next one that is free.
type rack struct {
	mu        sync.Mutex
	hosts     []string // that are free
	taken     int
	instances map[string]provider.Instance
}

func (r *rack) Plan(q provider.Request) (string, error) {
	if q.Placement.MachineType != "" {
		return "", provider.Unsupported("plan", "placement.machineType")
	}
	return q.Placement.Zone + "/" + q.Name, nil
}

func (r *rack) Create(ctx context.Context, q provider.Request) (provider.Instance, error) {
	id, err := r.Plan(q)
	if err := cmp.Or(err, provider.Interrupted(ctx, "create")); err != nil {
		return provider.Instance{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if in, there := r.instances[id]; there {
		return in, nil
	}
	if len(r.hosts) == 0 {
		return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrQuotaExceeded, Reason: "RackFull"}
	}
	if r.instances == nil {
		r.instances = map[string]provider.Instance{}
	}
	r.taken++
	r.instances[id] = provider.Instance{ID: id, Incarnation: fmt.Sprint("slot-", r.taken), Marks: q.Marks, State: provider.Running,
		Host: r.hosts[0], Port: q.Port, Created: time.Now()}
	r.hosts = r.hosts[1:]
	return r.instances[id], nil
}

func (r *rack) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	if err := provider.Interrupted(ctx, "get"); err != nil {
		return provider.Instance{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in, there := r.instances[ref.ID]
	if !there || in.Marks.UID != ref.UID {
		return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrNotFound}
	}
	return in, nil
}

func (r *rack) Delete(ctx context.Context, ref provider.Ref) error {
	if err := provider.Interrupted(ctx, "delete"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in, there := r.instances[ref.ID]
	if there && in.Marks.UID == ref.UID && (ref.Incarnation == "" || ref.Incarnation == in.Incarnation) {
		delete(r.instances, ref.ID)
		r.hosts = append(r.hosts, in.Host)
	}
	return nil
}

func (r *rack) List(ctx context.Context) (all []provider.Instance, err error) {
	if err := provider.Interrupted(ctx, "list"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.instances {
		all = append(all, in)
	}
	return all, nil
}

// A configuration's error names everything that is wrong with it.
func ExampleNew() {
	_, err := fleet.New(fleet.Config{Fleet: "Crawl", MaxInstances: map[string]int{"rack": 10}})
	for line := range strings.Lines(err.Error()) {
		fmt.Print(line)
	}
	// Output:
	// fleet: configuration: Fleet: must be 1 to 63 characters of [a-z0-9-], not "Crawl"
	// Store: is required
	// MaxInstances["rack"]: must be a positive number for a configured provider
}

// An explanation says why a proxy is as it is: here nothing can be made, for its provider is a slip of the pen.
func ExampleFleet_Explain() {
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "crawl"})
	f, err := fleet.New(fleet.Config{Fleet: "crawl", Store: store, Providers: map[string]provider.Provider{"rack": &rack{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := fleet.Key{Namespace: "default", Name: "berlin"}
	if _, err := store.Put(context.Background(), key, proxy.Declaration{Spec: fleet.Spec{Provider: "rakc"}}, "example"); err != nil {
		fmt.Println(err)
	}
	e, err := f.Explain(context.Background(), key)
	fmt.Println(e.Problem, err)
	// Output: plan: UnknownProvider: no provider "rakc" is configured <nil>
}
