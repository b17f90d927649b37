package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of this provider's errors and states.
const (
	noFreeAddress        = "NoFreeAddress"        // each address has an instance
	addressUnavailable   = "AddressUnavailable"   // nothing can listen there now: it is in use, or not one of this host's
	addressNotConfigured = "AddressNotConfigured" // the configuration has it no longer
	listenerFailed       = "ListenerFailed"       // it stopped accepting by itself
	notRunning           = "NotRunning"           // Run has not opened the listeners yet, or has ended
	stateUnwritable      = "StateUnwritable"      // the state directory did not take a change

	// Those of checks.
	addressMissing = "AddressMissing" // it is not an address of this host
	portInUse      = "PortInUse"      // another program listens there
	portForbidden  = "PortForbidden"  // this process must not listen there
)

// drainTime is how long connections may go on after Run was told to end.
const drainTime = 5 * time.Second

// listeners makes instances that are listeners of this process.
type listeners struct {
	fleet      string
	log        *slog.Logger
	settings   settings
	host       *host
	records    records
	iterations int           // of the logins of new instances
	opened     chan struct{} // closed when Run has opened what there was

	mu        sync.Mutex
	held      *os.File // the lock of the state directory, while Run is under way
	started   bool
	running   bool
	instances map[string]*instance // by name

	closing sync.WaitGroup // of listeners that Delete has closed
}

// instance is one record and what serves it.
type instance struct {
	record
	gate     *gate
	listener *listener // nil: it does not listen
	failure  error     // why it does not, where it may
}

var (
	_ provider.Provider    = (*listeners)(nil)
	_ provider.Runner      = (*listeners)(nil)
	_ provider.Opener      = (*listeners)(nil)
	_ provider.Delayer     = (*listeners)(nil)
	_ provider.Checker     = (*listeners)(nil)
	_ provider.Constructor = New
)

// New opens the provider: it reads the configuration, a [Config], and the instances that the state directory holds. It
// changes nothing; a configuration can be checked by it while a fleet runs on it.
func New(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
	return open(env, raw, iterations)
}

