package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// broken is a provider of a Memory that breaks one promise. What it does not override keeps it.
type broken struct {
	provider.Provider
	memory *Memory

	plan   func(provider.Request) (string, error)
	create func(context.Context, provider.Request) (provider.Instance, error)
	get    func(context.Context, provider.Ref) (provider.Instance, error)
	delete func(context.Context, provider.Ref) error
	list   func(context.Context) ([]provider.Instance, error)
}

func (p *broken) Plan(r provider.Request) (string, error) {
	if p.plan == nil {
		return p.Provider.Plan(r)
	}
	return p.plan(r)
}

func (p *broken) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	if p.create == nil {
		return p.Provider.Create(ctx, r)
	}
	return p.create(ctx, r)
}

func (p *broken) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	if p.get == nil {
		return p.Provider.Get(ctx, ref)
	}
	return p.get(ctx, ref)
}

func (p *broken) Delete(ctx context.Context, ref provider.Ref) error {
	if p.delete == nil {
		return p.Provider.Delete(ctx, ref)
	}
	return p.delete(ctx, ref)
}

func (p *broken) List(ctx context.Context) ([]provider.Instance, error) {
	if p.list == nil {
		return p.Provider.List(ctx)
	}
	return p.list(ctx)
}

// current returns the instance of that name, whoever owns it.
func (p *broken) current(name string) provider.Instance {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	return p.memory.instances[name]
}

// replace makes an instance in place of whatever bears the name.
func (p *broken) replace(r provider.Request) provider.Instance {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	return p.memory.insert(r)
}

// remark changes the marks of an instance.
func (p *broken) remark(name string, marks provider.Marks) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	in := p.memory.instances[name]
	in.Marks = marks
	p.memory.instances[name] = in
}

