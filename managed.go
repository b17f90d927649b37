package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// wish is what the spec asks for.
type wish struct {
	inputs proxy.Inputs
	hash   string
	// request lacks its token: each intent has its own.
	request provider.Request
	// provider and id are where the instance is to be. When err is not nil the spec cannot be fulfilled as it stands, and
	// they are empty.
	provider provider.Provider
	id       string
	err      error
}

// managed compares what the spec wants with what the provider has.
func (p *pass) managed(ctx context.Context) (Result, error) {
	in, err := p.Store.Inputs(ctx, p.p)
	if err != nil {
		return p.unresolved(err)
	}
	p.set(proxy.Resolved, proxy.True, ReasonResolved, "")
	w := p.wish(in)
	last := p.s.Instance
	if last.ID == "" {
		return p.create(ctx, w)
	}
	prov := p.Providers[last.Provider] // the one that has it, whatever the spec says now
	if prov == nil {
		return p.unknownProvider(last.Provider)
	}
	if p.latched(w, prov) {
		return p.await(prov), nil
	}
	if wait := p.queued(ctx, w); wait != "" {
		return p.queue(wait), nil
	}
	got, settled, err := p.get(ctx, prov)
	switch {
	case errors.Is(err, provider.ErrNotFound), createFailed(err):
		return p.absent(ctx, w, prov, settled, err)
	case err != nil:
		return p.fail(ctx, err)
	}
	return p.present(ctx, w, prov, got)
}

// unresolved reports a reference that leads nowhere. Nothing is made and nothing deleted; what runs goes on.
func (p *pass) unresolved(err error) (Result, error) {
	input, ok := errors.AsType[*proxy.InputError](err)
	if !ok {
		return Result{}, err // the store failed, which says nothing about the references
	}
	p.set(proxy.Resolved, proxy.False, input.Reason, message("", input.Error()))
	p.applyHealth()
	return Result{}, err
}

// unknownProvider reports that nobody can be asked. It is not latched: the configuration may name the provider again.
func (p *pass) unknownProvider(name string) (Result, error) {
	err := fmt.Errorf("no provider %q is configured; configure it, or edit spec.provider", name)
	if declared := p.p.Spec.Provider; declared != name {
		err = fmt.Errorf("the instance is with provider %q, which is not configured any more, and %q cannot take over before it is deleted there: "+
			"configure %q again", name, declared, name)
	}
	if c := p.provisioned(); c.Status == proxy.True {
		p.set(proxy.Provisioned, proxy.True, c.Reason, message(ReasonUnknownProvider, err.Error()))
		p.applyHealth()
	} else {
		p.lacks(ReasonUnknownProvider, err.Error())
	}
	return Result{After: p.Intervals.DriftPoll}, nil
}

// wish works out what the spec asks for.
func (p *pass) wish(in proxy.Inputs) wish {
	spec := p.p.Spec
	w := wish{inputs: in, hash: p.Hasher.Hash(p.p.UID, spec, in)}
	w.request = provider.Request{
		Name:  provider.Name(p.Fleet, p.p.UID),
		Marks: provider.Marks{Fleet: p.Fleet, UID: p.p.UID, Hash: w.hash},
		Placement: provider.Placement{Zone: spec.Placement.Zone, MachineType: spec.Placement.MachineType,
			Image: spec.Placement.Image, DiskSizeGb: spec.Placement.DiskSizeGb},
		Port:        int(spec.Port),
		CloudInit:   in.CloudInit,
		Credentials: provider.Credentials{Username: in.Username, Password: in.Password},
	}
	if spec.Mode == proxy.External {
		w.err = errors.New("an External proxy has no instance")
		return w
	}
	prov := p.Providers[spec.Provider]
	if prov == nil {
		w.err = &provider.Error{Op: "plan", Class: provider.ErrPermanent, Reason: ReasonUnknownProvider,
			Err: fmt.Errorf("no provider %q is configured", spec.Provider)}
		return w
	}
	if w.id, w.err = prov.Plan(w.request); w.err == nil {
		w.provider = prov
	}
	return w
}

// same says whether the last attempt was for what is wished now.
func (p *pass) same(w wish) bool {
	last := p.s.Instance
	return w.err == nil && w.id == last.ID && p.p.Spec.Provider == last.Provider
}

