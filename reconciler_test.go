package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// row is one branch of the state machine: the state of a record, what provider and health answer, what a pass then does in
// which order, and the state after it.
type row struct {
	name   string
	record *proxy.Proxy
	given  func(*world)
	calls  []string
	change func(*proxy.Status) // of the status that the record had; nil for none
	after  time.Duration
	err    error // is in the tree of the error of the pass
}

// jittered stands for the wait after a permanent failure: an hour, give or take a tenth.
const jittered = time.Duration(-1)

func isJittered(d time.Duration) bool {
	return d >= 54*time.Minute && d <= 66*time.Minute && d != time.Hour
}

func runRows(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, r.run)
		})
	}
}

func (r row) run(t *testing.T) {
	w := newWorld(t, r.record)
	if r.given != nil {
		r.given(w)
	}
	res, err := w.reconcile()
	if !errors.Is(err, r.err) {
		t.Errorf("error %v, want %v", err, r.err)
	}
	calls := w.journal.take()
	if diff := cmp.Diff(r.calls, calls, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if call := unannounced(calls); call != "" {
		t.Errorf("no write of the status stands directly before %q", call)
	}
	after := res.After
	if r.after == jittered && isJittered(after) {
		after = jittered
	}
	if err == nil && after != r.after {
		t.Errorf("looks again after %v, want %v", after, r.after)
	}
	p, err := w.store.Get(t.Context(), one)
	if err != nil {
		if r.change != nil {
			t.Fatal(err)
		}
		return // the row wants no record
	}
	want := r.record.Status.Clone()
	if r.change != nil {
		r.change(&want)
	}
	if want.Instance.Retry == never && isJittered(p.Status.Instance.Retry.Std().Sub(p.Status.Instance.Planned.Std())) {
		want.Instance.Retry = p.Status.Instance.Retry
	}
	if diff := cmp.Diff(want, p.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// never stands for an hour after planned, give or take a tenth.
var never = proxy.At(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))

// unannounced returns a call that changes the world without a write of the status directly before it.
func unannounced(calls []string) string {
	for i, call := range calls {
		if !strings.HasPrefix(call, "create") && !strings.HasPrefix(call, "delete") {
			continue
		}
		if i == 0 || !strings.HasPrefix(calls[i-1], "status") && calls[i-1] != "compare" {
			return call
		}
	}
	return ""
}

// edit changes a record. The states below are made by edits of edits.
type edit func(*proxy.Proxy)

// declared is a record that nothing was done about but its finalizer.
func declared(edits ...edit) *proxy.Proxy {
	p := &proxy.Proxy{Key: one, UID: "uid-1", Version: "v-1", Generation: 3, Finalizer: true,
		Spec: proxy.Spec{Provider: "cloud"}.Canonical()}
	for _, e := range edits {
		e(p)
	}
	return p
}

// planned is a record whose create was written down that long ago. What it led to is not known.
func planned(ago time.Duration, edits ...edit) *proxy.Proxy {
	at := t0.Add(-ago)
	p := declared(func(p *proxy.Proxy) {
		p.Status = proxy.Status{
			Format: proxy.StatusFormat, Phase: proxy.Provisioning, ObservedGeneration: 3,
			Conditions: []proxy.Condition{
				{Type: proxy.Provisioned, Status: proxy.False, Reason: ReasonProvisioning, LastTransitionTime: proxy.At(at)},
				{Type: proxy.Resolved, Status: proxy.True, Reason: ReasonResolved, LastTransitionTime: proxy.At(at)},
			},
			Instance: proxy.Instance{Provider: "cloud", ID: "cloud/a", Attempt: 1, Planned: proxy.At(at),
				Retry: proxy.At(at.Add(5 * time.Second)), Hash: hasher.Hash(p.UID, p.Spec, proxy.Inputs{})},
		}
	})
	for _, e := range edits {
		e(p)
	}
	return p
}

// made is a record whose create was answered.
func made(ago time.Duration, edits ...edit) *proxy.Proxy {
	return planned(ago, prepend(edits, func(p *proxy.Proxy) { p.Status.Instance.Incarnation = "i-1" })...)
}

// running is a record whose instance runs, without a verdict so far.
func running(ago time.Duration, edits ...edit) *proxy.Proxy {
	return made(ago, prepend(edits, func(p *proxy.Proxy) {
		p.Status.Instance.Host, p.Status.Instance.Port = "192.0.2.1", 3128
		p.Status.Phase = proxy.Probing
		is(&p.Status, t0.Add(-ago), proxy.Provisioned, proxy.True, ReasonCreated, "")
	})...)
}

// ready is a record whose instance is healthy.
func ready(ago time.Duration, edits ...edit) *proxy.Proxy {
	return running(ago, prepend(edits, func(p *proxy.Proxy) {
		is(&p.Status, t0.Add(-ago), proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
		p.Status.LatencyMillis, p.Status.LastHealthCheckTime = 40, proxy.At(t0.Add(-ago))
		p.Status.Phase = proxy.Ready
	})...)
}

// retiring is a record whose instance was taken out of service that long ago, an hour after it was made.
func retiring(ago time.Duration, edits ...edit) *proxy.Proxy {
	return ready(ago+time.Hour, prepend(edits, func(p *proxy.Proxy) {
		is(&p.Status, t0.Add(-ago), proxy.Provisioned, proxy.False, ReasonReplacing, "")
		p.Status.Instance.Retiring = "i-1"
		p.Status.Phase = proxy.Replacing
	})...)
}

// failed is a record whose create failed that long ago and is to be repeated after wait.
func failed(ago, wait time.Duration, reason string, edits ...edit) *proxy.Proxy {
	return planned(ago, prepend(edits, func(p *proxy.Proxy) {
		p.Status.Instance.Retry = proxy.At(t0.Add(wait - ago))
		is(&p.Status, t0.Add(-ago), proxy.Provisioned, proxy.False, reason, "create: no luck")
		if reason == ReasonPermanentError {
			p.Status.Phase = proxy.Failed
		}
	})...)
}

func prepend(edits []edit, first edit) []edit { return slices.Insert(slices.Clone(edits), 0, first) }

// The edits that rows have in common.
var (
	otherPort     edit = func(p *proxy.Proxy) { p.Spec.Port = 8080 }          // another hash, the same ID
	otherZone     edit = func(p *proxy.Proxy) { p.Spec.Placement.Zone = "b" } // another ID
	otherProvider edit = func(p *proxy.Proxy) { p.Spec.Provider = "other" }   // another ID elsewhere
	noProvider    edit = func(p *proxy.Proxy) { p.Spec.Provider = "nowhere" } // a typo
	deleting      edit = func(p *proxy.Proxy) { p.Deleting = true }           // somebody deletes it
	proven        edit = func(p *proxy.Proxy) { forgotten(&p.Status) }        // its ID is known to be free
	external      edit = func(p *proxy.Proxy) {                               // an endpoint that somebody else runs
		p.Spec = proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.9", Port: 3128}}.Canonical()
	}
	unfinalized edit = func(p *proxy.Proxy) { p.Finalizer = false }
	onItsWayOut edit = func(p *proxy.Proxy) { // a pass has seen that it is deleted
		p.Status.Phase = proxy.Deleting
		is(&p.Status, t0.Add(-time.Minute), proxy.Provisioned, proxy.False, ReasonDeleting, "")
	}
)

func annotated(key, value string) edit {
	return func(p *proxy.Proxy) { p.Annotations = map[string]string{key: value} }
}

// is sets a condition as of a moment.
func is(s *proxy.Status, at time.Time, c proxy.ConditionType, status proxy.ConditionStatus, reason, message string) {
	s.SetCondition(proxy.Condition{Type: c, Status: status, Reason: reason, Message: message, LastTransitionTime: proxy.At(at)})
}

// becomes sets Provisioned as of t0, and the phase.
func becomes(s *proxy.Status, phase proxy.Phase, status proxy.ConditionStatus, reason, message string) {
	is(s, t0, proxy.Provisioned, status, reason, message)
	s.Phase = phase
}

// left is what a status loses with its incarnation: whatever spoke of that one alone.
func left(s *proxy.Status) {
	s.RemoveCondition(proxy.Healthy)
	s.Instance.Host, s.Instance.Port, s.LatencyMillis = "", 0, 0
}

// forgotten is what a status loses with its ID. What was tried, and when, stays.
func forgotten(s *proxy.Status) {
	left(s)
	s.Instance.Provider, s.Instance.ID, s.Instance.Incarnation = "", "", ""
}

// intended is what an intent makes of a status.
func intended(s *proxy.Status, spec proxy.Spec, attempt int32, wait time.Duration) {
	left(s)
	id := spec.Provider + "/" + "a"
	if spec.Placement.Zone != "" {
		id = spec.Provider + "/" + spec.Placement.Zone
	}
	s.Format, s.ObservedGeneration = proxy.StatusFormat, 3
	s.Instance = proxy.Instance{Provider: spec.Provider, ID: id, Retiring: s.Instance.Retiring,
		Hash: hasher.Hash("uid-1", spec, proxy.Inputs{}), Attempt: attempt, Planned: proxy.At(t0), Retry: proxy.At(t0.Add(wait))}
	becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "")
	is(s, t0, proxy.Resolved, proxy.True, ReasonResolved, "")
}

// spec is that of a declared record with edits.
func spec(edits ...edit) proxy.Spec { return declared(edits...).Spec }

// there is what a provider has: an instance in a state, made from the spec with these edits.
func there(state provider.State, incarnation string, edits ...edit) provider.Instance {
	in := provider.Instance{Incarnation: incarnation, State: state,
		Marks: provider.Marks{Fleet: "test", UID: "uid-1", Hash: hasher.Hash("uid-1", spec(edits...), proxy.Inputs{})}}
	if state == provider.Running {
		in.Host = "192.0.2.1"
	}
	return in
}

// has makes the cloud have an instance.
func has(in provider.Instance) func(*world) {
	return func(w *world) {
		w.cloud.get = func(context.Context) (provider.Instance, error) { return in, nil }
	}
}

// getFails makes the cloud answer each get with an error.
func getFails(err error) func(*world) {
	return func(w *world) {
		w.cloud.get = func(context.Context) (provider.Instance, error) { return provider.Instance{}, err }
	}
}

// createAnswers makes the cloud answer each create.
func createAnswers(in provider.Instance, err error) func(*world) {
	return func(w *world) {
		w.cloud.create = func(context.Context, provider.Request) (provider.Instance, error) { return in, err }
	}
}

// deleteFails makes the cloud answer each delete with an error.
func deleteFails(err error) func(*world) {
	return func(w *world) { w.cloud.delete = func(context.Context) error { return err } }
}

// judged makes the probes have a verdict on i-1.
func judged(s health.Snapshot) func(*world) {
	return func(w *world) { w.reconciler.Health = verdict{"i-1", s} }
}

func all(given ...func(*world)) func(*world) {
	return func(w *world) {
		for _, g := range given {
			g(w)
		}
	}
}

// unresolved makes the references of the spec lead nowhere.
var errUnresolved = &proxy.InputError{Reason: proxy.CredentialsError, Err: errors.New("no Secret of that name")}

func unresolved(w *world) {
	w.store.inputs = func() (proxy.Inputs, error) { return proxy.Inputs{}, errUnresolved }
}

func TestReconcile(t *testing.T) {
	newer := declared(func(p *proxy.Proxy) { p.Status.Format = proxy.StatusFormat + 1 })
	older := ready(time.Hour, func(p *proxy.Proxy) { p.Status.Format = 0 })
	errStore := errors.New("the store is down")
	runRows(t, []row{
		{
			name:   "the finalizer comes first and alone",
			record: declared(func(p *proxy.Proxy) { p.Finalizer = false }),
			calls:  []string{"finalizer true"},
			after:  time.Second,
		},
		{
			name:   "an older status format is written anew",
			record: older,
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) { s.Format, s.Instance.Attempt = proxy.StatusFormat, 0 },
			after:  time.Minute,
		},
		{
			name:   "an equal status is not written",
			record: ready(time.Minute),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a"},
			after:  time.Minute,
		},
		{
			name:   "each pass says which generation it saw",
			record: ready(time.Minute, func(p *proxy.Proxy) { p.Generation = 4 }),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) { s.ObservedGeneration = 4 },
			after:  time.Minute,
		},
		{
			name:   "so does one that ends in an error",
			record: ready(time.Minute, func(p *proxy.Proxy) { p.Generation = 4 }),
			given:  func(w *world) { w.store.inputs = func() (proxy.Inputs, error) { return proxy.Inputs{}, errStore } },
			calls:  []string{"status Ready Created"},
			change: func(s *proxy.Status) { s.ObservedGeneration = 4 },
			err:    errStore,
		},
		{
			name:   "a conflict of the last write is the pass's",
			record: made(time.Minute),
			given:  all(has(there(provider.Running, "i-1")), func(w *world) { w.store.refuse = proxy.ErrConflict }),
			calls:  []string{"get cloud/a", "status Probing Created"},
			err:    proxy.ErrConflict,
		},
		{
			name:   "a record that is gone by the last write is none of ours",
			record: made(time.Minute),
			given:  all(has(there(provider.Running, "i-1")), func(w *world) { w.store.refuse = proxy.ErrNotFound }),
			calls:  []string{"get cloud/a", "status Probing Created"},
			after:  time.Minute,
		},
	})

	t.Run("a status of a newer release is not touched", func(t *testing.T) {
		w := newWorld(t, newer)
		_, err := w.reconcile()
		if err == nil || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("error %v does not name the format", err)
		}
		if calls := w.journal.take(); calls != nil {
			t.Errorf("calls %q", calls)
		}
	})
	t.Run("no record, nothing to do", func(t *testing.T) {
		w := newWorld(t)
		if res, err := w.reconcile(); err != nil || res != (Result{Gone: true}) {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

// TestConflicts has somebody else be faster at every write that a pass makes: nothing is called after it, and the store
// keeps what the other wrote.
func TestConflicts(t *testing.T) {
	edited := func(p *proxy.Proxy) { p.Spec.Port = 8080 }
	passes := map[string]struct {
		record *proxy.Proxy
		given  func(*world)
	}{
		"finalizer":           {declared(func(p *proxy.Proxy) { p.Finalizer = false }), nil},
		"intent":              {declared(), nil},
		"intent of a repeat":  {planned(time.Minute), nil},
		"retirement":          {ready(time.Hour, edited), has(there(provider.Running, "i-1"))},
		"delete of the old":   {retiring(time.Minute, edited), has(there(provider.Running, "i-1"))},
		"delete of a stopped": {ready(time.Hour), has(there(provider.Stopped, "i-1"))},
		"deletion":            {ready(time.Hour, deleting), has(there(provider.Running, "i-1"))},
		"repeated deletion":   {ready(time.Hour, deleting, onItsWayOut), has(there(provider.Running, "i-1"))},
		"blind deletion":      {ready(time.Hour, deleting), getFails(failure("get", provider.ErrPermanent))},
		"end of a deletion":   {planned(time.Hour, deleting), nil},
		"external":            {declared(external, unfinalized), nil},
	}
	for name, pass := range passes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, pass.record)
				if pass.given != nil {
					pass.given(w)
				}
				w.store.refuse = proxy.ErrConflict
				if _, err := w.reconcile(); !errors.Is(err, proxy.ErrConflict) {
					t.Errorf("error %v, want a conflict", err)
				}
				calls := w.journal.take()
				i := slices.IndexFunc(calls, func(call string) bool { return !strings.HasPrefix(call, "get") })
				if i < 0 || i != len(calls)-1 {
					t.Errorf("the write that conflicts is not the last call: %q", calls)
				}
			})
		})
	}
}

