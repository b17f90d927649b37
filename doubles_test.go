package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// t0 is when a bubble begins.
var t0 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// one is the proxy that the tests of a single pass are about.
var one = proxy.Key{Namespace: "default", Name: "one"}

// hasher hashes for all tests of this package; it may be used concurrently, and its cache saves time.
var hasher = NewHasher("test")

// journal is what happened, in one order: writes of the store and calls of providers.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns what happened since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// ledger is a store that notes its writes. A write that would change nothing is noted as "compare".
type ledger struct {
	*proxy.Memory
	journal *journal
	inputs  func() (proxy.Inputs, error) // nil: what the references of the spec lead to
	refuse  error                        // what writes answer; nil: they are done

	mu      sync.Mutex
	written []proxy.Status
}

func (l *ledger) Inputs(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, error) {
	if l.inputs != nil {
		return l.inputs()
	}
	return l.Memory.Inputs(ctx, p)
}

func (l *ledger) UpdateMeta(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	l.journal.note("finalizer %v", p.Finalizer)
	if l.refuse != nil {
		return nil, l.refuse
	}
	return l.Memory.UpdateMeta(ctx, p)
}

func (l *ledger) UpdateStatus(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	c, _ := p.Status.Condition(proxy.Provisioned)
	if was, err := l.Get(ctx, p.Key); err == nil && was.Status.Equal(p.Status) {
		l.journal.note("compare")
	} else {
		l.journal.note("%s", strings.TrimSpace(fmt.Sprintf("status %s %s", p.Status.Phase, c.Reason)))
	}
	if l.refuse != nil {
		return nil, l.refuse
	}
	l.mu.Lock()
	l.written = append(l.written, p.Status.Clone())
	l.mu.Unlock()
	return l.Memory.UpdateStatus(ctx, p)
}

// cloud is a provider that notes its calls and answers what a test says. It plans an ID from its name and the zone, so
// that an edit of the zone, and no other, asks for another ID.
type cloud struct {
	name    string
	journal *journal
	plan    func(provider.Request) error
	create  func(context.Context, provider.Request) (provider.Instance, error)
	get     func(context.Context) (provider.Instance, error)
	delete  func(context.Context) error

	mu       sync.Mutex
	requests []provider.Request
	deadline time.Time // of the last create
}

var _ provider.Provider = (*cloud)(nil)

func (c *cloud) Plan(r provider.Request) (string, error) {
	if c.plan != nil {
		if err := c.plan(r); err != nil {
			return "", err
		}
	}
	return c.name + "/" + cmp.Or(r.Placement.Zone, "a"), nil
}

func (c *cloud) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	id, _ := c.Plan(r)
	c.journal.note("create %s", id)
	c.mu.Lock()
	c.requests = append(c.requests, r)
	c.deadline, _ = ctx.Deadline()
	c.mu.Unlock()
	if c.create == nil {
		return provider.Instance{ID: id, Incarnation: "i-1", Marks: r.Marks, State: provider.Provisioning}, nil
	}
	in, err := c.create(ctx, r)
	if in.Marks == (provider.Marks{}) {
		in.Marks = r.Marks
	}
	in.ID = id
	return in, err
}

func (c *cloud) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	c.journal.note("get %s", ref.ID)
	if c.get == nil {
		return provider.Instance{}, failure("get", provider.ErrNotFound)
	}
	in, err := c.get(ctx)
	in.ID = ref.ID
	return in, err
}

func (c *cloud) Delete(ctx context.Context, ref provider.Ref) error {
	c.journal.note("delete %s %s", ref.ID, cmp.Or(ref.Incarnation, "any"))
	if c.delete == nil {
		return nil
	}
	return c.delete(ctx)
}

func (c *cloud) List(context.Context) ([]provider.Instance, error) {
	return nil, errors.New("no pass lists")
}

// delayed is a provider with delays of its own.
type delayed struct {
	provider.Provider
	delays provider.Delays
}

