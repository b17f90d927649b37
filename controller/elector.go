package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// ElectorConfig says which election a process takes part in.
type ElectorConfig struct {
	// REST is how the API server is reached. The elector has connections and limits of its own, so that no other traffic
	// delays it. Required.
	REST *rest.Config
	// Namespace and Name are those of the Lease that the leader holds. Both are required.
	Namespace, Name string
	// Address is where the other replicas reach this one, as host:port. They learn it from the Lease. Defaults to none.
	Address string
	// LeaseDuration is how long the others wait for a leader that does not renew its Lease, in whole seconds. Defaults to 15s.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader leads on after it last asked for a renewal that was granted. It is shorter than
	// LeaseDuration: what is between them is the time for its work to end before another may begin. Defaults to 10s.
	RenewDeadline time.Duration
	// RetryPeriod is the time from one request to the next. Defaults to 2s.
	RetryPeriod time.Duration
	// Logger hears of terms. Defaults to one that discards.
	Logger *slog.Logger
}

func (c ElectorConfig) validate() error {
	var problems []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("elector: "+format, args...))
		}
	}
	add(c.REST == nil, "REST is required")
	add(c.Namespace == "" || c.Name == "", "Namespace and Name are required")
	add(c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0, "LeaseDuration must be whole seconds, not %v", c.LeaseDuration)
	add(c.RenewDeadline >= c.LeaseDuration, "RenewDeadline must be shorter than LeaseDuration, %v, and is %v", c.LeaseDuration, c.RenewDeadline)
	add(c.RetryPeriod <= 0 || c.RenewDeadline < 2*c.RetryPeriod, "RenewDeadline must be at least two RetryPeriods of %v, and is %v",
		c.RetryPeriod, c.RenewDeadline)
	return errors.Join(problems...)
}

func (c ElectorConfig) withDefaults() ElectorConfig {
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 15*time.Second)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, 10*time.Second)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, 2*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Elector has one of several replicas lead, by a Lease that they all know. It is a fleet.Elector.
//
// A term ends before another can begin, as far as clocks run alike: the others count LeaseDuration from when they saw a renewal,
// and the leader a shorter time from before it asked for it. Where somebody else came to hold the Lease all the same, because it
// was deleted or this replica slept, the term ends as soon as that is read.
type Elector struct {
	cfg      ElectorConfig
	identity string
	leases   coordinationv1.CoordinationV1Interface
	trouble  *trouble

	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord // as it was last seen
	seen    time.Time                         // when it came to be so
	leading bool
	terms   int // so far, this one included
}

// NewElector makes an elector. It sends no request; the error names everything that is wrong with cfg.
func NewElector(cfg ElectorConfig) (*Elector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(cfg.REST)
	c.Timeout, c.RateLimiter, c.QPS, c.Burst = cfg.RenewDeadline/2, nil, 0, 0
	if c.Dial == nil { // the library shares the connections of clients that say nothing of it
		c.Dial = (&net.Dialer{Timeout: c.Timeout}).DialContext
	}
	leases, err := coordinationv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("elector: REST: %w", err)
	}
	return &Elector{cfg: cfg, leases: leases, identity: cfg.Address + "_" + strings.ToLower(rand.Text()),
		trouble: newTrouble(cfg.Logger, "the Lease "+cfg.Namespace+"/"+cfg.Name)}, nil
}

// Run takes part in the election until ctx ends, and calls lead for each term of this replica, with a context that ends with
// the term. It waits for lead before it takes part again and before it gives the Lease up: one that could not be renewed, while
// lead ended its work, is left to run out. An error of lead ends it.
func (e *Elector) Run(ctx context.Context, lead func(context.Context) error) error {
	for {
		if err := e.takePart(ctx, lead); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.cfg.RetryPeriod): // others come first
		}
	}
}

// takePart waits to be elected, and leads for one term.
func (e *Elector) takePart(ctx context.Context, lead func(context.Context) error) error {
	// The candidacy outlasts ctx: while lead ends its work, the Lease is held and renewed.
	candidacy, giveUp := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.New(nil)))
	t := newTerm(e)
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: t, LeaseDuration: e.cfg.LeaseDuration, RenewDeadline: e.cfg.RenewDeadline, RetryPeriod: e.cfg.RetryPeriod,
		ReleaseOnCancel: true, Name: e.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lost context.Context) { elected <- lost },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		giveUp()
		return fmt.Errorf("elector: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { elector.Run(candidacy) })
	defer running.Wait()
	defer giveUp()
	select {
	case <-ctx.Done():
		return nil
	case lost := <-elected:
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(lost, end)()
		defer t.begin(end)() // which ends it sooner, where the API server does not answer or somebody else holds the Lease
		return e.term(ctx, lead)
	}
}