// Each of these breaks what the case of that name promises.
var brokenProviders = []struct {
	name   string
	caught string // by this case, at least
	fault  func(*broken)
}{
	{"a new ID for each Plan", "plan", func(p *broken) {
		var calls atomic.Int64
		p.plan = func(r provider.Request) (string, error) {
			return fmt.Sprintf("memory/%s-%d", r.Name, calls.Add(1)), nil
		}
	}},
	{"Plan says another ID than Create", "plan", func(p *broken) {
		p.plan = func(r provider.Request) (string, error) { return "elsewhere/" + r.Name, nil }
	}},
	{"an ID without the name", "plan", func(p *broken) {
		p.plan = func(r provider.Request) (string, error) { return "memory/" + r.Marks.UID, nil }
	}},
	{"a field that is ignored", "plan-refuses", func(p *broken) {
		p.plan = func(r provider.Request) (string, error) { return memoryID(r.Name), nil }
	}},
	{"a refusal that names no field", "plan-refuses", func(p *broken) {
		p.plan = func(r provider.Request) (string, error) {
			id, err := p.Provider.Plan(r)
			if err != nil {
				err = &provider.Error{Op: "plan", Class: provider.ErrPermanent, Reason: provider.UnsupportedField}
			}
			return id, err
		}
	}},
	{"a hash that is lost", "create", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			r.Marks.Hash = ""
			return p.Provider.Create(ctx, r)
		}
	}},
	{"Running without a host", "create", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			in.Host = ""
			return in, err
		}
	}},
	{"never Running", "create", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			in.State = provider.Provisioning
			return in, err
		}
	}},
	{"a second instance for a second token", "create-twice", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if in := p.current(r.Name); in.Incarnation != "" && in.Marks == r.Marks {
				return p.replace(r), nil
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"an error where the instance is there", "create-twice", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if p.current(r.Name).Incarnation != "" {
				return provider.Instance{}, trouble("create")
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"look, then make", "create-at-once", func(p *broken) {
		var looked sync.WaitGroup
		looked.Add(2)
		var calls atomic.Int64
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if p.current(r.Name).Incarnation != "" || calls.Add(1) > 2 {
				return p.Provider.Create(ctx, r)
			}
			looked.Done()
			looked.Wait()
			return p.replace(r), nil
		}
	}},
	{"the hash of the request instead of the instance's", "create-meets-other-hash", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			in.Marks = r.Marks
			return in, err
		}
	}},
	{"an instance that is edited in place", "create-meets-other-hash", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			if err == nil {
				p.remark(r.Name, r.Marks)
			}
			return in, err
		}
	}},
	{"success while the backend is in trouble", "create-fails", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			if errors.Is(err, errTrouble) {
				p.replace(r)
				err = &provider.Error{Op: "create", Class: provider.ErrPermanent, Err: err}
			}
			return in, err
		}
	}},
	{"half a create that is made anew", "create-unanswered", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			if errors.Is(err, errTrouble) {
				return provider.Instance{ID: memoryID(r.Name), Incarnation: "guessed", Marks: r.Marks, State: provider.Provisioning}, nil
			}
			return in, err
		}
	}},
	{"adoption of a foreign fleet's instance", "create-foreign-fleet", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if in := p.current(r.Name); in.Incarnation != "" {
				return in, nil
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"a Get that shows a foreign fleet's instance", "create-foreign-fleet", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			if in := p.current(nameOf(ref)); in.Marks.UID == ref.UID && in.Marks.UID != "" {
				return in, nil
			}
			return p.Provider.Get(ctx, ref)
		}
	}},
	{"a Delete that hits a foreign fleet's instance", "create-foreign-fleet", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			if in := p.current(nameOf(ref)); in.Marks.UID == ref.UID && ref.Incarnation == "" {
				p.remark(nameOf(ref), provider.Marks{Fleet: ours, UID: ref.UID})
			}
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"a List of all fleets", "create-foreign-fleet", func(p *broken) {
		p.list = func(context.Context) ([]provider.Instance, error) {
			p.memory.mu.Lock()
			defer p.memory.mu.Unlock()
			return slices.Collect(maps.Values(p.memory.instances)), nil
		}
	}},
	{"adoption of another proxy's instance", "create-other-uid", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if in := p.current(r.Name); in.Marks.Fleet == r.Marks.Fleet && in.Incarnation != "" {
				return in, nil
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"a Delete that hits another proxy's instance", "create-other-uid", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			ref.UID = p.current(nameOf(ref)).Marks.UID
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"adoption of what bears no marks", "create-unmarked", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			if in := p.current(r.Name); in.Incarnation != "" && in.Marks == (provider.Marks{}) {
				p.remark(r.Name, r.Marks)
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"no error for what was never made", "get-never-made", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			if provider.ClassOf(err) == provider.ErrNotFound {
				return provider.Instance{State: provider.Stopped}, nil
			}
			return in, err
		}
	}},
	{"NotFound for a backend in trouble", "get-fails", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			if errors.Is(err, errTrouble) {
				err = &provider.Error{Op: "get", Class: provider.ErrNotFound}
			}
			return in, err
		}
	}},
	{"a Get that compares incarnations", "get-ignores-incarnation", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			if err == nil && ref.Incarnation != "" && in.Incarnation != ref.Incarnation {
				return provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrNotFound}
			}
			return in, err
		}
	}},
	{"a Delete that deletes nothing", "delete", func(p *broken) {
		p.delete = func(context.Context, provider.Ref) error { return nil }
	}},
	{"an incarnation that comes back", "delete", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			in.Incarnation = in.ID
			return in, err
		}
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			ref.Incarnation = ""
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"an error for what was never made", "delete-never-made", func(p *broken) { p.delete = deleteOnlyWhatIsThere(p) }},
	{"an error for what is gone", "delete-twice", func(p *broken) { p.delete = deleteOnlyWhatIsThere(p) }},
	{"a Delete that needs an incarnation", "delete-any", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			if ref.Incarnation == "" {
				return nil
			}
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"a Delete that ignores the incarnation", "delete-late", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			ref.Incarnation = ""
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"a Delete that swallows errors", "delete-fails", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			_ = p.Provider.Delete(ctx, ref)
			return nil
		}
	}},
	{"half a delete that is permanent", "delete-unanswered", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			err := p.Provider.Delete(ctx, ref)
			if err != nil {
				err = &provider.Error{Op: "delete", Class: provider.ErrPermanent, Err: err}
			}
			return err
		}
	}},
	{"a List that ends early", "list", func(p *broken) {
		p.list = func(ctx context.Context) ([]provider.Instance, error) {
			all, err := p.Provider.List(ctx)
			return all[:min(len(all), 3)], err
		}
	}},
	{"a List of what is gone", "list", func(p *broken) {
		var gone []provider.Instance
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			gone = append(gone, p.current(nameOf(ref)))
			return p.Provider.Delete(ctx, ref)
		}
		p.list = func(ctx context.Context) ([]provider.Instance, error) {
			all, err := p.Provider.List(ctx)
			return append(all, gone...), err
		}
	}},
	{"a List without the part that failed", "list-fails", func(p *broken) {
		p.list = func(ctx context.Context) ([]provider.Instance, error) {
			all, err := p.Provider.List(ctx)
			if errors.Is(err, errTrouble) {
				all, err = p.Provider.List(ctx)
				return all[:1], err
			}
			return all, err
		}
	}},
	{"work for a caller who gave up", "canceled", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			return p.Provider.Create(context.WithoutCancel(ctx), r)
		}
	}},
	{"an effect before the error", "canceled", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(context.WithoutCancel(ctx), r)
			if e := provider.Interrupted(ctx, "create"); e != nil {
				return provider.Instance{}, e
			}
			return in, err
		}
	}},
	{"a cancellation that looks like trouble", "canceled", func(p *broken) {
		p.list = func(ctx context.Context) ([]provider.Instance, error) {
			if ctx.Err() != nil {
				return nil, trouble("list")
			}
			return p.Provider.List(ctx)
		}
	}},
	{"an overrun that looks like a cancellation", "deadline-passed", func(p *broken) {
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			if ctx.Err() != nil {
				return &provider.Error{Op: "delete", Class: provider.ErrCanceled}
			}
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"a wait that no context ends", "canceled-under-way", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			return p.Provider.Get(context.WithoutCancel(ctx), ref)
		}
	}},
	{"one call at a time, or an error", "many-at-once", func(p *broken) {
		var busy sync.Mutex
		p.delete = func(ctx context.Context, ref provider.Ref) error {
			if !busy.TryLock() {
				return trouble("delete")
			}
			defer busy.Unlock()
			<-time.After(pollEvery)
			return p.Provider.Delete(ctx, ref)
		}
	}},
	{"NameTaken for what cannot be seen yet", "lag", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			_, err := p.Provider.Get(ctx, provider.Ref{ID: memoryID(r.Name), UID: r.Marks.UID})
			if err != nil && p.current(r.Name).Incarnation != "" {
				return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrPermanent, Reason: provider.NameTaken}
			}
			return p.Provider.Create(ctx, r)
		}
	}},
	{"a password in an error", "secrets", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			if e, ok := errors.AsType[*provider.Error](err); ok {
				e.Err = fmt.Errorf("request with %s: %w", r.Credentials.Password.Reveal(), e.Err)
			}
			return in, err
		}
	}},
	{"encoded credentials in an instance", "secrets", func(p *broken) {
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			in, err := p.Provider.Create(ctx, r)
			credentials := pair(r.Credentials)
			in.Message = "Proxy-Authorization: Basic " + credentials.Reveal()
			return in, err
		}
	}},
	{"an error of another type", "get-never-made", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			if err != nil {
				err = provider.ClassOf(err)
			}
			return in, err
		}
	}},
	{"the operation of another method", "get-never-made", func(p *broken) {
		p.get = func(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
			in, err := p.Provider.Get(ctx, ref)
			if e, ok := errors.AsType[*provider.Error](err); ok {
				e.Op = "look"
			}
			return in, err
		}
	}},
}

