package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// line is a queue in front of a world's reconciler, in a bubble.
type line struct {
	*world
	*queue
	log  *paper
	stop context.CancelFunc
	done chan error
}

// newLine runs a queue until the end of the test. Its providers have no lag, and have what they are asked for.
func newLine(t *testing.T, records ...*proxy.Proxy) *line {
	w := newWorld(t, records...)
	l := &line{world: w, log: &paper{}, done: make(chan error, 1)}
	l.queue = newQueue(w.reconciler, func(context.Context, proxy.Key) {}, slog.New(slog.NewTextHandler(l.log, nil)))
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	go func() { l.done <- l.run(ctx) }()
	t.Cleanup(func() {
		l.stop()
		synctest.Wait()
	})
	return l
}

// paper is a log that can be read while it is written.
type paper struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// traffic answers the gets of a provider, and counts them.
type traffic struct {
	hanging func(context.Context) // before each answer

	mu     sync.Mutex
	now    int // under way
	most   int // at once
	times  []time.Duration
	answer provider.Instance
	err    error
}

func (c *traffic) says(answer provider.Instance, err error) *traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer, c.err = answer, err
	return c
}

func (c *traffic) get(ctx context.Context) (provider.Instance, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.times = append(c.times, time.Since(t0))
	c.mu.Unlock()
	if c.hanging != nil {
		c.hanging(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	return c.answer, c.err
}

// take returns when the gets since the last take began, since t0.
func (c *traffic) take() (times []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times, c.times = c.times, nil
	return times
}

func hang(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

func TestQueueOnePassPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{hanging: hang(10 * time.Second)}
		l.cloud.get = calls.says(there(provider.Running, "i-1"), nil).get
		for range 100 {
			l.add(one)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		// What came during a pass is one more pass after it.
		if diff := cmp.Diff([]time.Duration{0, 10 * time.Second}, calls.take()); diff != "" || calls.most != 1 {
			t.Errorf("%d passes at once, which began at (-want +got):\n%s", calls.most, diff)
		}
	})
}

func TestQueueWorkersPerProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(name string) edit {
			return func(p *proxy.Proxy) { p.Spec.Provider, p.Status.Instance.Provider = name, name }
		}
		var records []*proxy.Proxy
		for i := range 10 {
			records = append(records,
				named(fmt.Sprintf("c%d", i), ready(time.Minute)),
				named(fmt.Sprintf("o%d", i), ready(time.Minute, at("other"))),
				named(fmt.Sprintf("u%d", i), ready(time.Minute, at("unknown"))),
				named(fmt.Sprintf("e%d", i), outside(time.Minute)))
		}
		l := newLine(t, records...)
		hung, quick := &traffic{hanging: hang(time.Hour)}, &traffic{hanging: hang(time.Second)}
		l.cloud.get = hung.says(provider.Instance{}, context.DeadlineExceeded).get
		l.other.get = quick.says(there(provider.Running, "i-1", otherProvider), nil).get
		for _, p := range records {
			l.add(p.Key)
		}
		time.Sleep(5 * time.Second)
		if n := len(hung.take()); n != 3 || hung.now != 3 {
			t.Errorf("%d passes at a provider that hangs, want 3", n)
		}
		// The other provider's ten take four rounds of a second with three workers.
		want := []time.Duration{0, 0, 0, 1, 1, 1, 2, 2, 2, 3}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, quick.take()); diff != "" {
			t.Errorf("passes at a provider that answers (-want +got):\n%s", diff)
		}
		for _, p := range records {
			if p.Name[0] != 'u' {
				continue
			}
			if now, err := l.store.Get(t.Context(), p.Key); err != nil || now.Status.Equal(p.Status) {
				t.Errorf("%v, whose provider nobody knows: no pass (%v)", p.Key, err)
			}
		}
	})
}

// TestQueueLane: a proxy waits in the lane of the provider that has its instance, and after that in the lane of the one
// that is to make it.
func TestQueueLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moving := named("moving", ready(time.Minute, otherProvider))
		moved := named("moved", failed(time.Hour, time.Hour, ReasonProviderError, proven, otherProvider))
		l := newLine(t, named("0", ready(time.Minute)), named("1", ready(time.Minute)), named("2", ready(time.Minute)), moving, moved)
		hung := &traffic{hanging: hang(time.Hour)}
		l.cloud.get = hung.says(provider.Instance{}, context.DeadlineExceeded).get
		for _, name := range []string{"0", "1", "2"} {
			l.add(proxy.Key{Namespace: "default", Name: name})
		}
		synctest.Wait()
		l.add(moving.Key)
		l.add(moved.Key)
		time.Sleep(time.Second)
		calls := l.journal.take()
		if n := len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != "get cloud/a" })); n != 3 {
			t.Errorf("%d passes at a provider that hangs, want 3: what it has waits for it", n)
		}
		if !slices.Contains(calls, "create other/a") {
			t.Errorf("calls %q: what the other is to make waits for nobody", calls)
		}
	})
}

func TestQueueDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{}
		l.cloud.get = calls.says(there(provider.Running, "i-1"), nil).get
		l.add(one)
		time.Sleep(150 * time.Second)
		l.add(one) // an event does not wait
		time.Sleep(10 * time.Second)
		want := []time.Duration{0, 60 * time.Second, 120 * time.Second, 150 * time.Second}
		if diff := cmp.Diff(want, calls.take()); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}

func TestQueueBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{}
		l.cloud.get = calls.says(provider.Instance{}, failure("get", provider.ErrTransient)).get
		l.add(one)
		time.Sleep(4*time.Hour + time.Millisecond)
		var waits []time.Duration
		times := calls.take()
		for i := range times[1:] {
			waits = append(waits, times[i+1]-times[i])
		}
		want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, waits[:len(want)]); diff != "" || slices.Max(waits) != 5*time.Minute {
			t.Errorf("waits between passes that fail (-want +got):\n%s", diff)
		}
		// The same failure again is no news; another one is, and the end of them.
		calls.says(provider.Instance{}, failure("look", provider.ErrTransient))
		time.Sleep(time.Hour)

		// A pass that succeeds ends the series.
		calls.says(there(provider.Running, "i-1"), nil)
		time.Sleep(10 * time.Minute)
		wantLog := regexp.MustCompile(`^.*WARN msg="reconcile failed" proxy=default/one failures=1 err="get: no luck"
.*WARN msg="reconcile failed" proxy=default/one failures=\d\d err="look: no luck"
.*INFO msg="reconcile works again" proxy=default/one failures=\d\d
$`)
		if log := l.log.String(); !wantLog.MatchString(log) {
			t.Errorf("the log:\n%s", log)
		}
		calls.says(provider.Instance{}, failure("get", provider.ErrTransient))
		calls.take()
		l.add(one)
		time.Sleep(2 * time.Second)
		if times := calls.take(); len(times) != 2 || times[1]-times[0] != time.Second {
			t.Errorf("after a success, passes at %v, want two with a second between", times)
		}
	})
}

func TestQueueConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, made(time.Minute))
		calls := &traffic{}
		l.cloud.get = calls.says(there(provider.Running, "i-1"), nil).get
		l.store.refuse = proxy.ErrConflict
		l.add(one)
		time.Sleep(225 * time.Millisecond)
		want := []time.Duration{0, 50, 100, 150, 200}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if diff := cmp.Diff(want, calls.take()); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
		if l.log.String() != "" || l.work.NumRequeues(one) != 0 {
			t.Errorf("conflicts count as %d failures; the log: %s", l.work.NumRequeues(one), l.log)
		}
	})
}

// TestQueueCanceled: a provider that gives a call up by itself does not end the care for a proxy.
func TestQueueCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{}
		l.cloud.get = calls.says(provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrCanceled}).get
		l.add(one)
		time.Sleep(10 * time.Second)
		if diff := cmp.Diff([]time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, calls.take()); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}

// unreadable is a store that fails for a while.
type unreadable struct {
	*ledger
	until time.Time
}

var errUnreadable = errors.New("the disk is on fire")

func (s unreadable) Get(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) {
	if time.Now().Before(s.until) {
		return nil, errUnreadable
	}
	return s.ledger.Get(ctx, k)
}

func TestQueueStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{}
		l.cloud.get = calls.says(there(provider.Running, "i-1"), nil).get
		l.world.reconciler.Store = unreadable{l.store, t0.Add(5 * time.Second)}
		l.add(one)
		time.Sleep(20 * time.Second)
		if diff := cmp.Diff([]time.Duration{7 * time.Second}, calls.take()); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}

// TestQueueEnds: run returns when its passes have, their calls are given up, and what waits is not begun.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []*proxy.Proxy
		for i := range 10 {
			records = append(records, named(fmt.Sprintf("c%d", i), ready(time.Minute)))
		}
		l := newLine(t, records...)
		calls := &traffic{hanging: func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) // a call ends soon after its context
		}}
		l.cloud.get = calls.says(provider.Instance{}, &provider.Error{Op: "get", Class: provider.ErrCanceled}).get
		for _, p := range records {
			l.add(p.Key)
		}
		time.Sleep(time.Minute)
		l.stop()
		if err := <-l.done; err != nil {
			t.Error(err)
		}
		if begun := calls.take(); calls.now != 0 || len(begun) != 3 {
			t.Errorf("%d calls under way, %d in all", calls.now, len(begun))
		}
		if since := time.Since(t0); since != time.Minute+time.Second {
			t.Errorf("it ended after %v", since)
		}
		if l.log.String() != "" {
			t.Errorf("the log has what is no failure: %s", l.log)
		}
	})
}