func (d delayed) Delays() provider.Delays { return d.delays }

// failure is an error of a provider.
func failure(op string, class provider.Class) *provider.Error {
	return &provider.Error{Op: op, Class: class, Err: errors.New("no luck")}
}

// verdict is a health engine that knows one incarnation.
type verdict struct {
	incarnation string
	snapshot    health.Snapshot
}

func (v verdict) Snapshot(key, incarnation string) (health.Snapshot, bool) {
	return v.snapshot, key == one.String() && incarnation == v.incarnation
}

// leases counts open ones.
type leases int

func (n leases) Active(string) int { return int(n) }

// Offered is false: these are closed to new ones.
func (n leases) Offered(string) bool { return false }

// offering are leases that have not been told yet that a proxy is closed to new ones.
type offering struct{ leases }

func (offering) Offered(string) bool { return true }

// world is a reconciler with doubles for all that it knows.
type world struct {
	journal    *journal
	store      *ledger
	cloud      *cloud // is configured as "cloud"
	other      *cloud // is configured as "other"
	reconciler *Reconciler
	ctx        context.Context
	cancel     context.CancelFunc
}

// newWorld makes a world with these records.
func newWorld(t testing.TB, records ...*proxy.Proxy) *world {
	j := &journal{}
	cfg := proxy.MemoryConfig{Fleet: "test"}
	for _, r := range records {
		cfg.Records = append(cfg.Records, proxy.Record{Proxy: *r})
	}
	w := &world{
		journal: j,
		store:   &ledger{Memory: proxy.NewMemory(cfg), journal: j},
		cloud:   &cloud{name: "cloud", journal: j},
		other:   &cloud{name: "other", journal: j},
	}
	w.reconciler = &Reconciler{
		Fleet: "test", Store: w.store, Hasher: hasher, Intervals: Intervals{}.WithDefaults(),
		Providers: map[string]provider.Provider{"cloud": w.cloud, "other": w.other},
		Logger:    slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
	}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	return w
}

func (w *world) reconcile() (Result, error) { return w.reconciler.Reconcile(w.ctx, one) }

// record returns the record of the proxy, or none.
func (w *world) record(t testing.TB) *proxy.Proxy {
	t.Helper()
	p, err := w.store.Get(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// edit changes a spec as somebody else would.
func (w *world) edit(t testing.TB, k proxy.Key, change func(*proxy.Spec)) {
	t.Helper()
	p, err := w.store.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	change(&p.Spec)
	if _, err := w.store.Put(t.Context(), k, proxy.Declaration{Spec: p.Spec}, ""); err != nil {
		t.Fatal(err)
	}
}

// secrets are Secrets in memory, in one namespace and labelled for both uses.
type secrets struct {
	mu    sync.Mutex
	data  map[string]map[string]secret.Text
	wakes []chan struct{}
}

// put makes a Secret what data says. Nil takes it away.
func (s *secrets) put(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		s.data = map[string]map[string]secret.Text{}
	}
	s.data[name] = nil
	for k, v := range data {
		if s.data[name] == nil {
			s.data[name] = map[string]secret.Text{}
		}
		s.data[name][k] = secret.New(v)
	}
	for _, wake := range s.wakes {
		select {
		case wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

func (s *secrets) Get(_ context.Context, _, name string) (proxy.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data[name] == nil {
		return proxy.Secret{}, proxy.ErrSecretNotFound
	}
	labels := map[string]string{proxy.CloudInitLabel: "true", proxy.CredentialsLabel: "true"}
	return proxy.Secret{Labels: labels, Data: s.data[name]}, nil
}

func (s *secrets) Watch(ctx context.Context, fn func(namespace, name string)) error {
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	s.wakes = append(s.wakes, wake)
	s.mu.Unlock()
	for {
		s.mu.Lock()
		names := slices.Sorted(maps.Keys(s.data))
		s.mu.Unlock()
		for _, name := range names {
			fn(one.Namespace, name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}