func deleteOnlyWhatIsThere(p *broken) func(context.Context, provider.Ref) error {
	return func(ctx context.Context, ref provider.Ref) error {
		if p.current(nameOf(ref)).Incarnation == "" {
			return trouble("delete")
		}
		return p.Provider.Delete(ctx, ref)
	}
}

func TestBrokenProviders(t *testing.T) {
	t.Parallel()
	for _, c := range brokenProviders {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			requireCaught(t, c.caught, func(p *broken) provider.Provider { c.fault(p); return p }, true)
		})
	}
}

func TestBrokenRestart(t *testing.T) {
	t.Run("instances that are lost", func(t *testing.T) {
		requireCaught(t, "restart", func(p *broken) provider.Provider {
			p.memory.mu.Lock()
			defer p.memory.mu.Unlock()
			clear(p.memory.instances)
			return p
		}, true)
	})
	t.Run("instances that come back", func(t *testing.T) {
		requireCaught(t, "restart", func(p *broken) provider.Provider { return p }, false)
	})
	t.Run("instances that come back though deleted", func(t *testing.T) {
		var deleted provider.Request
		requireCaught(t, "restart", func(p *broken) provider.Provider {
			if deleted.Name != "" {
				p.replace(deleted)
			}
			p.delete = func(ctx context.Context, ref provider.Ref) error {
				deleted = provider.Request{Name: nameOf(ref), Marks: provider.Marks{Fleet: ours, UID: ref.UID}}
				return p.Provider.Delete(ctx, ref)
			}
			return p
		}, true)
	})
	t.Run("another incarnation", func(t *testing.T) {
		requireCaught(t, "restart", func(p *broken) provider.Provider {
			p.memory.mu.Lock()
			defer p.memory.mu.Unlock()
			for name, in := range p.memory.instances {
				in.Incarnation += "-again"
				p.memory.instances[name] = in
			}
			return p
		}, true)
	})
}

