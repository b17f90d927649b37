package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// created are the calls of a pass that writes its intent and creates. The last write takes over what the create answered.
func created(before ...string) []string {
	return append(before, "status Provisioning Provisioning", "create cloud/a", "status Provisioning Provisioning")
}

// again is what such a pass makes of a status.
func again(attempt int32, wait time.Duration, edits ...edit) func(*proxy.Status) {
	return func(s *proxy.Status) {
		intended(s, spec(edits...), attempt, wait)
		s.Instance.Incarnation = "i-1"
	}
}

func TestCreate(t *testing.T) {
	running1 := there(provider.Running, "i-1")
	errPlain := errors.New("connection reset")
	waits := func(d time.Duration, class provider.Class) error {
		e := failure("create", class)
		e.RetryAfter = d
		return e
	}
	runRows(t, []row{
		{
			name:   "the intent stands before the call",
			record: declared(),
			calls:  created(),
			change: again(1, 5*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "a conflict on the intent: no create",
			record: declared(),
			given:  func(w *world) { w.store.refuse = proxy.ErrConflict },
			calls:  []string{"status Provisioning Provisioning"},
			err:    proxy.ErrConflict,
		},
		{
			name:   "it runs at once",
			record: declared(),
			given:  createAnswers(running1, nil),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Host, s.Instance.Port = "192.0.2.1", 3128
				becomes(s, proxy.Probing, proxy.True, ReasonCreated, "")
			},
			after: time.Minute,
		},
		{
			name:   "it meets an instance of ours from other inputs",
			record: declared(),
			given:  createAnswers(there(provider.Running, "i-9", otherPort), nil),
			calls: []string{"status Provisioning Provisioning", "create cloud/a", "status Replacing Replacing",
				"delete cloud/a i-9"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Second)
				s.Instance.Incarnation = "i-9"
				becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "it meets a stopped one of ours",
			record: declared(),
			given:  createAnswers(there(provider.Stopped, "i-9"), nil),
			calls: []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning Stopped",
				"delete cloud/a i-9"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Second)
				s.Instance.Incarnation = "i-9"
				becomes(s, proxy.Provisioning, proxy.False, ReasonStopped, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "it meets one of ours that goes",
			record: declared(),
			given:  createAnswers(there(provider.Terminating, "i-9"), nil),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning Terminating"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Second)
				s.Instance.Incarnation = "i-9"
				becomes(s, proxy.Provisioning, proxy.False, ReasonTerminating, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "the name is taken: permanent",
			record: declared(),
			given: createAnswers(provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrPermanent,
				Reason: provider.NameTaken, Err: errors.New("it is theirs")}),
			calls: []string{"status Provisioning Provisioning", "create cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 0)
				s.Instance.Retry = never
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError, "NameTaken: create: it is theirs")
			},
			after: 5 * time.Minute, // the failed create must have shown itself then
		},
		{
			name:   "no answer of a class counts as transient",
			record: declared(),
			given:  createAnswers(provider.Instance{}, errPlain),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Second)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "connection reset")
			},
			after: 5 * time.Second,
		},
		{
			name:   "a quota is waited for and is no failure",
			record: declared(),
			given:  createAnswers(provider.Instance{}, failure("create", provider.ErrQuotaExceeded)),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning QuotaExceeded"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Minute)
				becomes(s, proxy.Provisioning, proxy.False, ReasonQuotaExceeded, "create: no luck")
			},
			after: 5 * time.Minute,
		},
		{
			name:   "a longer retry-after than the backoff is honoured",
			record: declared(),
			given:  createAnswers(provider.Instance{}, waits(time.Minute, provider.ErrTransient)),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, time.Minute)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "create: no luck")
			},
			after: time.Minute,
		},
		{
			name:   "a longer one than for a quota",
			record: declared(),
			given:  createAnswers(provider.Instance{}, waits(7*time.Minute, provider.ErrQuotaExceeded)),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning QuotaExceeded"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 7*time.Minute)
				becomes(s, proxy.Provisioning, proxy.False, ReasonQuotaExceeded, "create: no luck")
			},
			after: 5 * time.Minute,
		},
		{
			name:   "a longer one than for a permanent failure",
			record: declared(),
			given:  createAnswers(provider.Instance{}, waits(2*time.Hour, provider.ErrPermanent)),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 2*time.Hour)
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError, "create: no luck")
			},
			after: 5 * time.Minute,
		},
		{
			name:   "a shorter one is not",
			record: declared(),
			given:  createAnswers(provider.Instance{}, waits(time.Minute, provider.ErrQuotaExceeded)),
			calls:  []string{"status Provisioning Provisioning", "create cloud/a", "status Provisioning QuotaExceeded"},
			change: func(s *proxy.Status) {
				intended(s, spec(), 1, 5*time.Minute)
				becomes(s, proxy.Provisioning, proxy.False, ReasonQuotaExceeded, "create: no luck")
			},
			after: 5 * time.Minute,
		},
		{
			name:   "an image is on its way: nothing was made and the attempt does not count",
			record: declared(),
			given:  createAnswers(provider.Instance{State: provider.Provisioning, Reason: "Downloading", Message: "40 %"}, nil),
			calls:  created(),
			change: func(s *proxy.Status) {
				intended(s, spec(), 0, 5*time.Second)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "Downloading: 40 %")
			},
			after: 5 * time.Second,
		},
		{
			name:   "not before the next attempt is due",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven),
			after:  50 * time.Minute,
		},
		{
			name:   "when it is due, with the next number and twice the wait",
			record: failed(10*time.Minute, 10*time.Minute, ReasonProviderError, proven, func(p *proxy.Proxy) { p.Status.Instance.Attempt = 3 }),
			calls:  created(),
			change: again(4, 40*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "the wait ends growing",
			record: failed(10*time.Minute, 10*time.Minute, ReasonProviderError, proven, func(p *proxy.Proxy) { p.Status.Instance.Attempt = 1 << 30 }),
			calls:  created(),
			change: again(1<<30+1, 5*time.Minute),
			after:  5 * time.Second,
		},
		{
			name:   "the inputs changed: at once, and a first attempt",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven, otherPort),
			calls:  created(),
			change: again(1, 5*time.Second, otherPort),
			after:  5 * time.Second,
		},
		{
			name:   "another provider: at once",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven, otherProvider),
			calls:  []string{"status Provisioning Provisioning", "create other/a", "status Provisioning Provisioning"},
			change: again(1, 5*time.Second, otherProvider),
			after:  5 * time.Second,
		},
		{
			name:   "no provider of that name",
			record: declared(noProvider),
			calls:  []string{"status Failed UnknownProvider"},
			change: func(s *proxy.Status) {
				s.Format, s.ObservedGeneration = proxy.StatusFormat, 3
				is(s, t0, proxy.Resolved, proxy.True, ReasonResolved, "")
				becomes(s, proxy.Failed, proxy.False, ReasonUnknownProvider,
					`no provider "nowhere" is configured; configure it, or edit spec.provider`)
			},
			after: time.Minute,
		},
		{
			name: "an unknown provider is not latched",
			record: declared(func(p *proxy.Proxy) {
				p.Status.Format, p.Status.ObservedGeneration = proxy.StatusFormat, 3
				is(&p.Status, t0, proxy.Provisioned, proxy.False, ReasonUnknownProvider, "it is new")
			}),
			calls:  created(),
			change: again(1, 5*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "the plan is refused: nothing is made",
			record: declared(),
			given: func(w *world) {
				w.cloud.plan = func(provider.Request) error { return provider.Unsupported("plan", "placement.zone") }
			},
			calls: []string{"status Failed PermanentError"},
			change: func(s *proxy.Status) {
				s.Format, s.ObservedGeneration = proxy.StatusFormat, 3
				is(s, t0, proxy.Resolved, proxy.True, ReasonResolved, "")
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError,
					"UnsupportedField: plan: placement.zone cannot be honoured by this provider; remove it")
			},
			after: jittered,
		},
		{
			name:   "the references are not resolved: nothing is made",
			record: declared(),
			given:  unresolved,
			calls:  []string{"status Pending"},
			change: func(s *proxy.Status) {
				s.Format, s.ObservedGeneration, s.Phase = proxy.StatusFormat, 3, proxy.Pending
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},
	})
}