func open(env provider.Environment, raw json.RawMessage, iterations int) (provider.Provider, error) {
	s, err := decode(raw)
	if env.StateDir == "" {
		err = errors.Join(err, errors.New("the local provider keeps its instances in files, and there is no state directory"))
	}
	if err != nil {
		return nil, err
	}
	p := &listeners{
		fleet:      env.Fleet,
		log:        env.Logger,
		settings:   s,
		host:       newHost(s.pool),
		records:    records{env.StateDir},
		iterations: iterations,
		opened:     make(chan struct{}),
		instances:  map[string]*instance{},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// load takes the instances from the files.
func (p *listeners) load() error {
	all, err := p.records.load()
	if err != nil {
		return fmt.Errorf("instances of the local provider: %w", err)
	}
	clear(p.instances)
	for _, r := range all {
		p.instances[r.Name] = &instance{record: r, gate: newGate(r.Login)}
	}
	return nil
}

// Delays says that everything here is at once.
func (p *listeners) Delays() provider.Delays { return provider.Delays{Call: 10 * time.Second} }

// Run opens the listeners and keeps them until ctx ends. It works once.
func (p *listeners) Run(ctx context.Context) error {
	if err := p.start(); err != nil {
		return err
	}
	close(p.opened)
	<-ctx.Done()
	p.stop()
	return p.held.Close()
}

// Opened waits until Run has opened the listeners.
func (p *listeners) Opened(ctx context.Context) error {
	select {
	case <-p.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *listeners) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return errors.New("the local provider has been run before")
	}
	p.started = true
	held, err := p.records.prepare()
	if err != nil {
		return fmt.Errorf("state directory of the local provider: %w", err)
	}
	if err := p.load(); err != nil { // again: another process may have had the directory since New
		return errors.Join(err, held.Close())
	}
	p.held = held
	p.running = true
	for _, in := range p.instances {
		p.serve(in)
		switch {
		case in.Fleet != p.fleet:
			p.log.Warn("An instance of another fleet is left alone", "id", idOf(in.Name), "fleet", in.Fleet)
		case in.failure != nil:
			p.log.Warn("A proxy cannot listen at its address", "id", idOf(in.Name), "error", in.failure)
		}
	}
	return nil
}

func (p *listeners) stop() {
	p.mu.Lock()
	p.running = false
	var open []*listener
	for _, in := range p.instances {
		if in.listener != nil {
			open = append(open, in.listener)
			in.listener = nil
		}
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var group sync.WaitGroup
	for _, l := range open {
		group.Go(func() { l.drain(ctx) })
	}
	group.Wait()
	p.closing.Wait()
}

// serve opens the listener of an instance that may have one and does not, or notes why it cannot. The caller holds the
// mutex, and Run is under way.
func (p *listeners) serve(in *instance) {
	if in.listener != nil || in.Fleet != p.fleet || !p.permits(in.record) {
		return
	}
	g := guard{allowed: p.settings.allowed, host: p.host, isOwn: p.listensAt}
	in.listener, in.failure = listen(in.record, p.settings.pool.sourceOf(in.Address), g, in.gate, p.log)
}

// permits says whether the configuration still lets an instance listen where it does.
func (p *listeners) permits(r record) bool {
	return p.settings.pool.contains(r.Address) && (r.Login != nil || r.Address.IsLoopback())
}

func (p *listeners) listensAt(where netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.instances {
		if in.Address == where.Addr() && in.Port == int(where.Port()) {
			return true
		}
	}
	return false
}

// Plan refuses what a listener cannot honour.
func (p *listeners) Plan(r provider.Request) (string, error) {
	if err := p.refuse("plan", r); err != nil {
		return "", err
	}
	return idOf(r.Name), nil
}

// refuse returns why nothing can be made from a request, whatever happens, or nil.
func (p *listeners) refuse(op string, r provider.Request) error {
	var unsupported []string
	for field, set := range map[string]bool{
		"placement.zone":        r.Placement.Zone != "",
		"placement.machineType": r.Placement.MachineType != "",
		"placement.image":       r.Placement.Image != "",
		"placement.diskSizeGb":  r.Placement.DiskSizeGb != 0,
		"cloudInit":             !r.CloudInit.IsZero(),
	} {
		if set {
			unsupported = append(unsupported, field)
		}
	}
	slices.Sort(unsupported)
	switch {
	case len(unsupported) > 0:
		return provider.Unsupported(op, strings.Join(unsupported, ", "))
	case r.Port == 0:
		return provider.Missing(op, "port")
	case r.Port < 0 || r.Port > 65535:
		return provider.Unsupported(op, "port")
	case p.settings.exposed && r.Credentials.IsZero():
		return provider.Missing(op, "credentials")
	case !instanceName.MatchString(r.Name):
		return provider.Unsupported(op, "name")
	}
	return nil
}

// Create makes a record, binds its listener, and only then writes the file: what is in the state directory has listened.
func (p *listeners) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	if err := p.refuse("create", r); err != nil {
		return provider.Instance{}, err
	}
	met, found, err := p.meet(ctx, r)
	if found || err != nil {
		return met, err
	}
	gate, err := newGateFor(r.Credentials, p.iterations) // takes a while, and so comes before the mutex
	if err != nil {
		return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrPermanent, Err: err}
	}
	if err := p.enter(ctx, "create"); err != nil {
		return provider.Instance{}, err
	}
	defer p.mu.Unlock()
	if met, found, err := p.met(r); found || err != nil {
		return met, err
	}
	in := &instance{gate: gate, record: record{
		Version: recordVersion, Name: r.Name, Fleet: r.Marks.Fleet, UID: r.Marks.UID, Hash: r.Marks.Hash,
		Incarnation: rand.Text(), Port: r.Port, Created: time.Now().UTC().Round(0), Login: gate.login,
	}}
	if err := p.place(in); err != nil {
		return provider.Instance{}, err
	}
	if err := p.records.save(in.record); err != nil {
		p.close(in)
		return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrTransient, Reason: stateUnwritable, Err: err}
	}
	p.instances[in.Name] = in
	return p.view(in), nil
}

// meet returns the instance that a Create meets, and whether there is one.
func (p *listeners) meet(ctx context.Context, r provider.Request) (provider.Instance, bool, error) {
	if err := p.enter(ctx, "create"); err != nil {
		return provider.Instance{}, false, err
	}
	defer p.mu.Unlock()
	return p.met(r)
}

// met is meet for who holds the mutex.
func (p *listeners) met(r provider.Request) (provider.Instance, bool, error) {
	in, ok := p.instances[r.Name]
	if !ok {
		return provider.Instance{}, false, nil
	}
	if in.Fleet != p.fleet || in.UID != r.Marks.UID {
		err := fmt.Errorf("%s belongs to another fleet or proxy", idOf(r.Name))
		return provider.Instance{}, false, &provider.Error{Op: "create", Class: provider.ErrPermanent, Reason: provider.NameTaken, Err: err}
	}
	p.serve(in)
	return p.view(in), true, nil
}

