package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

// Memory is a backend in memory, for tests. Its instances run at once, at an address where nothing listens, and go at
// once. It takes all of the [Fault] values. Its zero value is empty and ready.
type Memory struct {
	mu        sync.Mutex
	instances map[string]provider.Instance // by name
	made      int
	pending   map[Fault]bool
	hangs     bool
	troubled  bool // as checks see it
	lagsFrom  time.Time
	past      []snapshot
}

// snapshot is what was true until a moment.
type snapshot struct {
	until     time.Time
	instances map[string]provider.Instance
}

// memoryLag is how old answers are while reads lag.
const memoryLag = 50 * time.Millisecond

var errTrouble = errors.New("the backend is in trouble")

// Harness returns what [Run] needs to test the provider of this backend.
func (m *Memory) Harness() Harness {
	return Harness{
		Open:     func(_ testing.TB, fleet string) provider.Provider { return m.Open(fleet) },
		Request:  memoryRequest,
		Outlives: true,
		Settle:   5 * time.Second,
		Refused: map[string]func(*provider.Request){
			"placement.zone": func(r *provider.Request) { r.Placement.Zone = "nowhere" },
			"port":           func(r *provider.Request) { r.Port = 0 },
		},
		Plant:  func(_ testing.TB, r provider.Request) { m.Plant(r) },
		Inject: m.Inject,
	}
}

func memoryRequest() provider.Request {
	return provider.Request{
		Port:      3128,
		CloudInit: secret.New("#cloud-config with a planted token"),
		Credentials: provider.Credentials{
			Username: secret.New("planted user name"),
			Password: secret.New("planted pass/word"),
		},
	}
}

// Open returns a provider of this backend for one fleet. Any number may be in use at once.
func (m *Memory) Open(fleet string) provider.Provider { return memoryProvider{m, fleet} }

// Plant makes an instance as somebody else would, with whatever marks.
func (m *Memory) Plant(r provider.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.insert(r)
}

// Inject disturbs the backend. It always can.
func (m *Memory) Inject(f Fault) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch f {
	case Hangs:
		m.hangs = true
	case CheckFails:
		m.troubled = true
	case Lags:
		m.lagsFrom = time.Now()
	default:
		if m.pending == nil {
			m.pending = map[Fault]bool{}
		}
		m.pending[f] = true
	}
	return true
}

// insert makes an instance. The caller holds the mutex.
func (m *Memory) insert(r provider.Request) provider.Instance {
	m.remember()
	m.made++
	in := provider.Instance{
		ID:          memoryID(r.Name),
		Incarnation: fmt.Sprintf("incarnation-%d", m.made),
		Marks:       r.Marks,
		State:       provider.Running,
		Host:        "192.0.2.1",
		Port:        r.Port,
		Created:     time.Now(),
	}
	m.instances[r.Name] = in
	return in
}

// remove takes an instance away. The caller holds the mutex.
func (m *Memory) remove(name string) {
	m.remember()
	delete(m.instances, name)
}

// remember keeps what is true until now for reads that lag. The caller holds the mutex and is about to change it.
func (m *Memory) remember() {
	if m.instances == nil {
		m.instances = map[string]provider.Instance{}
	}
	if !m.lagsFrom.IsZero() {
		m.past = append(m.past, snapshot{time.Now(), maps.Clone(m.instances)})
	}
}

// seen returns the instances that a read sees. The caller holds the mutex.
func (m *Memory) seen() map[string]provider.Instance {
	for _, s := range m.past {
		if time.Since(s.until) < memoryLag {
			return s.instances
		}
	}
	return m.instances
}

// strikes says whether a fault hits this call. The caller holds the mutex.
func (m *Memory) strikes(f Fault) bool {
	hit := m.pending[f]
	delete(m.pending, f)
	return hit
}

// enter takes the mutex for a call, unless the call's context ends first.
func (m *Memory) enter(ctx context.Context, op string) error {
	m.mu.Lock()
	if m.hangs {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		m.mu.Unlock()
		return err
	}
	return nil
}

func memoryID(name string) string { return "memory/" + name }