// TestIntent reads what stands in the store at the moment of the create, and what the create is told.
func TestIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, declared(annotated(proxy.RetryAnnotation, "now"), func(p *proxy.Proxy) {
			p.Spec.Placement = proxy.Placement{Zone: "b", MachineType: "small", Image: "debian", DiskSizeGb: 10}
		}))
		in := proxy.Inputs{CloudInit: secret.New("#cloud-config"), Username: secret.New("user"), Password: secret.New("pass")}
		w.store.inputs = func() (proxy.Inputs, error) { return in, nil }
		w.reconciler.Providers["cloud"] = delayed{w.cloud, provider.Delays{Call: 30 * time.Second, Settle: time.Minute}}
		time.Sleep(700 * time.Millisecond) // so that what is written is not the time of the pass
		var written proxy.Instance
		w.cloud.create = func(ctx context.Context, r provider.Request) (provider.Instance, error) {
			written = w.record(t).Status.Instance
			return provider.Instance{}, failure("create", provider.ErrTransient)
		}
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		hash := hasher.Hash("uid-1", w.record(t).Spec, in)
		if diff := cmp.Diff(proxy.Instance{Provider: "cloud", ID: "cloud/b", Hash: hash, Attempt: 1, Planned: proxy.At(t0),
			Retry: proxy.At(t0.Add(5 * time.Second)), Asked: "now"}, written); diff != "" {
			t.Errorf("the intent (-want +got):\n%s", diff)
		}
		want := provider.Request{
			Name:        provider.Name("test", "uid-1"),
			Marks:       provider.Marks{Fleet: "test", UID: "uid-1", Hash: hash},
			Placement:   provider.Placement{Zone: "b", MachineType: "small", Image: "debian", DiskSizeGb: 10},
			Port:        3128,
			CloudInit:   in.CloudInit,
			Credentials: provider.Credentials{Username: in.Username, Password: in.Password},
		}
		got := w.cloud.requests[0]
		if len(got.Token) != 32 {
			t.Errorf("token %q", got.Token)
		}
		got.Token = ""
		if diff := cmp.Diff(want, got, cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Errorf("the request (-want +got):\n%s", diff)
		}
		if want := t0.Add(30 * time.Second); !w.cloud.deadline.Equal(want) {
			t.Errorf("the create may go on until %v, want planned + Call, %v", w.cloud.deadline, want)
		}
	})
}

