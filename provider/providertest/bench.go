package providertest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

const (
	ours   = "fleet-one"
	theirs = "fleet-two"

	// callTimeout is how long a call may take that nobody disturbs, and promptly how long one may outlast its context.
	callTimeout = 2 * time.Minute
	promptly    = 3 * time.Second
	pollEvery   = 10 * time.Millisecond
)

// bench is where a case works: a backend, a provider that is open on it, and calls that watch what comes back.
type bench struct {
	testing.TB
	Harness

	provider provider.Provider
	stop     func()
	secrets  []secret.Text
	requests int
}

// open opens the provider for a fleet, runs it if it is a Runner, and uses it from now on.
func (b *bench) open(fleet string) {
	b.Helper()
	b.openOnly(fleet)
	runner, ok := provider.As[provider.Runner](b.provider)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	b.stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				b.Errorf("Run returned %v after its context ended, want nil or the context's error", err)
			}
		case <-time.After(b.Settle + promptly):
			b.Errorf("Run did not return within %v after its context ended", b.Settle+promptly)
		}
	}
	b.Cleanup(b.close)
}

// openOnly opens the provider without running it.
func (b *bench) openOnly(fleet string) {
	b.Helper()
	b.close()
	b.provider = b.Open(b.TB, fleet)
}

// close ends the Run of the provider that is open.
func (b *bench) close() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// inject disturbs the backend, or skips the case.
func (b *bench) inject(f Fault) {
	b.Helper()
	if !b.Inject(f) {
		b.Skipf("the harness cannot make a backend where this happens: %s", f)
	}
}

// request returns a request of our fleet for a proxy that has none yet.
func (b *bench) request() provider.Request {
	b.requests++
	r := b.Request()
	uid := fmt.Sprintf("uid-%d", b.requests)
	r.Name = provider.Name(ours, uid)
	r.Marks = provider.Marks{Fleet: ours, UID: uid, Hash: "v1-0123456789abcdef"}
	r.Token = b.token()
	b.secrets = append(b.secrets, r.CloudInit, r.Credentials.Username, r.Credentials.Password, pair(r.Credentials))
	return r
}

// token returns a token that no request had before.
func (b *bench) token() string {
	b.requests++
	return fmt.Sprintf("token-%d", b.requests)
}

// pair returns credentials as they stand in the header of a request.
func pair(c provider.Credentials) secret.Text {
	if c.IsZero() {
		return secret.Text{}
	}
	plain := c.Username.Reveal() + ":" + c.Password.Reveal()
	return secret.New(base64.StdEncoding.EncodeToString([]byte(plain)))
}

// again returns the same request with a token of its own, as the fleet sends it with another intent.
func (b *bench) again(r provider.Request) provider.Request {
	r.Token = b.token()
	return r
}

func refOf(in provider.Instance) provider.Ref {
	return provider.Ref{ID: in.ID, UID: in.Marks.UID, Incarnation: in.Incarnation}
}

// anyOf names whichever instance has the ID of in.
func anyOf(in provider.Instance) provider.Ref {
	ref := refOf(in)
	ref.Incarnation = ""
	return ref
}

// plan calls Plan.
func (b *bench) plan(r provider.Request) (string, error) {
	b.Helper()
	id, err := b.provider.Plan(r)
	b.judge("plan", err)
	b.noSecret("the ID that Plan returned", id)
	return id, err
}

// planned returns the ref that the fleet has before it creates anything.
func (b *bench) planned(r provider.Request) provider.Ref {
	b.Helper()
	id, err := b.plan(r)
	if err != nil {
		b.Fatalf("Plan of a valid request: %v", err)
	}
	return provider.Ref{ID: id, UID: r.Marks.UID}
}

// create calls Create with time enough.
func (b *bench) create(r provider.Request) (provider.Instance, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	in, err := b.provider.Create(ctx, r)
	b.judge("create", err)
	b.watch("Create", in)
	return in, err
}

// get calls Get with time enough.
func (b *bench) get(ref provider.Ref) (provider.Instance, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	in, err := b.provider.Get(ctx, ref)
	b.judge("get", err)
	b.watch("Get", in)
	return in, err
}

// delete calls Delete with time enough.
func (b *bench) delete(ref provider.Ref) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	err := b.provider.Delete(ctx, ref)
	b.judge("delete", err)
	return err
}

// list calls List with time enough.
func (b *bench) list() ([]provider.Instance, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	all, err := b.provider.List(ctx)
	b.judge("list", err)
	b.watch("List", all...)
	return all, err
}