// place gives a new instance the first free address where it can listen. The caller holds the mutex.
func (p *listeners) place(in *instance) error {
	taken := map[netip.Addr]bool{}
	for _, other := range p.instances {
		if other.Fleet == p.fleet { // nobody serves the others here, and their fleet may be gone for good
			taken[other.Address] = true
		}
	}
	failed := &provider.Error{Op: "create", Class: provider.ErrQuotaExceeded, Reason: noFreeAddress,
		Err: fmt.Errorf("all %d addresses are taken", len(p.settings.pool.listen))}
	for _, address := range p.settings.pool.listen {
		if taken[address] {
			continue
		}
		in.Address = address
		p.serve(in)
		if in.failure == nil {
			return nil
		}
		failed.Class, failed.Reason, failed.Err = provider.ErrTransient, addressUnavailable, in.failure
		if errors.Is(in.failure, syscall.EACCES) {
			failed.Class = provider.ErrPermanent
		}
	}
	return failed
}

// Get returns an instance, after another attempt to listen where that failed before.
func (p *listeners) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	if err := p.enter(ctx, "get"); err != nil {
		return provider.Instance{}, err
	}
	defer p.mu.Unlock()
	in := p.find(ref)
	if in == nil {
		return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrNotFound}
	}
	p.serve(in)
	return p.view(in), nil
}

// Delete removes the file, closes the listener and cuts all connections.
func (p *listeners) Delete(ctx context.Context, ref provider.Ref) error {
	if err := p.enter(ctx, "delete"); err != nil {
		return err
	}
	defer p.mu.Unlock()
	in := p.find(ref)
	if in == nil || ref.Incarnation != "" && ref.Incarnation != in.Incarnation {
		return nil
	}
	if err := p.records.remove(in.Name); err != nil {
		return &provider.Error{Op: "delete", Class: provider.ErrTransient, Reason: stateUnwritable, Err: err}
	}
	delete(p.instances, in.Name)
	p.close(in)
	return nil
}

// List returns the instances of this fleet in the order of their names.
func (p *listeners) List(ctx context.Context) ([]provider.Instance, error) {
	if err := p.enter(ctx, "list"); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	var all []provider.Instance
	for _, name := range slices.Sorted(maps.Keys(p.instances)) {
		if in := p.instances[name]; in.Fleet == p.fleet {
			all = append(all, p.view(in))
		}
	}
	return all, nil
}

// enter waits until Run has opened the listeners, and takes the mutex, unless ctx ends first or Run has ended. What it
// returns then is an error and no state: that this process stops says nothing about an instance.
func (p *listeners) enter(ctx context.Context, op string) error {
	select {
	case <-p.opened:
	case <-ctx.Done():
		return outsideRun(op, ctx.Err())
	}
	p.mu.Lock()
	err := provider.Interrupted(ctx, op)
	if err == nil && !p.running {
		err = outsideRun(op, errors.New("the provider has been stopped"))
	}
	if err != nil {
		p.mu.Unlock()
	}
	return err
}

func outsideRun(op string, err error) error {
	return &provider.Error{Op: op, Class: provider.ClassOf(err), Reason: notRunning, Err: err}
}

// find returns our instance that a ref means, whatever its incarnation, or nil. The caller holds the mutex.
func (p *listeners) find(ref provider.Ref) *instance {
	in, ok := p.instances[strings.TrimPrefix(ref.ID, idOf(""))]
	if !ok || ref.ID != idOf(in.Name) || in.Fleet != p.fleet || in.UID != ref.UID {
		return nil
	}
	return in
}

// view returns an instance as the fleet sees it. The caller holds the mutex.
func (p *listeners) view(in *instance) provider.Instance {
	v := provider.Instance{
		ID: idOf(in.Name), Incarnation: in.Incarnation, Marks: in.marks(), Created: in.Created,
	}
	switch {
	case !p.permits(in.record):
		v.State, v.Reason = provider.Stopped, addressNotConfigured
		v.Message = fmt.Sprintf("%v is no longer configured for it", in.Address)
	case in.listener != nil && in.listener.failed.Load():
		v.State, v.Reason = provider.Stopped, listenerFailed
	case in.listener != nil:
		v.State, v.Host, v.Port = provider.Running, in.Address.String(), in.Port
	default:
		v.State, v.Reason, v.Message = provider.Provisioning, addressUnavailable, in.failure.Error()
	}
	return v
}

// close closes the listener of an instance. Run waits for its end. The caller holds the mutex.
func (p *listeners) close(in *instance) {
	l := in.listener
	if l == nil {
		return
	}
	in.listener = nil
	l.close()
	p.closing.Go(l.wait)
}

// idOf returns the ID of the instance of a name.
func idOf(name string) string { return "listeners/" + name }
