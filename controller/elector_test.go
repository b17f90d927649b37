package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestElectorConfig(t *testing.T) {
	_, err := NewElector(ElectorConfig{LeaseDuration: 1500 * time.Millisecond, RenewDeadline: 2 * time.Second, RetryPeriod: -1})
	for _, want := range []string{"REST is", "Namespace and Name", "LeaseDuration must", "RenewDeadline must be shorter", "two RetryPeriods"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	if _, err := NewElector(ElectorConfig{REST: &rest.Config{}, Namespace: "crawl", Name: "fleet"}); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// candidate is one that takes part in an election until the test ends.
type candidate struct {
	*Elector
	stop  context.CancelFunc
	ended chan error
	terms atomic.Int32
	leads atomic.Bool
	lost  atomic.Pointer[time.Time] // when the context of the last term ended
	// linger is how long lead goes on after that, fail what it returns.
	linger chan struct{}
	fail   chan error
}

func short(cfg *rest.Config, name, address string) ElectorConfig {
	return ElectorConfig{REST: cfg, Namespace: "crawl", Name: name, Address: address,
		LeaseDuration: 6 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 100 * time.Millisecond}
}

func stand(t *testing.T, cfg ElectorConfig) *candidate {
	t.Helper()
	return standWith(t, cfg, nil)
}

func standWith(t *testing.T, cfg ElectorConfig, linger chan struct{}) *candidate {
	t.Helper()
	e, err := NewElector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{Elector: e, stop: stop, ended: make(chan error, 1), linger: linger, fail: make(chan error)}
	go func() { c.ended <- e.Run(ctx, c.lead) }()
	t.Cleanup(func() {
		stop()
		<-c.ended
	})
	return c
}

func (c *candidate) lead(ctx context.Context) error {
	c.terms.Add(1)
	c.leads.Store(true)
	defer c.leads.Store(false)
	select {
	case err := <-c.fail:
		return err
	case <-ctx.Done():
	}
	now := time.Now()
	c.lost.Store(&now)
	if c.linger != nil {
		<-c.linger
	}
	return nil
}

// end ends a candidacy and returns what Run did.
func (c *candidate) end() error {
	c.stop()
	err := <-c.ended
	c.ended <- err
	return err
}

func newLease(t *testing.T) string { return strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) }

// One leads, all know where; when it ends in order the next one leads at once, and not before its work is done.
func TestElectorHandsOver(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	a := short(cfg, newLease(t), "10.0.0.1:8090")
	a.LeaseDuration, a.RenewDeadline = 60*time.Second, 40*time.Second // nobody waits for it to run out
	first := standWith(t, a, make(chan struct{}))
	finish := sync.OnceFunc(func() { close(first.linger) })
	t.Cleanup(finish)
	until(t, "the first one leads", first.leads.Load)
	a.Address = "10.0.0.2:8090"
	second := stand(t, a)
	knows(t, first, "10.0.0.1:8090", true)
	knows(t, second, "10.0.0.1:8090", false)

	first.stop()
	until(t, "the term of the first one ends", func() bool { return first.lost.Load() != nil })
	knows(t, first, "", false)
	select {
	case err := <-first.ended:
		t.Fatalf("Run returned %v before lead did", err)
	case <-time.After(500 * time.Millisecond): // several attempts of the second one
	}
	if second.leads.Load() {
		t.Fatal("the second one leads while the first one still works")
	}
	began := time.Now()
	finish()
	if err := first.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	until(t, "the second one leads", second.leads.Load)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the second one leads after %v", took)
	}
	knows(t, second, "10.0.0.2:8090", true)
	if n := first.terms.Load() + second.terms.Load(); n != 2 {
		t.Errorf("%d terms, want 2", n)
	}
}

func knows(t *testing.T, c *candidate, address string, self bool) {
	t.Helper()
	until(t, fmt.Sprintf("%s knows that %q leads (itself: %v)", c.cfg.Address, address, self), func() bool {
		gotAddress, gotSelf := c.Leader()
		return gotAddress == address && gotSelf == self
	})
}

// A leader whose connection is cut stops before another one leads, and takes part again when the connection is back. One that
// hangs is the harder case: to give the Lease up takes as long as to renew it.
func TestElectorIsCutOff(t *testing.T) {
	t.Run("refused", func(t *testing.T) { isCutOff(t, (*link).sever, (*link).mend) })
	t.Run("hangs", func(t *testing.T) {
		isCutOff(t, func(l *link) { l.hang.Store(true) }, func(l *link) { l.hang.Store(false) })
	})
}

func isCutOff(t *testing.T, cut, mend func(*link)) {
	t.Helper()
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way := newLink(t, cfg)
	cutOff := stand(t, short(way.rest, newLease(t), "10.0.0.1:8090"))
	until(t, "the first one leads", cutOff.leads.Load)
	other := stand(t, short(cfg, newLease(t), "10.0.0.2:8090"))
	knows(t, other, "10.0.0.1:8090", false)

	terms := cutOff.terms.Load()
	cut(way)
	until(t, "the other one leads", other.leads.Load)
	began := time.Now()
	lost := cutOff.lost.Load()
	if lost == nil {
		t.Fatal("the other one leads, and the first one still does")
	}
	if ahead := began.Sub(*lost); ahead < time.Second { // LeaseDuration less RenewDeadline is 3s
		t.Errorf("the first one ended only %v before the other one began", ahead)
	}
	knows(t, cutOff, "", false)
	knows(t, other, "10.0.0.2:8090", true)

	mend(way)
	knows(t, cutOff, "10.0.0.2:8090", false)
	other.stop()
	until(t, "the first one leads again", cutOff.leads.Load)
	if n := cutOff.terms.Load(); n != terms+1 {
		t.Errorf("the first one had %d terms, and %d before it was cut off", n, terms)
	}
}

