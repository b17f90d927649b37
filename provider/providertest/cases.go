package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// cases returns the promises of the contract, in the order in which its methods stand there.
func cases() []testCase {
	return []testCase{
		{"plan", "Plan is pure: it answers the same ID each time, another for each name, and it is the one that Create returns", plan},
		{"plan-refuses", "Plan names what a request lacks or what cannot be honoured, as a permanent MissingField or UnsupportedField, and Create refuses it too", planRefuses},

		{"create", "Create makes an instance with the marks and an incarnation, and Get sees it run at an address", create},
		{"create-twice", "Create meets the instance that an earlier one made", createTwice},
		{"create-at-once", "the name is unique at every moment: creates at once make one instance", createAtOnce},
		{"create-meets-other-hash", "Create returns the instance that it meets with that one's own hash, and leaves it alone", createMeetsOtherHash},
		{"create-fails", "after a create that had no effect, Get says NotFound and the next Create makes the instance", createFails},
		{"create-unanswered", "after half a create the next Create meets what the first one made", createUnanswered},
		{"create-foreign-fleet", "the instance of another fleet under our name is a permanent NameTaken for Create, and not there for Get, Delete and List", createForeignFleet},
		{"create-other-uid", "the instance of another proxy under our name is a permanent NameTaken for Create, and not there for Get and Delete", createOtherUID},
		{"create-unmarked", "an instance without marks under our name is a permanent NameTaken for Create, and not there for Get, Delete and List", createUnmarked},

		{"get-never-made", "Get of what was never made is NotFound", getNeverMade},
		{"get-fails", "a backend in trouble is transient for Get, and never NotFound", getFails},
		{"get-ignores-incarnation", "Get does not compare the incarnation of the ref", getIgnoresIncarnation},

		{"delete", "a deleted instance goes, and the next one under its name has another incarnation", deleteCase},
		{"delete-never-made", "Delete of what was never made succeeds", deleteNeverMade},
		{"delete-twice", "Delete succeeds again while the instance goes and when it is gone", deleteTwice},
		{"delete-any", "a ref without incarnation means whichever instance has the ID", deleteAny},
		{"delete-late", "Delete changes nothing when the ref names another incarnation: a late delete never hits the successor", deleteLate},
		{"delete-fails", "Delete does not succeed while a backend in trouble keeps the instance", deleteFails},
		{"delete-unanswered", "after half a delete the next Delete succeeds and the instance goes", deleteUnanswered},

		{"list", "List returns every instance of this fleet as Get does, and none that is gone", list},
		{"list-fails", "a part of the backend that cannot be read fails List: it is complete or an error", listFails},

		{"canceled", "a call whose context was canceled sends nothing and is an error of class canceled", canceled},
		{"deadline-passed", "a call whose deadline has passed sends nothing and is transient", deadlinePassed},
		{"canceled-under-way", "a call ends promptly when its context is canceled while the backend hangs, with class canceled", canceledUnderWay},
		{"without-run", "calls that come before Run or after it still end by their context", withoutRun},

		{"many-at-once", "all methods may be called concurrently, for many instances", manyAtOnce},
		{"lag", "while reads lag, Create makes no second instance, and a name whose owner cannot be seen yet is transient", lag},
		{"restart", "when the provider is opened again, instances that outlive it are the same, and those that do not or were deleted are NotFound", restart},
		{"secrets", "no secret of a request is in an error or in an instance", secrets},
		{"delays", "Delays are not negative, and a backend with a lag gives a call time to be sent", delays},
	}
}

func plan(b *bench) {
	r, other := b.request(), b.request()
	first := b.planned(r)
	if !strings.Contains(first.ID, r.Name) {
		b.Errorf("the ID %q does not contain the name %q", first.ID, r.Name)
	}
	if b.planned(other).ID == first.ID {
		b.Errorf("two names have the ID %q", first.ID)
	}
	if in := b.mustCreate(r); in.ID != first.ID {
		b.Errorf("Create returned the ID %q where Plan had said %q", in.ID, first.ID)
	}
	if again := b.planned(b.again(r)); again.ID != first.ID {
		b.Errorf("Plan said %q, and then %q", first.ID, again.ID)
	}
}