// TestQueuePasses: the last pass over each record is known, with what came of it and when the next is due.
func TestQueuePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, ready(time.Minute))
		calls := &traffic{hanging: hang(2 * time.Second)}
		l.cloud.get = calls.says(there(provider.Running, "i-1"), nil).get
		if got := l.last(one); got != nil {
			t.Errorf("before the first pass: %+v", got)
		}
		want := func(what string, want Pass) {
			t.Helper()
			got := l.last(one)
			if got == nil {
				t.Fatalf("%s: none", what)
			}
			if diff := cmp.Diff(want, *got, cmp.Comparer(sameText)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		at := func(s int) time.Time { return time.Now().Add(time.Duration(s) * time.Second) }
		l.add(one)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want("steady", Pass{At: at(0), Took: 2 * time.Second, Next: at(60)})

		time.Sleep(10 * time.Second)
		l.add(one)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want("an event does not put off what is due", Pass{At: at(0), Took: 2 * time.Second, Next: at(48)})

		calls.says(provider.Instance{}, failure("get", provider.ErrTransient))
		l.add(one)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want("a failure", Pass{At: at(0), Took: 2 * time.Second, Err: failure("get", provider.ErrTransient), Next: at(1)})
		next := l.last(one).Next
		time.Sleep(time.Until(next) + 2*time.Second)
		synctest.Wait()
		want("another", Pass{At: at(0), Took: 2 * time.Second, Err: failure("get", provider.ErrTransient), Next: at(2)})
	})
}

func sameText(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestQueuePassesConflict: a conflict is an error of the pass, and the next comes soon.
func TestQueuePassesConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, made(time.Minute))
		l.cloud.get = (&traffic{}).says(there(provider.Running, "i-1"), nil).get
		l.store.refuse = proxy.ErrConflict
		l.add(one)
		synctest.Wait()
		if got := l.last(one); got == nil || !errors.Is(got.Err, proxy.ErrConflict) || got.Next.Sub(got.At) != conflictRetry {
			t.Errorf("%+v", got)
		}
	})
}

// TestQueuePassesForgotten: what is known of a record goes with it, however a pass meets its removal.
func TestQueuePassesForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil).run()
		for i := range 20 {
			s.declare(fmt.Sprintf("p%d", i), proxy.Spec{Provider: "memory"})
		}
		time.Sleep(10 * time.Minute)
		remembered := func() int {
			s.Fleet.mu.Lock()
			q := s.queue
			s.Fleet.mu.Unlock()
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.passes)
		}
		if n := remembered(); n != 20 {
			t.Errorf("%d passes are known, want 20", n)
		}
		for i := range 19 {
			if err := s.store.Delete(t.Context(), proxy.Key{Namespace: "default", Name: fmt.Sprintf("p%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := remembered(); n != 1 {
			t.Errorf("%d passes are known, want 1", n)
		}
	})
}

// TestQueued: keys that wait are counted in the lane of their provider; one that is in a pass does not wait.
func TestQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []*proxy.Proxy
		for i := range 10 {
			records = append(records, named(fmt.Sprintf("c%d", i), ready(time.Minute)))
		}
		records = append(records, named("e", outside(time.Minute)))
		l := newLine(t, records...)
		l.cloud.get = (&traffic{hanging: hang(time.Minute)}).says(provider.Instance{}, context.DeadlineExceeded).get
		for _, p := range records {
			l.add(p.Key)
			l.add(p.Key)
		}
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"": 0, "cloud": 7, "other": 0}, l.depths()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestFleetQueued: the queue may be looked at at any time.
func TestFleetQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, nil)
		if got := s.Queued(); len(got) != 0 {
			t.Errorf("before it runs: %v", got)
		}
		s.declare("one", proxy.Spec{Provider: "memory"})
		looking := make(chan struct{})
		go func() {
			defer close(looking)
			for range 100 {
				s.Queued()
				_, _ = s.Explain(t.Context(), one)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		s.run()
		<-looking
		if diff := cmp.Diff(map[string]int{"": 0, "memory": 0}, s.Queued()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