// TestTokens makes intents that are alike in all but time, and in two lives of one name: no two have one token.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		for range 2 {
			w := newWorld(t, declared(func(p *proxy.Proxy) { p.Version = "" }))
			createAnswers(provider.Instance{}, failure("create", provider.ErrTransient))(w)
			for range 3 {
				if _, err := w.reconcile(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
			}
			for _, r := range w.cloud.requests {
				if seen[r.Token] {
					t.Errorf("token %s was used before", r.Token)
				}
				seen[r.Token] = true
			}
		}
		if len(seen) != 6 {
			t.Errorf("%d tokens for 6 intents", len(seen))
		}
	})
}

// TestCreateOverruns has a create hang: it is given up at planned + Call.
func TestCreateOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, declared())
		w.cloud.create = func(ctx context.Context, _ provider.Request) (provider.Instance, error) {
			<-ctx.Done()
			return provider.Instance{}, provider.Interrupted(ctx, "create")
		}
		res, err := w.reconcile()
		if err != nil || time.Since(t0) != 2*time.Minute {
			t.Errorf("error %v after %v, want none after 2m", err, time.Since(t0))
		}
		if c, _ := w.record(t).Status.Condition(proxy.Provisioned); c.Reason != ReasonProviderError {
			t.Errorf("condition %+v", c)
		}
		if res.After < time.Second {
			t.Errorf("again after %v", res.After)
		}
	})
}

// TestCallsOverrun has a get and a delete hang: each is given up after Call.
func TestCallsOverrun(t *testing.T) {
	for _, op := range []string{"get", "delete"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ready(time.Hour))
			w.reconciler.Intervals.Call = 20 * time.Second
			w.cloud.get = func(ctx context.Context) (provider.Instance, error) {
				if op == "get" {
					<-ctx.Done()
				}
				return there(provider.Stopped, "i-1"), provider.Interrupted(ctx, "get")
			}
			w.cloud.delete = func(ctx context.Context) error {
				<-ctx.Done()
				return provider.Interrupted(ctx, "delete")
			}
			if _, err := w.reconcile(); provider.ClassOf(err) != provider.ErrTransient || time.Since(t0) != 20*time.Second {
				t.Errorf("%s: error %v after %v, want a transient one after 20s", op, err, time.Since(t0))
			}
		})
	}
}

// TestImageTransfer polls a provider that moves an image: each poll sends the same create, none of them counts, and what
// comes of it in the end is the first attempt. What the last poll found stays told until this one has found more.
func TestImageTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, declared())
		told := ""
		w.cloud.create = func(context.Context, provider.Request) (provider.Instance, error) {
			if c, _ := w.record(t).Status.Condition(proxy.Provisioned); c.Reason != ReasonProvisioning || c.Message != told {
				t.Errorf("during a poll the condition is %+v, want the message %q of the last one", c, told)
			}
			told = "Downloading"
			return provider.Instance{State: provider.Provisioning, Reason: "Downloading"}, nil
		}
		for i := range 4 {
			res, err := w.reconcile()
			if err != nil || res.After != 5*time.Second {
				t.Fatalf("poll %d: %v, %v", i, res, err)
			}
			if s := w.record(t).Status; s.Instance.Attempt != 0 || s.Instance.Incarnation != "" {
				t.Errorf("poll %d: %+v", i, s.Instance)
			}
			time.Sleep(res.After)
		}
		w.cloud.create = nil
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if s := w.record(t).Status; s.Instance.Attempt != 1 || s.Instance.Incarnation != "i-1" {
			t.Errorf("in the end: %+v", s.Instance)
		}
		first := w.cloud.requests[0]
		for _, r := range w.cloud.requests[1:] {
			r.Token = first.Token
			if diff := cmp.Diff(first, r, cmp.Comparer(secret.Text.Equal)); diff != "" {
				t.Errorf("another create (-first +this):\n%s", diff)
			}
		}
		if len(w.cloud.requests) != 5 {
			t.Errorf("%d creates, want 5", len(w.cloud.requests))
		}
	})
}