// due says whether the next attempt may be made. Inputs that were not tried yet go at once, and so does what somebody asked
// for or restarted the process for.
func (p *pass) due(w wish) bool {
	last := p.s.Instance
	return last.Hash != w.hash || p.asked() || p.restarted() || !p.now.Before(last.Retry.Std())
}

// asked says whether the retry annotation has a value that no attempt has answered.
func (p *pass) asked() bool {
	value := p.p.Annotations[proxy.RetryAnnotation]
	return value != "" && value != p.s.Instance.Asked
}

// restarted says whether the last attempt failed permanently in an earlier process.
func (p *pass) restarted() bool {
	return p.provisioned().Reason == ReasonPermanentError && p.s.Instance.Planned.Std().Before(p.Started.Truncate(time.Second))
}

// latched says whether the last attempt failed in a way that asking again now would not mend: the provider is left alone
// until the next attempt is due, or until it must have shown whether the failed one made something.
func (p *pass) latched(w wish, prov provider.Provider) bool {
	c := p.provisioned()
	if p.s.Instance.Incarnation != "" || c.Reason != ReasonPermanentError && c.Reason != ReasonQuotaExceeded {
		return false
	}
	return p.same(w) && !p.due(w) && !p.settled(prov)
}

// get asks the provider. settled says that NotFound can be believed: no create of the ID is under way or still unseen.
func (p *pass) get(ctx context.Context, prov provider.Provider) (got provider.Instance, settled bool, err error) {
	settled = p.settled(prov) // before the call, whose answer may take long
	call, cancel := context.WithTimeout(ctx, p.Intervals.Call)
	defer cancel()
	got, err = prov.Get(call, p.ref(""))
	return got, settled, err
}

func (p *pass) settled(prov provider.Provider) bool {
	return !p.now.Before(p.s.Instance.Planned.Std().Add(delays(prov).Settle))
}

func delays(prov provider.Provider) provider.Delays {
	if d, ok := provider.As[provider.Delayer](prov); ok {
		return d.Delays()
	}
	return provider.DefaultDelays()
}

func (p *pass) ref(incarnation string) provider.Ref {
	return provider.Ref{ID: p.s.Instance.ID, UID: p.p.UID, Incarnation: incarnation}
}

// create writes down what is about to be made, and then makes it.
func (p *pass) create(ctx context.Context, w wish) (Result, error) {
	switch {
	case p.Providers[p.p.Spec.Provider] == nil:
		return p.unknownProvider(p.p.Spec.Provider)
	case w.err != nil:
		return p.fail(ctx, w.err)
	case !p.due(w):
		return p.await(w.provider), nil
	}
	if full, err := p.pace.admit(ctx, p, w); full || err != nil {
		return Result{After: p.Intervals.QuotaRetry}, err
	}
	w.request.Token = digest([]string{p.p.UID, p.p.Version}) // the version that this intent got
	planned := p.s.Instance.Planned.Std()
	call, cancel := context.WithDeadline(ctx, planned.Add(delays(w.provider).Call))
	defer cancel()
	got, err := w.provider.Create(call, w.request)
	if err != nil {
		return p.postpone(ctx, w.provider, err)
	}
	p.announce(ctx, w, got)
	return p.present(ctx, w, w.provider, got)
}

// clockSkew is by how much the clock of a backend may be behind before a new instance is taken for an old one.
const clockSkew = 5 * time.Second

// announce logs what Create has made or met. While it has made nothing yet, the condition says how far it is.
func (p *pass) announce(ctx context.Context, w wish, got provider.Instance) {
	last := p.s.Instance
	log := p.Logger.With("proxy", p.p.Key, "provider", last.Provider, "id", got.ID, "incarnation", got.Incarnation, "attempt", last.Attempt)
	switch old := last.Planned.Std().Add(-clockSkew); {
	case got.Incarnation == "":
	case got.Marks.Hash != w.hash, !got.Created.IsZero() && got.Created.Before(old):
		log.InfoContext(ctx, "instance met")
	default:
		log.InfoContext(ctx, "instance created")
	}
}