func planRefuses(b *bench) {
	if len(b.Refused) == 0 {
		b.Skipf("the harness names no field that this provider refuses")
	}
	for field, edit := range b.Refused {
		r := b.request()
		ref := b.planned(r)
		edit(&r)
		_, planErr := b.plan(r)
		_, createErr := b.create(r)
		for _, err := range []error{planErr, createErr} {
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Class != provider.ErrPermanent || (e.Reason != provider.MissingField && e.Reason != provider.UnsupportedField) {
				b.Errorf("the error for the field %s is %v, want a permanent %s or %s", field, err, provider.MissingField, provider.UnsupportedField)
			} else if !strings.Contains(e.Error(), field) {
				b.Errorf("the error for the field %s does not name it: %v", field, err)
			}
		}
		b.awaitGone(ref)
	}
}

func create(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	if in.Marks != r.Marks {
		b.Errorf("the instance has the marks %+v, want %+v", in.Marks, r.Marks)
	}
	if in.Incarnation == "" {
		b.Errorf("the instance is Running without an incarnation")
	}
	if in.Host == "" {
		b.Errorf("the instance is Running without a host")
	}
	if in.Port < 0 || in.Port > 65535 || (in.Port == 0 && r.Port == 0) {
		b.Errorf("the instance has the port %d, and the request %d: nobody knows where it listens", in.Port, r.Port)
	}
	if age := time.Since(in.Created); !in.Created.IsZero() && (age < -time.Hour || age > time.Hour) {
		b.Errorf("an instance made just now says it was made at %v", in.Created)
	}
}

func createTwice(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	for _, repeat := range []provider.Request{r, b.again(r)} {
		met, err := b.create(repeat)
		if err != nil {
			b.Fatalf("Create of an instance that is there: %v", err)
		}
		if met.ID != in.ID || met.Incarnation != in.Incarnation {
			b.Errorf("Create returned %s/%s where %s/%s is", met.ID, met.Incarnation, in.ID, in.Incarnation)
		}
	}
	b.onlyOne(in)
}

// onlyOne says that in is the one instance of our fleet.
func (b *bench) onlyOne(in provider.Instance) {
	b.Helper()
	b.stays(in)
	b.listsOnly(in)
}

// listsOnly says that List comes to have in and nothing else.
func (b *bench) listsOnly(in provider.Instance) {
	b.Helper()
	b.eventually("List has the one instance and no other", func() error {
		all, err := b.list()
		if err == nil && (len(all) != 1 || all[0].Incarnation != in.Incarnation) {
			err = fmt.Errorf("it has %+v", all)
		}
		return err
	})
}

func createAtOnce(b *bench) {
	const callers = 8
	r := b.request()
	var made [callers]provider.Instance
	var errs [callers]error
	var group sync.WaitGroup
	for i := range callers {
		request := b.again(r)
		group.Go(func() { made[i], errs[i] = b.create(request) })
	}
	group.Wait()
	in := b.mustCreate(b.again(r))
	for i := range callers {
		if err := errs[i]; err != nil && provider.ClassOf(err) != provider.ErrTransient {
			b.Errorf("one of several creates at once failed: %v", err)
		}
		if got := made[i].Incarnation; got != "" && got != in.Incarnation {
			b.Errorf("creates at once returned the incarnations %q and %q", got, in.Incarnation)
		}
	}
	b.onlyOne(in)
}