// background gives a provider a Run and Delays.
type background struct {
	provider.Provider
	run    func(context.Context) error
	delays provider.Delays
}

func (p background) Run(ctx context.Context) error { return p.run(ctx) }
func (p background) Delays() provider.Delays       { return p.delays }
func (p background) Unwrap() provider.Provider     { return p.Provider }

func TestBrokenBackground(t *testing.T) {
	t.Parallel()
	good := background{
		run:    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		delays: provider.DefaultDelays(),
	}
	for _, c := range []struct {
		name, caught string
		fault        func(*background, *broken)
	}{
		{"nothing", "", func(*background, *broken) {}},
		{"a Run that ends with an error", "create", func(p *background, _ *broken) {
			p.run = func(ctx context.Context) error { <-ctx.Done(); return errTrouble }
		}},
		{"a Run that does not end", "create", func(p *background, b *broken) {
			p.run = func(context.Context) error { select {} }
		}},
		{"calls that wait for Run", "without-run", func(p *background, b *broken) {
			running := make(chan struct{}, 1)
			p.run = func(ctx context.Context) error {
				running <- struct{}{}
				<-ctx.Done()
				<-running
				return nil
			}
			b.list = func(ctx context.Context) ([]provider.Instance, error) {
				running <- <-running
				return b.Provider.List(ctx)
			}
		}},
		{"no time to send anything", "delays", func(p *background, _ *broken) { p.delays = provider.Delays{} }},
		{"less to settle than to send", "delays", func(p *background, _ *broken) { p.delays = provider.Delays{Call: 2, Settle: 1} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := func(b *broken) provider.Provider {
				p := good
				p.Provider = b
				c.fault(&p, b)
				return p
			}
			if c.caught == "" {
				Run(t, func(testing.TB) Harness { return brokenHarness(open, true) })
				return
			}
			requireCaught(t, c.caught, open, true)
		})
	}
}

// checking gives a broken provider the checks of its Memory, changed by a fault.
type checking struct {
	*broken
	check checkFunc
}

type checkFunc = func(context.Context) []provider.TargetStatus

func (p checking) Check(ctx context.Context) []provider.TargetStatus { return p.check(ctx) }

// Each of these breaks what the case of that name promises. The check that it is given keeps all promises.
var brokenChecks = []struct {
	name, caught string
	fault        func(p *broken, check checkFunc) checkFunc
}{
	{"no verdict", "check", edited(func([]provider.TargetStatus) []provider.TargetStatus { return nil })},
	{"a target twice", "check", edited(func(all []provider.TargetStatus) []provider.TargetStatus { return append(all, all...) })},
	{"a target without a name", "check", eachEdited(func(v *provider.TargetStatus) { v.Target = "" })},
	{"not ready although it is", "check", eachEdited(func(v *provider.TargetStatus) { v.Ready, v.Reason = false, "Shy" })},
	{"a detail that is no word", "check", eachEdited(func(v *provider.TargetStatus) { v.Details = map[string]string{"free space": "1"} })},
	{"targets made from instances", "check", func(p *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus {
			all := check(ctx)
			instances, _ := p.List(context.WithoutCancel(ctx))
			for _, in := range instances {
				all = append(all, provider.TargetStatus{Target: in.ID, Ready: true})
			}
			return all
		}
	}},
	{"a password in a detail", "check", func(p *broken, check checkFunc) checkFunc {
		var last provider.Request
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			last = r
			return p.Provider.Create(ctx, r)
		}
		return func(ctx context.Context) []provider.TargetStatus {
			all := check(ctx)
			all[0].Details = map[string]string{"login": last.Credentials.Password.Reveal()}
			return all
		}
	}},
	{"an instance to try it out", "check-changes-nothing", func(p *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus {
			p.replace(provider.Request{Name: "trial", Marks: provider.Marks{Fleet: ours, UID: "trial"}})
			return check(ctx)
		}
	}},
	{"instances that it repairs", "check-changes-nothing", func(p *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus {
			instances, _ := p.List(context.WithoutCancel(ctx))
			for _, in := range instances {
				p.replace(provider.Request{Name: nameOf(refOf(in)), Marks: in.Marks, Port: in.Port})
			}
			return check(ctx)
		}
	}},
	{"one check at a time, or trouble", "check-at-once", func(_ *broken, check checkFunc) checkFunc {
		var busy sync.Mutex
		return func(ctx context.Context) []provider.TargetStatus {
			if !busy.TryLock() {
				return []provider.TargetStatus{{Target: "memory", Reason: "Busy"}}
			}
			defer busy.Unlock()
			<-time.After(pollEvery)
			return check(ctx)
		}
	}},
	{"calls that fail while it checks", "check-at-once", func(p *broken, check checkFunc) checkFunc {
		var checks atomic.Int64
		p.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			for checks.Load() == 0 {
				<-time.After(time.Millisecond)
			}
			return provider.Instance{}, trouble("create")
		}
		return func(ctx context.Context) []provider.TargetStatus { checks.Add(1); return check(ctx) }
	}},
	{"always ready", "check-fails", eachEdited(func(v *provider.TargetStatus) { v.Ready, v.Reason = true, "" })},
	{"not ready for no reason", "check-fails", eachEdited(func(v *provider.TargetStatus) { v.Reason = "" })},
	{"a reason in prose", "check-fails", eachEdited(func(v *provider.TargetStatus) { v.Reason = v.Message })},
	{"no verdict on what is in trouble", "check-fails", edited(func(all []provider.TargetStatus) []provider.TargetStatus {
		return slices.DeleteFunc(all, func(v provider.TargetStatus) bool { return !v.Ready })
	})},
	{"another reason each time", "check-fails", func(_ *broken, check checkFunc) checkFunc {
		var calls atomic.Int64
		return func(ctx context.Context) []provider.TargetStatus {
			all := check(ctx)
			if !all[0].Ready {
				all[0].Reason = fmt.Sprintf("Trouble%d", calls.Add(1))
			}
			return all
		}
	}},
	{"no verdict for a caller who gave up", "check-ends", func(_ *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus {
			if ctx.Err() != nil {
				return nil
			}
			return check(ctx)
		}
	}},
	{"a wait that no context ends", "check-hangs", func(_ *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus { return check(context.WithoutCancel(ctx)) }
	}},
	{"ready when nobody answered", "check-hangs", eachEdited(func(v *provider.TargetStatus) { v.Ready, v.Reason = true, "" })},
	{"another word for a timeout", "check-hangs", eachEdited(func(v *provider.TargetStatus) {
		if !v.Ready {
			v.Reason = "Slow"
		}
	})},
}