// intend writes down what is about to be made.
func (p *pass) intend(ctx context.Context, w wish) error {
	last := p.s.Instance
	attempt := int32(1)
	if last.Hash == w.hash && !p.asked() {
		attempt = last.Attempt + 1
	}
	p.leave()
	p.s.Instance = proxy.Instance{Provider: p.p.Spec.Provider, ID: w.id, Retiring: last.Retiring,
		Hash: w.hash, Attempt: attempt, Planned: proxy.At(p.now), Asked: p.p.Annotations[proxy.RetryAnnotation]}
	p.s.Instance.Retry = p.retry(nil)
	if last.ID != w.id || p.provisioned().Reason != ReasonProvisioning { // else it goes on: how far it is stays told
		p.lacks(ReasonProvisioning, "")
	}
	return p.commit(ctx)
}

// postpone puts the next attempt off as the class of the error says.
func (p *pass) postpone(ctx context.Context, prov provider.Provider, err error) (Result, error) {
	if givenUp(ctx, err) {
		return Result{}, err
	}
	p.report(err)
	p.s.Instance.Retry = p.retry(err)
	p.logged = true
	p.Logger.WarnContext(ctx, "create failed", "proxy", p.p.Key, "provider", p.s.Instance.Provider,
		"class", string(provider.ClassOf(err)), "attempt", p.s.Instance.Attempt, "next", p.s.Instance.Retry, "err", err)
	return p.await(prov), nil
}

// await looks again when the next attempt is due, or when the last one must have shown itself: an answer may have been
// lost, and a failure that is told may be that of an earlier attempt.
func (p *pass) await(prov provider.Provider) Result {
	last := p.s.Instance
	wait := last.Retry.Std().Sub(p.now)
	if unsettled := last.Planned.Std().Add(delays(prov).Settle).Sub(p.now); last.ID != "" && unsettled > 0 {
		wait = min(wait, unsettled)
	}
	return Result{After: max(wait, p.Intervals.Requeue)}
}

// retry is the time of the next attempt. It counts from the intent, so that an error that is told again and again puts the
// attempt off once. Without an error it is the time after an instance that did not last.
func (p *pass) retry(err error) proxy.Time {
	last := p.s.Instance
	wait := p.Intervals.LastRetry
	if doublings := min(max(last.Attempt-1, 0), 62); p.Intervals.FirstRetry <= wait>>doublings {
		wait = p.Intervals.FirstRetry << doublings
	}
	switch provider.ClassOf(err) {
	case provider.ErrQuotaExceeded:
		wait = max(wait, p.Intervals.QuotaRetry)
	case provider.ErrPermanent:
		wait = p.jittered()
	}
	return proxy.At(last.Planned.Std().Add(max(wait, retryAfter(err))))
}

// jittered spreads the attempts of a fleet that failed permanently at once: a tenth to either side, the same for one proxy
// and attempt.
func (p *pass) jittered() time.Duration {
	h := fnv.New32a()
	h.Write([]byte(p.p.UID + strconv.FormatInt(p.s.Instance.Planned.Std().Unix(), 10)))
	share := float64(h.Sum32())/(1<<32)*0.2 - 0.1
	return p.Intervals.PermanentRetry + time.Duration(share*float64(p.Intervals.PermanentRetry))
}

// absent handles what was planned and is not there: cause says whether it is not found or known to have failed. The same
// create may be sent again, for it meets what exists. To give an ID up, or to believe a loss, takes a settled answer: an ID
// that is forgotten while a create of it is under way is an instance that nobody knows.
func (p *pass) absent(ctx context.Context, w wish, prov provider.Provider, settled bool, cause error) (Result, error) {
	failed := createFailed(cause)
	if p.same(w) && (failed || p.s.Instance.Incarnation == "") {
		if failed && p.retry(cause).Std().After(p.now) {
			p.report(cause)
			p.s.Instance.Retry = p.retry(cause)
		}
		if p.due(w) {
			return p.create(ctx, w)
		}
		if !settled {
			return p.await(prov), nil
		}
	}
	if !settled && p.provisioned().Reason == ReasonReplacing {
		until := p.s.Instance.Planned.Std().Add(delays(prov).Settle)
		p.lacks(ReasonReplacing, fmt.Sprintf("waits until %v, when no earlier create can take effect any more", proxy.At(until)))
	}
	if !settled {
		return Result{After: p.Intervals.ProvisioningPoll}, nil
	}
	return p.forget(ctx, failed), nil
}