func createMeetsOtherHash(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	edited := b.again(r)
	edited.Marks.Hash = "v1-fedcba9876543210"
	met, err := b.create(edited)
	if err != nil {
		b.Fatalf("Create of an instance that is there with another hash: %v", err)
	}
	if met.Marks != r.Marks {
		b.Errorf("Create returned the marks %+v, want those of the instance, %+v", met.Marks, r.Marks)
	}
	b.stays(in)
	if now := b.awaitRunning(refOf(in)); now.Marks != r.Marks {
		b.Errorf("Create changed the marks of the instance that it met to %+v", now.Marks)
	}
}

func createFails(b *bench) {
	r := b.request()
	ref := b.planned(r)
	b.inject(CreateFails)
	_, err := b.create(r)
	if b.retried(err) {
		b.onlyOne(b.mustCreate(b.again(r)))
		return
	}
	b.awaitGone(ref)
	b.onlyOne(b.mustCreate(b.again(r)))
}

// retried says whether a provider got over a fault by itself, which it may. Else the error is to be transient.
func (b *bench) retried(err error) bool {
	b.Helper()
	if err != nil && provider.ClassOf(err) != provider.ErrTransient {
		b.Errorf("while its backend was in trouble, a method returned %v, want success after all or a transient error", err)
	}
	return err == nil
}

func createUnanswered(b *bench) {
	r := b.request()
	b.inject(CreateUnanswered)
	half, err := b.create(r)
	b.retried(err)
	in := b.mustCreate(b.again(r))
	if half.Incarnation != "" && half.Incarnation != in.Incarnation {
		b.Errorf("the first Create returned the incarnation %q, and the second %q", half.Incarnation, in.Incarnation)
	}
	b.onlyOne(in)
}

func createForeignFleet(b *bench) {
	r := b.request()
	foreign := r
	foreign.Marks = provider.Marks{Fleet: theirs, UID: r.Marks.UID, Hash: r.Marks.Hash}
	b.plant(foreign)
	b.notOurs(r)
	b.notListed(r)
	if b.Plant != nil {
		return
	}
	b.open(theirs)
	b.stays(b.awaitRunning(provider.Ref{ID: b.planned(r).ID, UID: r.Marks.UID}))
}

func createOtherUID(b *bench) {
	r := b.request()
	other := b.again(r)
	other.Marks.UID = "uid-of-another-proxy"
	in := b.mustCreate(other)
	b.notOurs(r)
	b.stays(in)
}

func createUnmarked(b *bench) {
	if b.Plant == nil {
		b.Skipf("the harness cannot plant an instance without marks")
	}
	r := b.request()
	unmarked := r
	unmarked.Marks = provider.Marks{}
	b.plant(unmarked)
	b.notOurs(r)
	b.notListed(r)
}

// plant puts an instance into the backend that is not ours, and opens the provider for our fleet again.
func (b *bench) plant(r provider.Request) {
	b.Helper()
	if b.Plant != nil {
		b.Plant(b.TB, r)
		return
	}
	if !b.Outlives {
		b.Skipf("the harness cannot plant an instance, and its own do not outlive the provider")
	}
	b.open(theirs)
	b.mustCreate(r)
	b.open(ours)
}

// notOurs says that the instance under the name of r is not treated as ours, by any method, and stays.
func (b *bench) notOurs(r provider.Request) {
	b.Helper()
	ref := b.planned(r)
	taken := func() {
		b.Helper()
		_, err := b.create(b.again(r))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != provider.NameTaken {
			b.Errorf("Create under a name that is taken returned %v, want a permanent %s", err, provider.NameTaken)
		}
	}
	taken()
	if in, err := b.get(ref); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Get of what is not ours returned %+v and %v, want NotFound", in, err)
	}
	if err := b.delete(ref); err != nil {
		b.Errorf("Delete of what is not ours returned %v, want nil", err)
	}
	taken()
}

// notListed says that List has nothing under the ID of r.
func (b *bench) notListed(r provider.Request) {
	b.Helper()
	if in, ok := b.mustList()[b.planned(r).ID]; ok {
		b.Errorf("List has an instance that is not of our fleet: %+v", in)
	}
}