// An error of lead ends Run with it, and gives the Lease up; a lead that returns early only ends its term.
func TestElectorEndsWithItsLead(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	a := short(cfg, newLease(t), "a:1")
	a.LeaseDuration, a.RenewDeadline = 60*time.Second, 40*time.Second
	c := stand(t, a)
	c.fail <- nil
	until(t, "there is another term", func() bool { return c.terms.Load() == 2 && c.leads.Load() })
	broken := errors.New("broken")
	c.fail <- broken
	if err := <-c.ended; !errors.Is(err, broken) {
		t.Errorf("Run: %v, want the error of lead", err)
	} else {
		c.ended <- err
	}
	lease, err := c.leases.Leases("crawl").Get(t.Context(), newLease(t), metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is still held by %v, %v", *lease.Spec.HolderIdentity, err)
	}
}

// A replica that slept, and wakes when another one leads, does not give up the Lease of that one.
func TestElectorSlept(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	a := short(cfg, newLease(t), "a:1")
	a.LeaseDuration, a.RenewDeadline, a.RetryPeriod = 60*time.Second, 40*time.Second, 20*time.Second // it does not look in between
	c := stand(t, a)
	until(t, "it leads", c.leads.Load)
	leases := c.leases.Leases("crawl")
	other := "b:1_other"
	until(t, "another one holds the Lease", func() bool { // it may be renewed meanwhile, once
		lease, err := leases.Get(t.Context(), newLease(t), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity = &other
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
	if err := c.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	lease, err := leases.Get(t.Context(), newLease(t), metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != other {
		t.Errorf("the Lease of the other one is %+v, %v", lease.Spec, err)
	}
}

// A leader that reads that another one holds the Lease leads no more: it does not wait until its own time is over.
func TestElectorSeesAnother(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	a := short(cfg, newLease(t), "a:1")
	a.LeaseDuration, a.RenewDeadline = 60*time.Second, 40*time.Second
	c := stand(t, a)
	until(t, "it leads", c.leads.Load)
	other, minutes := "b:1_other", int32(600)
	until(t, "another one holds the Lease", func() bool { // it may be renewed meanwhile
		lease, err := c.leases.Leases("crawl").Get(t.Context(), newLease(t), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &other, &minutes
		_, err = c.leases.Leases("crawl").Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
	taken := time.Now()
	until(t, "its term ends", func() bool { return !c.leads.Load() })
	if took := c.lost.Load().Sub(taken); took > a.RenewDeadline/2 {
		t.Errorf("it led for %v more", took)
	}
	knows(t, c, "b:1", false)
}

// A Lease that could not be renewed is not given up while the work of the term goes on: the next leader would work beside it.
func TestElectorWorksOn(t *testing.T) {
	way := newLink(t, restOf(t, sharedCluster(t).Kubeconfig()))
	c := standWith(t, short(way.rest, newLease(t), "a:1"), make(chan struct{}))
	t.Cleanup(func() {
		c.stop()
		close(c.linger)
	})
	until(t, "it leads", c.leads.Load)
	var asked atomic.Int64 // when somebody last did
	way.answers(func(w http.ResponseWriter, r *http.Request) bool {
		asked.Store(time.Now().UnixNano())
		if r.Method != http.MethodPut {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("a:1_")) {
			t.Error("the Lease is given up while lead works")
			return false
		}
		refuse(w, http.StatusInternalServerError, "InternalError")
		return true
	})
	until(t, "its term ends", func() bool { return c.lost.Load() != nil })
	until(t, "nobody tries any more", func() bool { return time.Since(time.Unix(0, asked.Load())) > 10*c.cfg.RetryPeriod })
	lease, err := c.leases.Leases("crawl").Get(t.Context(), newLease(t), metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != c.identity {
		t.Errorf("the Lease is held by %q, %v", *lease.Spec.HolderIdentity, err)
	}
}

// A term comes after an earlier one also where nobody else led in between.
func TestElectorSucceedsItself(t *testing.T) {
	way := newLink(t, restOf(t, sharedCluster(t).Kubeconfig()))
	c := stand(t, short(way.rest, newLease(t), "a:1"))
	until(t, "it leads", c.leads.Load)
	if c.Succeeds() {
		t.Error("the first term of all comes after another one")
	}
	way.sever()
	until(t, "its term ends", func() bool { return !c.leads.Load() })
	way.mend()
	until(t, "it leads again", c.leads.Load)
	if !c.Succeeds() {
		t.Error("its second term comes after none")
	}
}

// The elector has a connection of its own: it does not wait behind lists and patches.
func TestElectorHasItsOwnConnection(t *testing.T) {
	c := sharedCluster(t)
	relay, err := c.Relay()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	kubeconfig, err := relay.Kubeconfig(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg := restOf(t, kubeconfig)
	runStore(t, Config{REST: cfg})
	before := relay.Open()
	candidate := stand(t, short(cfg, newLease(t), "a:1"))
	until(t, "it leads", candidate.leads.Load)
	if n := relay.Open(); n <= before {
		t.Errorf("there are %d connections, and were %d before the elector came", n, before)
	}
}