// judge looks at the form of an error.
func (b *bench) judge(op string, err error) {
	b.Helper()
	if err == nil {
		return
	}
	b.noSecret("an error of "+op, err)
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		b.Errorf("%s returned an error of type %T, want a *provider.Error: %v", op, err, err)
		return
	}
	if e.Op != op {
		b.Errorf("an error of %s has the operation %q: %v", op, e.Op, err)
	}
	classes := []provider.Class{
		provider.ErrNotFound, provider.ErrTransient, provider.ErrQuotaExceeded, provider.ErrPermanent, provider.ErrCanceled,
	}
	if !slices.Contains(classes, e.Class) {
		b.Errorf("an error of %s has the class %q, want one of %q: %v", op, e.Class, classes, err)
	}
	if op != "get" && e.Class == provider.ErrNotFound {
		b.Errorf("%s returned the class %s, which only Get does: %v", op, e.Class, err)
	}
}

// watch looks at instances for what none may hold.
func (b *bench) watch(method string, all ...provider.Instance) {
	b.Helper()
	for _, in := range all {
		b.noSecret("an instance that "+method+" returned", fmt.Sprintf("%+v", in))
	}
}

// noSecret looks for the secrets of all requests, plain and as they are commonly encoded.
func (b *bench) noSecret(where string, what any) {
	b.Helper()
	text := fmt.Sprintf("%v %+v %#v", what, what, what)
	for _, s := range b.secrets {
		plain := s.Reveal()
		if plain == "" {
			continue
		}
		for _, form := range []string{
			plain, url.QueryEscape(plain), fmt.Sprintf("%q", plain), fmt.Sprintf("%x", plain),
			base64.StdEncoding.EncodeToString([]byte(plain)),
		} {
			if strings.Contains(text, strings.Trim(form, `"`)) {
				b.Errorf("%s shows a secret of the request", where)
				return
			}
		}
	}
}

// mustCreate creates an instance and waits until it runs.
func (b *bench) mustCreate(r provider.Request) provider.Instance {
	b.Helper()
	var in provider.Instance
	b.eventually("Create of a valid request makes an instance", func() error {
		var err error
		if in, err = b.create(r); err == nil && in.Incarnation == "" {
			err = errors.New("there is no incarnation yet")
		}
		return err
	})
	return b.awaitRunning(refOf(in))
}

// awaitRunning polls until an instance runs.
func (b *bench) awaitRunning(ref provider.Ref) provider.Instance {
	b.Helper()
	var in provider.Instance
	b.eventually("the instance is Running", func() error {
		var err error
		if in, err = b.get(ref); err == nil && in.State != provider.Running {
			err = fmt.Errorf("state %s, reason %q", in.State, in.Reason)
		}
		return err
	})
	return in
}

// mustDelete deletes an instance and waits until it is gone.
func (b *bench) mustDelete(ref provider.Ref) {
	b.Helper()
	if err := b.delete(ref); err != nil {
		b.Fatalf("Delete of our instance: %v", err)
	}
	b.awaitGone(ref)
}

// awaitGone polls until there is no instance of an ID.
func (b *bench) awaitGone(ref provider.Ref) {
	b.Helper()
	b.eventually("Get answers NotFound", func() error {
		in, err := b.get(ref)
		if err == nil {
			return fmt.Errorf("there is an instance in state %s", in.State)
		}
		if provider.ClassOf(err) != provider.ErrNotFound {
			return err
		}
		return nil
	})
}

// stays says that an instance is still the same.
func (b *bench) stays(in provider.Instance) {
	b.Helper()
	now, err := b.get(refOf(in))
	switch {
	case err != nil:
		b.Fatalf("Get of an instance that nobody deleted: %v", err)
	case now.Incarnation != in.Incarnation:
		b.Errorf("the incarnation of an instance that nobody deleted went from %q to %q", in.Incarnation, now.Incarnation)
	case now.State == provider.Terminating || now.State == provider.Stopped:
		b.Errorf("an instance that nobody deleted is %s (%s)", now.State, now.Reason)
	}
}

// mustList lists and returns the instances by ID.
func (b *bench) mustList() map[string]provider.Instance {
	b.Helper()
	all, err := b.list()
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	byID := map[string]provider.Instance{}
	for _, in := range all {
		if _, twice := byID[in.ID]; twice {
			b.Errorf("List has two instances of the ID %s", in.ID)
		}
		byID[in.ID] = in
	}
	return byID
}

// eventually polls until done returns nil, or ends the case with its last error.
func (b *bench) eventually(what string, done func() error) {
	b.Helper()
	start := time.Now()
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Since(start) > b.Settle {
			b.Fatalf("After %v it was still not true that %s: %v", b.Settle, what, err)
		}
		select {
		case <-time.After(pollEvery):
		case <-b.Context().Done():
			b.Fatalf("the test ended before it was true that %s: %v", what, err)
		}
	}
}

// ends runs a call whose context ends soon and returns its error, or ends the case if the call outlasts the context.
func (b *bench) ends(op string, call func() error) error {
	b.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		b.judge(op, err)
		return err
	case <-time.After(promptly):
		b.Fatalf("%s was still under way %v after its context had ended", op, promptly)
		return nil
	}
}