// forget gives the ID up: nothing is there, and nothing is on its way. What was tried, and when, is kept, and so is the
// reason of a create that failed.
func (p *pass) forget(ctx context.Context, failed bool) Result {
	last := p.s.Instance
	p.leave()
	p.s.Instance = proxy.Instance{Retiring: last.Retiring, Hash: last.Hash, Attempt: last.Attempt, Planned: last.Planned,
		Retry: last.Retry, Asked: last.Asked}
	switch {
	case failed || last.Incarnation == "":
	case last.Retiring != "" || p.provisioned().Reason == ReasonReplacing:
		p.lacks(ReasonReplacing, "")
	default:
		p.lacks(ReasonInstanceGone, "")
		p.Logger.WarnContext(ctx, "instance gone", "proxy", p.p.Key, "provider", last.Provider, "id", last.ID, "incarnation", last.Incarnation)
	}
	return Result{After: p.Intervals.Requeue}
}

// present handles what is there: it is waited for, taken, or removed because the spec wants another.
func (p *pass) present(ctx context.Context, w wish, prov provider.Provider, got provider.Instance) (Result, error) {
	p.meet(got.Incarnation)
	switch {
	case got.State == provider.Terminating:
		return p.terminating(got), nil
	case got.Incarnation == "":
		return p.underWay(got), nil
	case p.p.Spec.Mode == proxy.External || !p.Hasher.Matches(got.Marks.Hash, p.p.UID, p.p.Spec, w.inputs):
		return p.traced(ctx, "reconcile.replaceInstance", func(ctx context.Context) (Result, error) {
			return p.replace(ctx, w, prov, got)
		})
	}
	if p.s.Instance.Retiring == got.Incarnation {
		p.s.Instance.Retiring = "" // wanted again before it was deleted
	}
	if got.State == provider.Stopped {
		p.leave()
		p.lacks(ReasonStopped, message(got.Reason, got.Message))
		return p.remove(ctx, prov, got.Incarnation)
	}
	return p.keep(got, ""), nil
}

// terminating waits for an instance that goes.
func (p *pass) terminating(got provider.Instance) Result {
	p.leave()
	if p.s.Instance.Retiring != "" {
		p.lacks(ReasonReplacing, message(got.Reason, got.Message))
	} else {
		p.lacks(ReasonTerminating, message(got.Reason, got.Message))
	}
	return Result{After: p.Intervals.DeletionPoll}
}

// underWay waits for what the provider needs before it can make an instance. The same create is sent again, and that is no
// further attempt.
func (p *pass) underWay(got provider.Instance) Result {
	p.lacks(ReasonProvisioning, message(got.Reason, got.Message))
	p.s.Instance.Attempt = max(p.s.Instance.Attempt-1, 0)
	p.s.Instance.Retry = proxy.At(p.now.Add(p.Intervals.ProvisioningPoll))
	return Result{After: p.Intervals.ProvisioningPoll}
}

// keep takes an instance as it is. note says what is not as the spec wants it.
func (p *pass) keep(got provider.Instance, note string) Result {
	if got.State != provider.Running {
		reason := ReasonProvisioning
		if got.State == provider.Stopped {
			reason = ReasonStopped
		}
		p.leave() // somebody else may listen there meanwhile
		p.lacks(reason, message(note, message(got.Reason, got.Message)))
		return Result{After: p.Intervals.ProvisioningPoll}
	}
	p.s.Instance.Host = got.Host
	p.s.Instance.Port = p.port(got, note != "")
	p.set(proxy.Provisioned, proxy.True, ReasonCreated, note)
	if !p.now.Before(p.s.Instance.Planned.Std().Add(p.Intervals.Stable)) {
		p.s.Instance.Attempt = 0
	}
	p.applyHealth()
	if healthPhase(p.s) == proxy.Ready {
		p.s.Instance.Retiring = "" // the successor serves: the next one may be replaced
	}
	return Result{After: p.Intervals.DriftPoll}
}

// port is where the instance listens. One that says nothing listens where it was asked to, which an edit does not change.
func (p *pass) port(got provider.Instance, edited bool) int32 {
	switch {
	case got.Port != 0:
		return int32(got.Port)
	case edited && p.s.Instance.Port != 0:
		return p.s.Instance.Port
	}
	return p.p.Spec.Port
}

// createFailed says whether an error tells of an accepted create that came to nothing.
func createFailed(err error) bool {
	e, ok := errors.AsType[*provider.Error](err)
	return ok && e.CreateFailed
}