func TestLatch(t *testing.T) {
	asked := func(value string) edit {
		return func(p *proxy.Proxy) { p.Status.Instance.Asked = value }
	}
	restart := func(w *world) { w.reconciler.Started = t0 }
	rotated := proxy.Inputs{Password: secret.New("new")}
	runRows(t, []row{
		{
			name:   "a permanent failure: no call until it must have shown what it made",
			record: failed(time.Minute, time.Hour, ReasonPermanentError),
			after:  4 * time.Minute,
		},
		{
			name:   "then one look, and the ID is free",
			record: failed(5*time.Minute, time.Hour, ReasonPermanentError),
			calls:  []string{"get cloud/a", "status Failed PermanentError"},
			change: forgotten,
			after:  time.Second,
		},
		{
			name:   "no call after that until it is due",
			record: failed(6*time.Minute, time.Hour, ReasonPermanentError, proven),
			after:  54 * time.Minute,
		},
		{
			name:   "due",
			record: failed(time.Hour, time.Hour, ReasonPermanentError, proven),
			calls:  created(),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "a quota: no call either",
			record: failed(time.Minute, 5*time.Minute, ReasonQuotaExceeded),
			after:  4 * time.Minute,
		},
		{
			name:   "a quota, due",
			record: failed(5*time.Minute, 5*time.Minute, ReasonQuotaExceeded),
			calls:  created("get cloud/a"),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "cleared by an edit",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, otherPort),
			calls:  created("get cloud/a"),
			change: again(1, 5*time.Second, otherPort),
			after:  5 * time.Second,
		},
		{
			name:   "not by one that shapes no instance",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, func(p *proxy.Proxy) { p.Spec.MaxLeases = 99 }),
			after:  4 * time.Minute,
		},
		{
			name:   "cleared by a rotated Secret",
			record: failed(time.Minute, time.Hour, ReasonPermanentError),
			given:  func(w *world) { w.store.inputs = func() (proxy.Inputs, error) { return rotated, nil } },
			calls:  created("get cloud/a"),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Hash = hasher.Hash("uid-1", spec(), rotated)
			},
			after: 5 * time.Second,
		},
		{
			name:   "cleared by the retry annotation",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, annotated(proxy.RetryAnnotation, "1")),
			calls:  created("get cloud/a"),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Asked = "1"
			},
			after: 5 * time.Second,
		},
		{
			name:   "a value that was answered asks nothing",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, annotated(proxy.RetryAnnotation, "1"), asked("1")),
			after:  4 * time.Minute,
		},
		{
			name:   "each new value asks",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, annotated(proxy.RetryAnnotation, "2"), asked("1")),
			calls:  created("get cloud/a"),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Asked = "2"
			},
			after: 5 * time.Second,
		},
		{
			name:   "to remove it asks nothing",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, asked("1")),
			after:  4 * time.Minute,
		},
		{
			name:   "the annotation clears a quota and a backoff as well",
			record: failed(10*time.Minute, time.Hour, ReasonQuotaExceeded, proven, annotated(proxy.RetryAnnotation, "1")),
			calls:  created(),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Asked = "1"
			},
			after: 5 * time.Second,
		},
		{
			name:   "cleared by a restart",
			record: failed(time.Minute, time.Hour, ReasonPermanentError),
			given:  restart,
			calls:  created("get cloud/a"),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "not by one before the attempt",
			record: failed(time.Minute, time.Hour, ReasonPermanentError),
			given:  func(w *world) { w.reconciler.Started = t0.Add(-time.Minute).Add(900 * time.Millisecond) },
			after:  4 * time.Minute,
		},
		{
			name:   "a restart does not clear a quota",
			record: failed(time.Minute, 5*time.Minute, ReasonQuotaExceeded),
			given:  restart,
			after:  4 * time.Minute,
		},
		{
			name:   "cleared by another provider, when the old one has shown what it made",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, otherProvider),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "which is nothing",
			record: failed(5*time.Minute, time.Hour, ReasonPermanentError, otherProvider),
			calls:  []string{"get cloud/a", "status Failed PermanentError"},
			change: forgotten,
			after:  time.Second,
		},
		{
			name:   "not latched: the configuration refuses the plan now, so that the ID must be shown to be free",
			record: failed(time.Minute, time.Hour, ReasonPermanentError),
			given: func(w *world) {
				w.cloud.plan = func(provider.Request) error { return provider.Missing("plan", "placement.image") }
			},
			calls: []string{"get cloud/a"},
			after: 5 * time.Second,
		},
		{
			name:   "what exists is not latched",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, func(p *proxy.Proxy) { p.Status.Instance.Incarnation = "i-1" }),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) { becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "") },
			after:  5 * time.Second,
		},
	})
}