// term leads until ctx ends.
func (e *Elector) term(ctx context.Context, lead func(context.Context) error) error {
	e.begin()
	defer context.AfterFunc(ctx, e.cease)()
	e.cfg.Logger.InfoContext(ctx, "this replica leads", "identity", e.identity)
	err := lead(ctx)
	e.cease()
	e.cfg.Logger.InfoContext(ctx, "this replica leads no more", "identity", e.identity)
	return err
}

func (e *Elector) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = true
	e.terms++
}

func (e *Elector) cease() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = false
}

// Leader returns where the replica that leads can be reached, and whether it is this one. The address is empty where it has
// none, and while nobody is known to lead: nobody holds the Lease, or its holder has not renewed it in time.
func (e *Elector) Leader() (address string, self bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	holder := e.record.HolderIdentity
	self = holder == e.identity
	if time.Since(e.seen) > time.Duration(e.record.LeaseDurationSeconds)*time.Second || self && !e.leading {
		return "", false
	}
	return holder[:max(0, strings.LastIndex(holder, "_"))], self
}

// Succeeds says whether another leader, or this one in an earlier term, has held the Lease before who holds it now.
func (e *Elector) Succeeds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.LeaderTransitions > 0 || e.terms > 1
}

// holds says whether the Lease was this replica's when it was last seen.
func (e *Elector) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.HolderIdentity == e.identity
}

// saw notes the record of the Lease.
func (e *Elector) saw(r *resourcelock.LeaderElectionRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen.IsZero() || r.HolderIdentity != e.record.HolderIdentity || !r.RenewTime.Equal(&e.record.RenewTime) {
		e.record, e.seen = *r, time.Now()
	}
}

// term is the Lease as one candidacy holds it. It knows until when nobody else can.
type term struct {
	*resourcelock.LeaseLock
	elector *Elector

	mu    sync.Mutex
	until time.Time
	timer *time.Timer // ends the term, nil while there is none; it stays until the work has ended
}

func newTerm(e *Elector) *term {
	return &term{elector: e, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name},
		Client:     e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}}
}

// Get reads the record.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := t.LeaseLock.Get(ctx)
	if !apierrors.IsNotFound(err) { // then it is made
		t.told(ctx, err)
	}
	if err == nil {
		t.elector.saw(r)
		if r.HolderIdentity != "" && r.HolderIdentity != t.elector.identity {
			t.lost()
		}
	}
	return r, raw, err
}

// Create makes the record.
func (t *term) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, r, func(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
		err := t.LeaseLock.Create(ctx, r)
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w: create the namespace, or have the election in another one (--leader-election-namespace)", err)
		}
		return err
	})
}

// Why a Lease is not given up.
var (
	errHeldByAnother = errors.New("the Lease is another replica's")
	errAtWork        = errors.New("the work of the term has not ended")
)

// Update replaces the record. The library reads it before it gives the Lease up, and goes by what it knew before: a replica that
// slept would take the Lease from the next leader. It gives it up also by itself, when it could not renew it for long, and knows
// nothing of the work that may go on.
func (t *term) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		if !t.elector.holds() {
			return errHeldByAnother
		}
		if t.runs() {
			return errAtWork
		}
	}
	return t.write(ctx, r, t.LeaseLock.Update)
}

func (t *term) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	asked := time.Now()
	err := do(ctx, r)
	t.told(ctx, err)
	if err == nil {
		t.elector.saw(&r)
		t.renewed(asked)
	}
	return err
}

// told notes how a request ended. That another replica was faster is how it should be.
func (t *term) told(ctx context.Context, err error) {
	expected := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	if trouble := t.elector.trouble; ctx.Err() == nil && !expected {
		trouble.told(ctx, trouble.all, err)
	}
}

// renewed puts off the end of the term.
func (t *term) renewed(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = asked.Add(t.elector.cfg.RenewDeadline)
	if t.timer != nil {
		t.timer.Reset(time.Until(t.until))
	}
}

// lost ends the term at once: somebody else holds the Lease.
func (t *term) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = time.Time{}
	if t.timer != nil {
		t.timer.Reset(0)
	}
}

// begin calls end when nobody has renewed the Lease for too long. It returns what is to be called when the work of the term has
// ended.
func (t *term) begin(end func()) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	timer := time.AfterFunc(time.Until(t.until), end)
	t.timer = timer
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		timer.Stop()
		t.timer = nil
	}
}

// runs says whether the work of a term has begun and not ended.
func (t *term) runs() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timer != nil
}

var _ resourcelock.Interface = (*term)(nil)