// TestCanceled has each call of a provider given up, mostly because the context of the pass ends: that says nothing about
// the provider, and no condition speaks of it.
func TestCanceled(t *testing.T) {
	passes := map[string]*proxy.Proxy{
		"create":                       declared(),
		"get":                          made(time.Minute),
		"get of what serves":           ready(time.Hour),
		"delete":                       made(time.Hour, otherPort),
		"delete of what is not wanted": retiring(time.Minute, otherPort),
		"get during a deletion":        made(time.Hour, deleting, onItsWayOut),
		"delete during a deletion":     made(time.Hour, deleting, onItsWayOut),
	}
	answers := []struct {
		name string
		ends bool // the context does
		err  error
	}{
		{"as the contract says", true, &provider.Error{Op: "call", Class: provider.ErrCanceled, Err: context.Canceled}},
		{"bare", true, context.Canceled},
		{"as something else", true, failure("call", provider.ErrPermanent)},
		{"though nobody gave up", false, &provider.Error{Op: "call", Class: provider.ErrCanceled, Err: context.Canceled}},
	}
	for name, record := range passes {
		for _, answer := range answers {
			t.Run(name+", "+answer.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, record)
					var during proxy.Condition // the condition when the call is made
					give := func() error {
						during, _ = w.record(t).Status.Condition(proxy.Provisioned)
						if answer.ends {
							w.cancel()
						}
						return answer.err
					}
					w.cloud.create = func(context.Context, provider.Request) (provider.Instance, error) {
						return provider.Instance{}, give()
					}
					w.cloud.delete = func(context.Context) error { return give() }
					has(there(provider.Running, "i-1"))(w)
					if strings.HasPrefix(name, "get") {
						w.cloud.get = func(context.Context) (provider.Instance, error) { return provider.Instance{}, give() }
					}
					if _, err := w.reconcile(); !errors.Is(err, answer.err) {
						t.Errorf("error %v, want %v", err, answer.err)
					}
					after, _ := w.record(t).Status.Condition(proxy.Provisioned)
					if diff := cmp.Diff(during, after); diff != "" {
						t.Errorf("condition (-during the call +after):\n%s", diff)
					}
				})
			})
		}
	}
}