// TestAbsent is about a provider that knows nothing of what was planned: settled or not, with an incarnation that was seen
// or not, with the same ID wanted or another, with the same inputs or others.
func TestAbsent(t *testing.T) {
	createFailed := func(class provider.Class) error {
		e := failure("create", class)
		e.CreateFailed = true
		return e
	}
	replacing := func(p *proxy.Proxy) {
		p.Status.Phase = proxy.Replacing
		is(&p.Status, t0.Add(-time.Minute), proxy.Provisioned, proxy.False, ReasonReplacing, "")
	}
	waits := func(until time.Time) string {
		return fmt.Sprintf("waits until %v, when no earlier create can take effect any more", proxy.At(until))
	}
	settledAtOnce := func(w *world) { w.reconciler.Providers["cloud"] = delayed{w.cloud, provider.Delays{Call: time.Minute}} }
	runRows(t, []row{
		{
			name:   "unsettled, never seen, not due",
			record: planned(2 * time.Second),
			calls:  []string{"get cloud/a"},
			after:  3 * time.Second,
		},
		{
			name:   "unsettled, never seen, due: the same create may be repeated",
			record: planned(time.Minute),
			calls:  created("get cloud/a"),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "unsettled, never seen, other inputs for the same ID: at once",
			record: planned(2*time.Second, otherPort),
			calls:  created("get cloud/a"),
			change: again(1, 5*time.Second, otherPort),
			after:  5 * time.Second,
		},
		{
			name:   "unsettled, never seen, another ID: the old one is not given up",
			record: planned(time.Minute, otherZone),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "unsettled, never seen, an edit that cannot be fulfilled: not given up either",
			record: planned(time.Minute, noProvider),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "unsettled, seen: it may be an old answer, and the proxy serves on",
			record: ready(time.Minute),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "unsettled, seen, other inputs",
			record: ready(time.Minute, otherPort),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "settled, never seen, due",
			record: planned(10 * time.Minute),
			calls:  created("get cloud/a"),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "settled, never seen, not due: the ID is free",
			record: failed(5*time.Minute, 10*time.Minute, ReasonProviderError),
			calls:  []string{"get cloud/a", "status Pending ProviderError"},
			change: func(s *proxy.Status) { forgotten(s); s.Phase = proxy.Pending },
			after:  time.Second,
		},
		{
			name:   "settled, never seen, another ID: the old one is free",
			record: planned(5*time.Minute, otherZone),
			calls:  []string{"get cloud/a", "status Pending Provisioning"},
			change: func(s *proxy.Status) { forgotten(s); s.Phase = proxy.Pending },
			after:  time.Second,
		},
		{
			name:   "settled, never seen, another provider: asked is the one that was planned with",
			record: planned(5*time.Minute, otherProvider),
			calls:  []string{"get cloud/a", "status Pending Provisioning"},
			change: func(s *proxy.Status) { forgotten(s); s.Phase = proxy.Pending },
			after:  time.Second,
		},
		{
			name:   "settled, seen: it is gone, and its address and verdict with it",
			record: ready(5 * time.Minute),
			calls:  []string{"get cloud/a", "status Pending InstanceGone"},
			change: func(s *proxy.Status) {
				forgotten(s)
				becomes(s, proxy.Pending, proxy.False, ReasonInstanceGone, "")
			},
			after: time.Second,
		},
		{
			name:   "settled, seen, other inputs",
			record: ready(5*time.Minute, otherPort),
			calls:  []string{"get cloud/a", "status Pending InstanceGone"},
			change: func(s *proxy.Status) {
				forgotten(s)
				becomes(s, proxy.Pending, proxy.False, ReasonInstanceGone, "")
			},
			after: time.Second,
		},
		{
			name:   "settled, retiring: the way is free for the successor, and others still wait",
			record: retiring(time.Minute, otherPort),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: forgotten,
			after:  time.Second,
		},
		{
			name:   "settled, taken out before it ever served: it is no loss",
			record: running(5*time.Minute, replacing, otherPort),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: forgotten,
			after:  time.Second,
		},
		{
			name:   "one second before it is settled, taken out: what it waits for is said",
			record: running(5*time.Minute-time.Second, replacing, otherPort),
			calls:  []string{"get cloud/a", "status Replacing Replacing"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Replacing, proxy.False, ReasonReplacing, waits(t0.Add(time.Second)))
			},
			after: 5 * time.Second,
		},
		{
			name: "and said once",
			record: running(5*time.Minute-2*time.Second, replacing, otherPort, func(p *proxy.Proxy) {
				is(&p.Status, t0, proxy.Provisioned, proxy.False, ReasonReplacing, waits(t0.Add(2*time.Second)))
			}),
			calls: []string{"get cloud/a"},
			after: 5 * time.Second,
		},
		{
			name:   "one second before it is settled",
			record: ready(5*time.Minute - time.Second),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "a provider without lag is believed at once",
			record: ready(0),
			given:  settledAtOnce,
			calls:  []string{"get cloud/a", "status Pending InstanceGone"},
			change: func(s *proxy.Status) {
				forgotten(s)
				becomes(s, proxy.Pending, proxy.False, ReasonInstanceGone, "")
			},
			after: time.Second,
		},
		{
			name:   "settled is judged by the clock before the get",
			record: ready(5*time.Minute - time.Second),
			given: func(w *world) {
				w.cloud.get = func(context.Context) (provider.Instance, error) {
					time.Sleep(2 * time.Second)
					return provider.Instance{}, failure("get", provider.ErrNotFound)
				}
			},
			calls: []string{"get cloud/a"},
			after: 5 * time.Second,
		},
		{
			name:   "the create is known to have failed: transient",
			record: planned(time.Second),
			given:  getFails(createFailed(provider.ErrTransient)),
			calls:  []string{"get cloud/a", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "create: no luck")
			},
			after: 4 * time.Second,
		},
		{
			name:   "the create is known to have failed: quota",
			record: planned(time.Second),
			given:  getFails(createFailed(provider.ErrQuotaExceeded)),
			calls:  []string{"get cloud/a", "status Provisioning QuotaExceeded"},
			change: func(s *proxy.Status) {
				s.Instance.Retry = proxy.At(t0.Add(5*time.Minute - time.Second))
				becomes(s, proxy.Provisioning, proxy.False, ReasonQuotaExceeded, "create: no luck")
			},
			after: 5*time.Minute - time.Second,
		},
		{
			name:   "the create is known to have failed: permanent",
			record: planned(time.Second),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  []string{"get cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				s.Instance.Retry = never
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError, "create: no luck")
			},
			after: 5*time.Minute - time.Second,
		},
		{
			name:   "that it failed is told again when the next attempt is due",
			record: failed(5*time.Minute, 5*time.Minute, ReasonQuotaExceeded),
			given:  getFails(createFailed(provider.ErrQuotaExceeded)),
			calls:  created("get cloud/a"),
			change: again(2, 10*time.Second),
			after:  5 * time.Second,
		},
		{
			name:   "that it failed is told again when it is settled: the ID is free, the reason stays",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  []string{"get cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				forgotten(s)
				s.Instance.Retry = never
			},
			after: time.Second,
		},
		{
			name: "the create failed of what was seen: that is the reason, not that it is gone",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, func(p *proxy.Proxy) {
				p.Status.Instance.Incarnation = "i-1"
			}),
			given: getFails(createFailed(provider.ErrPermanent)),
			calls: []string{"get cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				forgotten(s)
				s.Instance.Retry = never
			},
			after: time.Second,
		},
		{
			name:   "the create of other inputs failed: at once with these",
			record: planned(time.Second, otherPort),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  created("get cloud/a"),
			change: again(1, 5*time.Second, otherPort),
			after:  5 * time.Second,
		},
		{
			name:   "the create failed, and somebody asks for another",
			record: planned(time.Second, annotated(proxy.RetryAnnotation, "1")),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  created("get cloud/a"),
			change: func(s *proxy.Status) {
				again(1, 5*time.Second)(s)
				s.Instance.Asked = "1"
			},
			after: 5 * time.Second,
		},
		{
			name:   "the create failed, another ID, unsettled",
			record: planned(time.Minute, otherZone),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "the create failed, another ID, settled",
			record: planned(5*time.Minute, otherZone),
			given:  getFails(createFailed(provider.ErrPermanent)),
			calls:  []string{"get cloud/a", "status Pending Provisioning"},
			change: func(s *proxy.Status) { forgotten(s); s.Phase = proxy.Pending },
			after:  time.Second,
		},
	})
}