func getNeverMade(b *bench) {
	if in, err := b.get(b.planned(b.request())); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Get returned %+v and %v, want NotFound", in, err)
	}
}

func getFails(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(GetFails)
	got, err := b.get(refOf(in))
	if b.retried(err) && got.Incarnation != in.Incarnation {
		b.Errorf("Get returned the incarnation %q, want %q", got.Incarnation, in.Incarnation)
	}
	b.stays(in)
}

func getIgnoresIncarnation(b *bench) {
	in := b.mustCreate(b.request())
	ref := refOf(in)
	ref.Incarnation = "another-incarnation"
	for _, ref := range []provider.Ref{ref, anyOf(in)} {
		if got, err := b.get(ref); err != nil || got.Incarnation != in.Incarnation {
			b.Errorf("Get with the incarnation %q returned %q and %v, want %q", ref.Incarnation, got.Incarnation, err, in.Incarnation)
		}
	}
}

func deleteCase(b *bench) {
	r := b.request()
	in, other := b.mustCreate(r), b.mustCreate(b.request())
	b.mustDelete(refOf(in))
	if next := b.mustCreate(b.again(r)); next.Incarnation == in.Incarnation {
		b.Errorf("the successor has the incarnation of the instance that is gone, %q", in.Incarnation)
	}
	b.stays(other)
}

func deleteNeverMade(b *bench) {
	if err := b.delete(b.planned(b.request())); err != nil {
		b.Errorf("Delete returned %v, want nil", err)
	}
}

func deleteTwice(b *bench) {
	in := b.mustCreate(b.request())
	for range 2 {
		if err := b.delete(refOf(in)); err != nil {
			b.Errorf("Delete of an instance that goes returned %v, want nil", err)
		}
	}
	b.awaitGone(refOf(in))
	for _, ref := range []provider.Ref{refOf(in), anyOf(in)} {
		if err := b.delete(ref); err != nil {
			b.Errorf("Delete of an instance that is gone returned %v, want nil", err)
		}
	}
}

func deleteAny(b *bench) {
	in := b.mustCreate(b.request())
	b.mustDelete(anyOf(in))
}

func deleteLate(b *bench) {
	r := b.request()
	old := b.mustCreate(r)
	b.mustDelete(refOf(old))
	next := b.mustCreate(b.again(r))
	if err := b.delete(refOf(old)); err != nil {
		b.Errorf("Delete of the instance that went before returned %v, want nil", err)
	}
	b.stays(next)
	b.onlyOne(next)
}

func deleteFails(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(DeleteFails)
	if b.retried(b.delete(refOf(in))) {
		b.awaitGone(refOf(in))
		return
	}
	b.stays(in)
	b.mustDelete(refOf(in))
}

func deleteUnanswered(b *bench) {
	in := b.mustCreate(b.request())
	b.inject(DeleteUnanswered)
	b.retried(b.delete(refOf(in)))
	b.mustDelete(refOf(in))
}

func list(b *bench) {
	if all := b.mustList(); len(all) != 0 {
		b.Errorf("List of a fleet without instances returned %v", all)
	}
	const count = 5
	made := map[string]provider.Instance{}
	for range count {
		in := b.mustCreate(b.request())
		made[in.ID] = in
	}
	gone := b.mustCreate(b.request())
	b.mustDelete(refOf(gone))
	b.eventually("List has the instances that are there and no others", func() error {
		all := b.mustList()
		for id, want := range made {
			got, ok := all[id]
			if !ok {
				return fmt.Errorf("%s is missing", id)
			}
			if got.Incarnation != want.Incarnation || got.Marks != want.Marks || got.State != want.State {
				return fmt.Errorf("it has %+v where Get has %+v", got, want)
			}
		}
		if len(all) != count {
			return fmt.Errorf("it has %d instances, want %d", len(all), count)
		}
		return nil
	})
}