type memoryProvider struct {
	backend *Memory
	fleet   string
}

var (
	_ provider.Provider = memoryProvider{}
	_ provider.Checker  = memoryProvider{}
)

func (p memoryProvider) Plan(r provider.Request) (string, error) {
	switch {
	case r.Placement.Zone != "":
		return "", provider.Unsupported("plan", "placement.zone")
	case r.Port == 0:
		return "", provider.Missing("plan", "port")
	}
	return memoryID(r.Name), nil
}

func (p memoryProvider) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	if _, err := p.Plan(r); err != nil {
		e, _ := errors.AsType[*provider.Error](err)
		e.Op = "create"
		return provider.Instance{}, e
	}
	if err := p.backend.enter(ctx, "create"); err != nil {
		return provider.Instance{}, err
	}
	defer p.backend.mu.Unlock()
	if p.backend.strikes(CreateFails) {
		return provider.Instance{}, trouble("create")
	}
	in, there := p.backend.instances[r.Name]
	switch {
	case !there:
		in = p.backend.insert(r)
	case in.Marks.Fleet != p.fleet || in.Marks.UID != r.Marks.UID:
		err := fmt.Errorf("%s belongs to somebody else", in.ID)
		return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrPermanent, Reason: provider.NameTaken, Err: err}
	}
	if p.backend.strikes(CreateUnanswered) {
		return provider.Instance{}, trouble("create")
	}
	return in, nil
}

func (p memoryProvider) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	if err := p.backend.enter(ctx, "get"); err != nil {
		return provider.Instance{}, err
	}
	defer p.backend.mu.Unlock()
	if p.backend.strikes(GetFails) {
		return provider.Instance{}, trouble("get")
	}
	in, there := p.backend.seen()[nameOf(ref)]
	if !there || !p.owns(in, ref) {
		return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrNotFound}
	}
	return in, nil
}

func (p memoryProvider) Delete(ctx context.Context, ref provider.Ref) error {
	if err := p.backend.enter(ctx, "delete"); err != nil {
		return err
	}
	defer p.backend.mu.Unlock()
	if p.backend.strikes(DeleteFails) {
		return trouble("delete")
	}
	in, there := p.backend.instances[nameOf(ref)]
	if there && p.owns(in, ref) && (ref.Incarnation == "" || ref.Incarnation == in.Incarnation) {
		p.backend.remove(nameOf(ref))
	}
	if p.backend.strikes(DeleteUnanswered) {
		return trouble("delete")
	}
	return nil
}

func (p memoryProvider) List(ctx context.Context) ([]provider.Instance, error) {
	if err := p.backend.enter(ctx, "list"); err != nil {
		return nil, err
	}
	defer p.backend.mu.Unlock()
	if p.backend.strikes(ListFails) {
		return nil, trouble("list")
	}
	all := slices.Collect(maps.Values(p.backend.seen()))
	all = slices.DeleteFunc(all, func(in provider.Instance) bool { return in.Marks.Fleet != p.fleet })
	slices.SortFunc(all, func(a, b provider.Instance) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Check has one target, "memory".
func (p memoryProvider) Check(ctx context.Context) []provider.TargetStatus {
	v := provider.TargetStatus{Target: "memory"}
	if err := p.backend.enter(ctx, "check"); err != nil {
		v.Reason, v.Message = provider.Timeout, err.Error()
		return []provider.TargetStatus{v}
	}
	defer p.backend.mu.Unlock()
	if v.Ready = !p.backend.troubled; !v.Ready {
		v.Reason, v.Message = "InTrouble", errTrouble.Error()
	}
	return []provider.TargetStatus{v}
}

func (p memoryProvider) owns(in provider.Instance, ref provider.Ref) bool {
	return in.Marks.Fleet == p.fleet && in.Marks.UID == ref.UID
}

func nameOf(ref provider.Ref) string { return strings.TrimPrefix(ref.ID, "memory/") }

func trouble(op string) error {
	return &provider.Error{Op: op, Class: provider.ErrTransient, Err: errTrouble}
}