func TestGetFails(t *testing.T) {
	later := failure("get", provider.ErrTransient)
	later.RetryAfter = 90 * time.Second
	laterThanQuota := failure("get", provider.ErrQuotaExceeded)
	laterThanQuota.RetryAfter = 10 * time.Minute
	transient := failure("get", provider.ErrTransient)
	notConfigured := &provider.Error{Op: "get", Class: provider.ErrPermanent, Reason: provider.NotConfigured, Err: errors.New("host x is not configured")}
	serves := func(message string) func(*proxy.Status) {
		return func(s *proxy.Status) { is(s, t0, proxy.Provisioned, proxy.True, ReasonCreated, message) }
	}
	runRows(t, []row{
		{
			name:   "transient: the queue's backoff",
			record: made(time.Minute),
			given:  getFails(transient),
			calls:  []string{"get cloud/a", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "get: no luck")
			},
			err: transient,
		},
		{
			name:   "what runs goes on",
			record: ready(time.Minute),
			given:  getFails(transient),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: serves("get: no luck"),
			err:    transient,
		},
		{
			name:   "retry-after",
			record: ready(time.Minute),
			given:  getFails(later),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: serves("get: no luck"),
			after:  90 * time.Second,
		},
		{
			name:   "quota",
			record: ready(time.Minute),
			given:  getFails(failure("get", provider.ErrQuotaExceeded)),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: serves("get: no luck"),
			after:  5 * time.Minute,
		},
		{
			name:   "quota with a longer retry-after",
			record: made(time.Minute),
			given:  getFails(laterThanQuota),
			calls:  []string{"get cloud/a", "status Provisioning QuotaExceeded"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Provisioning, proxy.False, ReasonQuotaExceeded, "get: no luck")
			},
			after: 10 * time.Minute,
		},
		{
			name:   "permanent: what runs goes on",
			record: ready(time.Minute),
			given:  getFails(notConfigured),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: serves("NotConfigured: get: host x is not configured"),
			after:  jittered,
		},
		{
			name:   "permanent: what did not run yet is Failed, and not given up",
			record: made(time.Hour),
			given:  getFails(notConfigured),
			calls:  []string{"get cloud/a", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError, "NotConfigured: get: host x is not configured")
			},
			after: jittered,
		},
		{
			name:   "the provider left the configuration: what runs goes on",
			record: ready(time.Minute),
			given:  func(w *world) { delete(w.reconciler.Providers, "cloud") },
			calls:  []string{"status Ready Created"},
			change: serves(`UnknownProvider: no provider "cloud" is configured; configure it, or edit spec.provider`),
			after:  time.Minute,
		},
		{
			name:   "the provider left the configuration: what did not run yet is Failed",
			record: made(time.Minute),
			given:  func(w *world) { delete(w.reconciler.Providers, "cloud") },
			calls:  []string{"status Failed UnknownProvider"},
			change: func(s *proxy.Status) {
				becomes(s, proxy.Failed, proxy.False, ReasonUnknownProvider,
					`no provider "cloud" is configured; configure it, or edit spec.provider`)
			},
			after: time.Minute,
		},
		{
			name:   "the references are not resolved: what runs goes on",
			record: ready(time.Hour),
			given:  all(unresolved, has(there(provider.Stopped, "i-1"))),
			calls:  []string{"status Ready Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},
		{
			name:   "the references are not resolved: a create is not repeated",
			record: planned(time.Hour),
			given:  unresolved,
			calls:  []string{"status Provisioning Provisioning"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
			},
			err: errUnresolved,
		},
		{
			name:   "the references are not resolved: probes are still believed",
			record: running(time.Hour),
			given:  all(unresolved, judged(health.Snapshot{Verdict: health.Unhealthy, Reported: health.Result{Party: health.PartyDial, Message: "refused"}})),
			calls:  []string{"status Unhealthy Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Resolved, proxy.False, proxy.CredentialsError, "no Secret of that name")
				is(s, t0, proxy.Healthy, proxy.False, ReasonProbeFailed, "dial: refused")
				s.Phase = proxy.Unhealthy
			},
			err: errUnresolved,
		},
	})
}