func listFails(b *bench) {
	for range 3 {
		b.mustCreate(b.request())
	}
	b.inject(ListFails)
	if all, err := b.list(); b.retried(err) && len(all) != 3 {
		b.Errorf("List returned %d instances without an error, want all 3 or a transient error", len(all))
	}
	b.eventually("List has all instances again", func() error {
		all, err := b.list()
		if err == nil && len(all) != 3 {
			err = fmt.Errorf("it has %d instances, want 3", len(all))
		}
		return err
	})
}

// call is one method with a context.
type call struct {
	op string
	do func(context.Context) error
}

// calls are the methods that go to the backend: a Create of r, and the others for in.
func (b *bench) calls(r provider.Request, in provider.Instance) []call {
	return []call{
		{"create", func(ctx context.Context) error { _, err := b.provider.Create(ctx, r); return err }},
		{"get", func(ctx context.Context) error { _, err := b.provider.Get(ctx, refOf(in)); return err }},
		{"delete", func(ctx context.Context) error { return b.provider.Delete(ctx, refOf(in)) }},
		{"list", func(ctx context.Context) error { _, err := b.provider.List(ctx); return err }},
	}
}

func canceled(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	b.sendsNothing(ctx, provider.ErrCanceled)
}

func deadlinePassed(b *bench) {
	ctx, cancel := context.WithDeadline(b.Context(), time.Now().Add(-time.Minute))
	defer cancel()
	b.sendsNothing(ctx, provider.ErrTransient)
}

// sendsNothing says that calls with a context that has ended fail with that class and change nothing.
func (b *bench) sendsNothing(ctx context.Context, class provider.Class) {
	b.Helper()
	in, r := b.mustCreate(b.request()), b.request()
	ref := b.planned(r)
	for _, c := range b.calls(r, in) {
		err := b.ends(c.op, func() error { return c.do(ctx) })
		if provider.ClassOf(err) != class {
			b.Errorf("%s with a context that has ended returned %v, want the class %s", c.op, err, class)
		}
	}
	if made, err := b.get(ref); provider.ClassOf(err) != provider.ErrNotFound {
		b.Errorf("Create with a context that has ended made something: Get returns %+v and %v", made, err)
	}
	b.onlyOne(in)
}

func canceledUnderWay(b *bench) {
	in, r := b.mustCreate(b.request()), b.request()
	b.inject(Hangs)
	for _, c := range b.calls(r, in) {
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(2*pollEvery, cancel)
		err := b.ends(c.op, func() error { return c.do(ctx) })
		if provider.ClassOf(err) != provider.ErrCanceled {
			b.Errorf("%s that was canceled while the backend hung returned %v, want the class %s", c.op, err, provider.ErrCanceled)
		}
	}
}

func withoutRun(b *bench) {
	if _, ok := provider.As[provider.Runner](b.provider); !ok {
		b.Skipf("the provider has no Run")
	}
	in := b.mustCreate(b.request())
	b.close()
	b.endByContext(in, "after Run")
	b.openOnly(ours)
	b.endByContext(in, "before Run")
}

// endByContext says that calls end soon after their context, whatever they return.
func (b *bench) endByContext(in provider.Instance, when string) {
	b.Helper()
	b.Logf("Calls %s", when)
	for _, c := range b.calls(b.request(), in) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*pollEvery)
		_ = b.ends(c.op, func() error { return c.do(ctx) })
		cancel()
	}
}

