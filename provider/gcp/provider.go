package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
)

// machines makes instances that are virtual machines.
type machines struct {
	fleet    string
	settings settings
	client   *client
	inserts  inserts
	history  history
	view     view
	claim    claim
}

var (
	_ provider.Provider    = (*machines)(nil)
	_ provider.Delayer     = (*machines)(nil)
	_ provider.Checker     = (*machines)(nil)
	_ provider.Constructor = New
)

// New opens the provider: it reads the configuration, a [Config], and calls nobody yet.
func New(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
	s, err := decode(raw)
	if !labelValue.MatchString(env.Fleet) {
		err = errors.Join(err, fmt.Errorf("fleetID: %q fits into no label: want 1 to 63 lower-case letters, digits, '-' and '_'", env.Fleet))
	}
	if err != nil {
		return nil, err
	}
	own := claim{dir: env.StateDir, project: s.Project}
	if err := own.check(); err != nil {
		return nil, err
	}
	p := &machines{
		fleet: env.Fleet, settings: s, claim: own,
		client:  newClient(s, env.TracerProvider),
		history: history{age: s.delays.Settle / 10},
	}
	if p.client.tracers == nil {
		p.client.tracers = noop.NewTracerProvider()
	}
	p.view = view{
		read: p.read, fresh: s.delays.Settle / 10, quick: s.delays.Settle / 60, keep: s.delays.Settle,
		turn: make(chan struct{}, 1), touched: map[string]touch{},
	}
	return p, nil
}

// Delays are those of a public cloud. What the list of a [view] adds is half a minute at most, and only to what is there: that
// nothing is there is never told from it.
func (p *machines) Delays() provider.Delays { return p.settings.delays }

// Plan checks all that can be checked without Compute Engine, so that a bad edit harms nothing that runs.
func (p *machines) Plan(r provider.Request) (string, error) {
	if err := p.settings.refuse("plan", r); err != nil {
		return "", err
	}
	return idOf(r.Placement.Zone, r.Name), nil
}

// Create sends the insert and reads what it answers: an operation that may have failed already.
func (p *machines) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	const op = "create"
	if err := p.settings.refuse(op, r); err != nil {
		return provider.Instance{}, err
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		return provider.Instance{}, err
	}
	vm, err := p.settings.resource(r)
	if err != nil {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField, Err: err}
	}
	if err := p.claim.make(); err != nil {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrTransient, Reason: stateUnwritable, Err: err}
	}
	return p.insert(ctx, op, r, vm)
}

func (p *machines) insert(ctx context.Context, op string, r provider.Request, vm *computepb.Instance) (provider.Instance, error) {
	id, changed := idOf(r.Placement.Zone, r.Name), touch{}
	defer func() { p.view.touch(id, changed) }()
	started, err := p.client.insert(ctx, r.Placement.Zone, requestID(r.Token), vm)
	switch {
	case exists(err) || met(started):
		return p.meet(ctx, op, r)
	case err != nil:
		e := failure(ctx, op, err)
		if e.Class == provider.ErrTransient || e.Class == provider.ErrCanceled {
			p.inserts.drop(id) // the last insert may be this one, which has no name yet
		}
		return provider.Instance{}, e
	}
	i := insert{uid: r.Marks.UID}.learn(started)
	p.inserts.put(id, i)
	if i.failure != nil {
		failed := *i.failure
		failed.Op = op
		return provider.Instance{}, &failed
	}
	changed.made = i.incarnation
	return provider.Instance{ID: id, Incarnation: i.incarnation, Marks: r.Marks, State: provider.Provisioning}, nil
}

// meet looks at who has the name.
func (p *machines) meet(ctx context.Context, op string, r provider.Request) (provider.Instance, error) {
	vm, err := p.client.get(ctx, r.Placement.Zone, r.Name)
	if notFound(err) {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrTransient, Reason: notVisible,
			Err: errors.New("the name is taken, and the machine that has it cannot be seen yet")}
	}
	if err != nil {
		return provider.Instance{}, failure(ctx, op, err)
	}
	in := p.settings.instance(r.Placement.Zone, vm)
	if in.Marks.Fleet != p.fleet || in.Marks.UID != r.Marks.UID {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NameTaken,
			Err: fmt.Errorf("%s belongs to somebody else: its labels are not those of this proxy", in.ID)}
	}
	return in, nil
}

// Get answers from the list of the fleet where that is young enough, and asks for the machine, and then for its insert, where
// it is not.
func (p *machines) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	const op = "get"
	zone, name, err := place(op, ref.ID)
	if err != nil {
		return provider.Instance{}, err
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		return provider.Instance{}, err
	}
	if in, ok := p.view.look(ctx, ref.ID); ok && in.Marks.UID == ref.UID {
		p.settled(in)
		return in, nil
	}
	vm, err := p.client.get(ctx, zone, name)
	if notFound(err) {
		return provider.Instance{}, p.absent(ctx, op, ref)
	}
	if err != nil {
		return provider.Instance{}, failure(ctx, op, err)
	}
	in := p.settings.instance(zone, vm)
	if in.Marks.Fleet != p.fleet || in.Marks.UID != ref.UID {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrNotFound}
	}
	p.settled(in)
	return p.explained(ctx, op, in), nil
}

// settled forgets the insert of what runs.
func (p *machines) settled(in provider.Instance) {
	if in.State == provider.Running {
		p.inserts.drop(in.ID)
	}
}

// explained adds to an instance that is not running what its insert failed with: it is about to vanish. An insert that cannot
// be asked for takes nothing from what is there.
func (p *machines) explained(ctx context.Context, op string, in provider.Instance) provider.Instance {
	i, ok := p.inserts.get(in.ID, in.Marks.UID)
	if in.State == provider.Running || !ok || cmp.Or(i.incarnation, in.Incarnation) != in.Incarnation {
		return in
	}
	if !i.done {
		i, _, _ = p.ask(ctx, op, in.ID, i)
	}
	if i.failure != nil {
		in.Reason, in.Message = i.failure.Reason, i.failure.Err.Error()
	}
	return in
}

// Delete looks first: at whose the machine is, which one it is, and whether it goes already. A delete that is repeated would
// count as another operation, of which a project may have only so many at once. It names the machine by its numeric id, which
// the API takes instead of the name, so that whatever happens after the look, it hits that one or none.
func (p *machines) Delete(ctx context.Context, ref provider.Ref) error {
	const op = "delete"
	zone, name, err := place(op, ref.ID)
	if err != nil {
		return err
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		return err
	}
	vm, err := p.client.get(ctx, zone, name)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return failure(ctx, op, err)
	}
	in := p.settings.instance(zone, vm)
	ours := in.Marks.Fleet == p.fleet && in.Marks.UID == ref.UID
	if !ours || in.State == provider.Terminating || cmp.Or(ref.Incarnation, in.Incarnation) != in.Incarnation {
		return nil
	}
	defer p.view.touch(in.ID, touch{deleted: in.Incarnation})
	if err := p.client.delete(ctx, zone, in.Incarnation); err != nil && !notFound(err) {
		return failure(ctx, op, err)
	}
	return nil
}