func TestPresent(t *testing.T) {
	transient := failure("delete", provider.ErrTransient)
	elsewhere := there(provider.Running, "i-1")
	elsewhere.Host, elsewhere.Port = "2001:db8::1", 8888
	newerMark := there(provider.Running, "i-1")
	newerMark.Marks.Hash = "v2-0"
	reasoned := there(provider.Stopped, "i-1")
	reasoned.Reason, reasoned.Message = "Paused", "by the host's operator"
	runRows(t, []row{
		{
			name:   "provisioning",
			record: made(time.Minute),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "provisioning, seen for the first time",
			record: planned(time.Minute),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) { s.Instance.Incarnation = "i-1" },
			after:  5 * time.Second,
		},
		{
			name:   "nothing made yet",
			record: planned(time.Minute),
			given:  has(provider.Instance{State: provider.Provisioning, Reason: "Downloading"}),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) {
				s.Instance.Attempt, s.Instance.Retry = 0, proxy.At(t0.Add(5*time.Second))
				becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "Downloading")
			},
			after: 5 * time.Second,
		},
		{
			name:   "running, without a verdict",
			record: made(time.Minute),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				s.Instance.Host, s.Instance.Port = "192.0.2.1", 3128
				becomes(s, proxy.Probing, proxy.True, ReasonCreated, "")
			},
			after: time.Minute,
		},
		{
			name:   "running where it says",
			record: made(time.Minute),
			given:  has(elsewhere),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				s.Instance.Host, s.Instance.Port = "2001:db8::1", 8888
				becomes(s, proxy.Probing, proxy.True, ReasonCreated, "")
			},
			after: time.Minute,
		},
		{
			name:   "healthy",
			record: running(time.Minute),
			given: all(has(there(provider.Running, "i-1")), judged(health.Snapshot{Verdict: health.Healthy,
				Reported: health.Result{OK: true, Latency: 123 * time.Millisecond, At: t0.Add(-3 * time.Second)},
				Last:     health.Result{OK: true, Latency: 140 * time.Millisecond, At: t0.Add(-time.Second)}})),
			calls: []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
				s.Phase, s.LatencyMillis, s.LastHealthCheckTime = proxy.Ready, 123, proxy.At(t0.Add(-3*time.Second))
			},
			after: time.Minute,
		},
		{
			name:   "healthy, and the newest probe is no news",
			record: ready(time.Minute),
			given: all(has(there(provider.Running, "i-1")), judged(health.Snapshot{Verdict: health.Healthy,
				Reported: health.Result{OK: true, Latency: 40 * time.Millisecond, At: t0.Add(-time.Minute)},
				Last:     health.Result{OK: true, Latency: 45 * time.Millisecond, At: t0.Add(-time.Second)}})),
			calls: []string{"get cloud/a"},
			after: time.Minute,
		},
		{
			name:   "healthy by an earlier process, not probed since",
			record: ready(time.Minute),
			given: all(has(there(provider.Running, "i-1")), judged(health.Snapshot{Verdict: health.Healthy,
				Reported: health.Result{OK: true, Latency: 40 * time.Millisecond}})),
			calls: []string{"get cloud/a"},
			after: time.Minute,
		},
		{
			name:   "unhealthy: the message names who failed; the latency is that of its better days",
			record: ready(time.Minute),
			given: all(has(there(provider.Running, "i-1")), judged(health.Snapshot{Verdict: health.Unhealthy,
				Reported: health.Result{Party: health.PartyProxyAuth, Message: "wants other credentials", At: t0.Add(-time.Second)}})),
			calls: []string{"get cloud/a", "status Unhealthy Created"},
			change: func(s *proxy.Status) {
				is(s, t0, proxy.Healthy, proxy.False, ReasonProbeFailed, "proxy_auth: wants other credentials")
				s.Phase, s.LastHealthCheckTime = proxy.Unhealthy, proxy.At(t0.Add(-time.Second))
			},
			after: time.Minute,
		},
		{
			name:   "no verdict: the engine would have gone on from the status's if that were on what it probes",
			record: ready(time.Minute),
			given:  all(has(there(provider.Running, "i-1")), judged(health.Snapshot{})),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				s.RemoveCondition(proxy.Healthy)
				s.Phase, s.LatencyMillis = proxy.Probing, 0
			},
			after: time.Minute,
		},
		{
			name:   "not probed: not well",
			record: ready(time.Minute),
			given: all(has(there(provider.Running, "i-1")), func(w *world) {
				w.reconciler.Health = verdict{"i-0", health.Snapshot{Verdict: health.Healthy}}
			}),
			calls: []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				s.RemoveCondition(proxy.Healthy)
				s.Phase, s.LatencyMillis = proxy.Probing, 0
			},
			after: time.Minute,
		},
		{
			name:   "a verdict on another incarnation is none on this one",
			record: running(time.Minute),
			given: all(has(there(provider.Running, "i-1")), func(w *world) {
				w.reconciler.Health = verdict{"i-0", health.Snapshot{Verdict: health.Healthy}}
			}),
			calls: []string{"get cloud/a"},
			after: time.Minute,
		},
		{
			name:   "another incarnation: address and verdict of the old one go",
			record: ready(time.Minute),
			given:  has(there(provider.Provisioning, "i-2")),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) {
				left(s)
				s.Instance.Incarnation = "i-2"
				becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "another incarnation that runs: its own address, no verdict",
			record: ready(time.Minute),
			given:  has(there(provider.Running, "i-2")),
			calls:  []string{"get cloud/a", "status Probing Created"},
			change: func(s *proxy.Status) {
				left(s)
				s.Instance.Incarnation, s.Instance.Host, s.Instance.Port = "i-2", "192.0.2.1", 3128
				s.Phase = proxy.Probing
			},
			after: time.Minute,
		},
		{
			name:   "it still runs long after its attempt: the series of attempts is over",
			record: ready(10 * time.Minute),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Ready Created"},
			change: func(s *proxy.Status) { s.Instance.Attempt = 0 },
			after:  time.Minute,
		},
		{
			name:   "not a second earlier",
			record: ready(10*time.Minute - time.Second),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a"},
			after:  time.Minute,
		},
		{
			name:   "a restart of the machine: neither gone nor served, and another may have its address",
			record: ready(time.Minute),
			given:  has(there(provider.Provisioning, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Provisioning"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProvisioning, "")
			},
			after: 5 * time.Second,
		},
		{
			name:   "a mark of a later release is not compared",
			record: ready(time.Minute),
			given:  has(newerMark),
			calls:  []string{"get cloud/a"},
			after:  time.Minute,
		},
		{
			name:   "stopped: deleted",
			record: ready(time.Minute),
			given:  has(reasoned),
			calls:  []string{"get cloud/a", "status Provisioning Stopped", "delete cloud/a i-1"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonStopped, "Paused: by the host's operator")
			},
			after: 5 * time.Second,
		},
		{
			name: "stopped still: deleted again, and the write before it compares",
			record: made(time.Minute, func(p *proxy.Proxy) {
				is(&p.Status, t0, proxy.Provisioned, proxy.False, ReasonStopped, "")
			}),
			given: has(there(provider.Stopped, "i-1")),
			calls: []string{"get cloud/a", "compare", "delete cloud/a i-1"},
			after: 5 * time.Second,
		},
		{
			name:   "stopped, and the delete fails",
			record: ready(time.Minute),
			given:  all(has(there(provider.Stopped, "i-1")), deleteFails(transient)),
			calls:  []string{"get cloud/a", "status Provisioning Stopped", "delete cloud/a i-1", "status Provisioning ProviderError"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonProviderError, "delete: no luck")
			},
			err: transient,
		},
		{
			name:   "stopped, and the delete fails permanently",
			record: ready(time.Minute),
			given:  all(has(there(provider.Stopped, "i-1")), deleteFails(failure("delete", provider.ErrPermanent))),
			calls:  []string{"get cloud/a", "status Provisioning Stopped", "delete cloud/a i-1", "status Failed PermanentError"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Failed, proxy.False, ReasonPermanentError, "delete: no luck")
			},
			after: jittered,
		},
		{
			name:   "terminating: waited for, not deleted again, and nothing created",
			record: ready(time.Minute),
			given:  has(there(provider.Terminating, "i-1")),
			calls:  []string{"get cloud/a", "status Provisioning Terminating"},
			change: func(s *proxy.Status) {
				left(s)
				becomes(s, proxy.Provisioning, proxy.False, ReasonTerminating, "")
			},
			after: 5 * time.Second,
		},
	})
}

func TestMessage(t *testing.T) {
	for _, test := range []struct{ word, sentence, want string }{
		{"", "", ""},
		{"Downloading", "", "Downloading"},
		{"", "40 %", "40 %"},
		{"Downloading", "40 %", "Downloading: 40 %"},
		{"Bad", "\xff", "Bad: ?"},
	} {
		if got := message(test.word, test.sentence); got != test.want {
			t.Errorf("message(%q, %q) = %q, want %q", test.word, test.sentence, got, test.want)
		}
	}
	for _, filler := range []string{"x", "é", "世"} {
		got := message("Long", strings.Repeat(filler, 5000))
		if len(got) > 1030 || len(got) < 1000 || strings.ToValidUTF8(got, "") != got {
			t.Errorf("a long text of %q: %d bytes, %q", filler, len(got), got[len(got)-10:])
		}
	}
}

func ExampleIntervals() {
	i := Intervals{DriftPoll: 10 * time.Minute}.WithDefaults()
	fmt.Println(i.DriftPoll, i.ProvisioningPoll, i.Drain)
	// Output: 10m0s 5s 5m0s
}