func manyAtOnce(b *bench) {
	const count = 12
	var requests [count]provider.Request
	for i := range requests {
		requests[i] = b.request()
		b.planned(requests[i])
	}
	errs := make(chan error, 4*count)
	var group sync.WaitGroup
	for _, r := range requests {
		group.Go(func() {
			in, err := b.create(r)
			errs <- err
			_, err = b.list()
			errs <- err
			if in.Incarnation == "" {
				return
			}
			_, err = b.get(anyOf(in))
			if provider.ClassOf(err) != provider.ErrNotFound {
				errs <- err
			}
			errs <- b.delete(refOf(in))
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			b.Errorf("one of many calls at once: %v", err)
		}
	}
	for _, r := range requests {
		b.mustDelete(b.planned(r))
	}
}

func lag(b *bench) {
	r := b.request()
	b.inject(Lags)
	first, err := b.create(r)
	if err != nil {
		b.Fatalf("Create: %v", err)
	}
	met, err := b.create(b.again(r))
	switch {
	case err != nil && provider.ClassOf(err) != provider.ErrTransient:
		b.Errorf("Create of what is made but cannot be seen yet returned %v, want a transient error or the instance", err)
	case err == nil && met.Incarnation != first.Incarnation && met.Incarnation != "" && first.Incarnation != "":
		b.Errorf("two creates returned the incarnations %q and %q", first.Incarnation, met.Incarnation)
	}
	var in provider.Instance
	b.eventually("the instance is Running", func() error {
		in, err = b.get(anyOf(first))
		if err == nil && in.State != provider.Running {
			err = fmt.Errorf("it is %s", in.State)
		}
		return err
	})
	b.listsOnly(in)
}

func restart(b *bench) {
	r := b.request()
	in := b.mustCreate(r)
	b.open(ours)
	if !b.Outlives {
		b.awaitGone(refOf(in))
		if next := b.mustCreate(b.again(r)); next.Incarnation == in.Incarnation {
			b.Errorf("the incarnation %q came back with the provider", in.Incarnation)
		}
		return
	}
	now := b.awaitRunning(refOf(in))
	if now.Incarnation != in.Incarnation || now.Marks != in.Marks || now.Host != in.Host || now.Port != in.Port {
		b.Errorf("the instance was %+v, and is %+v", in, now)
	}
	if met := b.mustCreate(b.again(r)); met.Incarnation != in.Incarnation {
		b.Errorf("Create made the incarnation %q where %q outlived the provider", met.Incarnation, in.Incarnation)
	}
	b.onlyOne(in)
	b.mustDelete(refOf(in))
	b.open(ours)
	b.awaitGone(refOf(in))
}

// secrets provokes errors; the bench looks for secrets in all that comes back, here and in every other case.
func secrets(b *bench) {
	r := b.request()
	if r.CloudInit.IsZero() && r.Credentials.IsZero() {
		b.Skipf("the harness makes requests without a secret")
	}
	for _, s := range b.secrets {
		if n := len(s.Reveal()); n > 0 && n < 12 {
			b.Fatalf("the harness makes requests with a secret of %d characters, which may occur by chance", n)
		}
	}
	other := b.again(r)
	other.Marks.UID = "uid-of-another-proxy"
	in := b.mustCreate(r)
	_, _ = b.create(other)
	_, _ = b.list()
	for _, edit := range b.Refused {
		bad := b.request()
		edit(&bad)
		_, _ = b.plan(bad)
		_, _ = b.create(bad)
	}
	for _, f := range []Fault{CreateFails, CreateUnanswered} {
		if b.Inject(f) {
			_, _ = b.create(b.request())
		}
	}
	if b.Inject(GetFails) {
		_, _ = b.get(refOf(in))
	}
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	for _, c := range b.calls(b.request(), in) {
		b.judge(c.op, c.do(ctx))
	}
}

func delays(b *bench) {
	delayer, ok := provider.As[provider.Delayer](b.provider)
	if !ok {
		b.Skipf("the provider states no delays")
	}
	d := delayer.Delays()
	if d.Call <= 0 {
		b.Errorf("Call is %v: no Create could be sent", d.Call)
	}
	if d.Settle != 0 && d.Settle < d.Call {
		b.Errorf("Settle is %v, which does not cover Call, %v", d.Settle, d.Call)
	}
}