// edited changes what a check returns.
func edited(edit func([]provider.TargetStatus) []provider.TargetStatus) func(*broken, checkFunc) checkFunc {
	return func(_ *broken, check checkFunc) checkFunc {
		return func(ctx context.Context) []provider.TargetStatus { return edit(check(ctx)) }
	}
}

// eachEdited changes each verdict that a check returns.
func eachEdited(edit func(*provider.TargetStatus)) func(*broken, checkFunc) checkFunc {
	return edited(func(all []provider.TargetStatus) []provider.TargetStatus {
		for i := range all {
			edit(&all[i])
		}
		return all
	})
}

func TestBrokenChecks(t *testing.T) {
	t.Parallel()
	for _, c := range brokenChecks {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			requireCaught(t, c.caught, func(p *broken) provider.Provider {
				return checking{p, c.fault(p, memoryProvider{p.memory, ours}.Check)}
			}, true)
		})
	}
}

// A check that waits for Run has to end by its context too.
func TestBrokenCheckWithoutRun(t *testing.T) {
	t.Parallel()
	requireCaught(t, "check-ends", func(b *broken) provider.Provider {
		running := make(chan struct{}, 1)
		check := func(ctx context.Context) []provider.TargetStatus {
			running <- <-running
			return memoryProvider{b.memory, ours}.Check(ctx)
		}
		return background{Provider: checking{b, check}, run: func(ctx context.Context) error {
			running <- struct{}{}
			<-ctx.Done()
			<-running
			return nil
		}}
	}, true)
}

// requireCaught runs the one case that is to catch a broken provider.
func requireCaught(t *testing.T, name string, open func(*broken) provider.Provider, outlives bool) {
	t.Helper()
	all := cases()
	i := slices.IndexFunc(all, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	r := &recorder{TB: t}
	r.run(func() { all[i].run(r, brokenHarness(open, outlives)) })
	if !r.Failed() {
		t.Errorf("the case %s did not catch it", name)
	}
	if log := r.log(); r.Failed() && !strings.Contains(log, all[i].explanation) {
		t.Errorf("the case failed without saying what was expected:\n%s", log)
	}
}

func brokenHarness(open func(*broken) provider.Provider, outlives bool) Harness {
	memory := new(Memory)
	h := memory.Harness()
	h.Open = func(_ testing.TB, fleet string) provider.Provider {
		return open(&broken{Provider: memory.Open(fleet), memory: memory})
	}
	h.Outlives = outlives
	h.Settle = 300 * time.Millisecond
	return h
}
