package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/health"
)

const key = "default/one"

// target is a valid target that is probed once an hour unless it is hurried.
func target(key string) health.Target {
	return health.Target{
		Key: key, Incarnation: "first",
		Scheme: "http", Host: "192.0.2.1", Port: 3128,
		URL: "https://target.example/", ExpectedStatus: []int{204},
		Interval: time.Hour, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 1,
	}
}

// fake is a Prober that answers with the result set last, after a delay, and takes notes. Overlapping probes of one key
// are an error of the test.
type fake struct {
	t      testing.TB
	mu     sync.Mutex
	result health.Result
	delay  map[string]time.Duration // per key
	starts map[string][]time.Time
	active map[string]bool
	most   int // probes at once
	ended  []string
}

func newFake(t testing.TB) *fake {
	return &fake{t: t, result: ok(0), delay: map[string]time.Duration{}, starts: map[string][]time.Time{}, active: map[string]bool{}}
}

func (f *fake) Probe(ctx context.Context, t health.Target) health.Result {
	f.mu.Lock()
	if f.active[t.Key] {
		f.t.Errorf("two probes of %s at once", t.Key)
	}
	f.active[t.Key] = true
	f.most = max(f.most, len(f.active))
	f.starts[t.Key] = append(f.starts[t.Key], time.Now())
	result, delay := f.result, f.delay[t.Key]
	f.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		result = health.Result{Party: health.PartyTimeout}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.active, t.Key)
	f.ended = append(f.ended, t.Key)
	return result
}

func (f *fake) answer(r health.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = r
}

// slow makes probes of a key take that long from now on.
func (f *fake) slow(key string, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay[key] = delay
}

func (f *fake) started(key string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts[key])
}

func ok(latency time.Duration) health.Result { return health.Result{OK: true, Latency: latency} }

func bad(p health.Party) health.Result {
	return health.Result{Party: p, Message: "it was " + string(p)}
}

// run makes an engine in a bubble and runs it until the test ends.
func run(t *testing.T, cfg health.Config) *health.Engine {
	t.Helper()
	e, err := health.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- e.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return e
}

func set(t testing.TB, e *health.Engine, targets ...health.Target) {
	t.Helper()
	for _, target := range targets {
		if err := e.Set(target); err != nil {
			t.Fatal(err)
		}
	}
}

func snapshot(t testing.TB, e *health.Engine, key string) health.Snapshot {
	t.Helper()
	s, known := e.Snapshot(key, "first")
	if !known {
		t.Fatalf("%s is not known", key)
	}
	return s
}

// tick lets the engine do all that is due by its next tick.
func tick() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// drain returns the events that wait.
func drain(e *health.Engine) (keys []string) {
	for {
		select {
		case key := <-e.Events():
			keys = append(keys, key)
		default:
			return keys
		}
	}
}

// TestEvents says when there is something to tell.
func TestEvents(t *testing.T) {
	type step struct {
		after   time.Duration // since the step before
		result  health.Result
		verdict health.Verdict
		event   bool
	}
	const ms, later = time.Millisecond, time.Minute
	healthy, unhealthy, unknown := health.Healthy, health.Unhealthy, health.Unknown
	for name, c := range map[string]struct {
		success, failure int
		steps            []step
	}{
		"first verdict at the success threshold": {2, 3, []step{
			{0, ok(0), unknown, false}, {0, ok(0), healthy, true}, {later, ok(0), healthy, false},
		}},
		"first verdict at the failure threshold": {2, 3, []step{
			{0, bad("dial"), unknown, false}, {0, bad("dial"), unknown, false}, {0, bad("dial"), unhealthy, true},
		}},
		"results of the other kind start the count anew": {2, 2, []step{
			{0, ok(0), unknown, false}, {0, bad("dial"), unknown, false}, {0, ok(0), unknown, false},
			{0, bad("dial"), unknown, false}, {0, bad("dial"), unhealthy, true},
			{0, ok(0), unhealthy, false}, {0, bad("dial"), unhealthy, false}, {0, ok(0), unhealthy, false}, {0, ok(0), healthy, true},
		}},
		"a flip waits for nothing but its threshold": {1, 1, []step{
			{0, ok(0), healthy, true}, {0, bad("dial"), unhealthy, true}, {0, ok(0), healthy, true},
		}},
		"latency moves by more than half": {1, 2, []step{
			{0, ok(100 * ms), healthy, true}, {later, ok(150 * ms), healthy, false}, {later, ok(151 * ms), healthy, true},
			{later, ok(226 * ms), healthy, false}, {later, ok(75 * ms), healthy, true},
		}},
		"latency moves by more than 20 ms": {1, 2, []step{
			{0, ok(10 * ms), healthy, true}, {later, ok(30 * ms), healthy, false}, {later, ok(31 * ms), healthy, true},
			{later, ok(11 * ms), healthy, false}, {later, ok(10 * ms), healthy, true},
		}},
		"latency is told once a minute": {1, 2, []step{
			{0, ok(10 * ms), healthy, true}, {0, ok(time.Second), healthy, false}, {50 * time.Second, ok(time.Second), healthy, false},
			{10 * time.Second, ok(time.Second), healthy, true},
		}},
		"latency that moved back is not told": {1, 2, []step{
			{0, ok(10 * ms), healthy, true}, {0, ok(time.Second), healthy, false}, {later, ok(10 * ms), healthy, false},
		}},
		"latency is not told of an unhealthy proxy": {3, 1, []step{
			{0, bad("dial"), unhealthy, true}, {later, ok(time.Second), unhealthy, false}, {later, ok(2 * time.Second), unhealthy, false},
		}},
		"latency of a failure is not told": {1, 3, []step{
			{0, ok(10 * ms), healthy, true}, {later, health.Result{Party: "timeout", Latency: 10 * time.Second}, healthy, false},
		}},
		"the reason changes": {1, 1, []step{
			{0, bad("dial"), unhealthy, true}, {later, bad("dial"), unhealthy, false}, {later, bad("proxy_auth"), unhealthy, true},
		}},
		"the reason is told once a minute": {1, 1, []step{
			{0, bad("dial"), unhealthy, true}, {0, bad("proxy_auth"), unhealthy, false}, {later, bad("proxy_auth"), unhealthy, true},
		}},
		"the reason of a failure that turns nothing is not told": {1, 2, []step{
			{0, ok(0), healthy, true}, {later, bad("dial"), healthy, false},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				e := run(t, health.Config{Prober: f})
				one := target(key)
				one.SuccessThreshold, one.FailureThreshold = c.success, c.failure
				for i, s := range c.steps {
					time.Sleep(s.after)
					f.answer(s.result)
					if i == 0 {
						set(t, e, one)
					} else {
						e.Hurry(key)
					}
					tick()
					if got := len(f.started(key)); got != i+1 {
						t.Fatalf("step %d: %d probes so far", i, got)
					}
					if got := snapshot(t, e, key).Verdict; got != s.verdict {
						t.Errorf("step %d: the verdict is %q, want %q", i, got, s.verdict)
					}
					if got := len(drain(e)) == 1; got != s.event {
						t.Errorf("step %d: event %v, want %v", i, got, s.event)
					}
				}
			})
		})
	}
}

func TestSnapshotReportsWhatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		one := target(key)
		one.FailureThreshold = 2
		f.answer(ok(100 * time.Millisecond))
		set(t, e, one)
		tick()
		told := snapshot(t, e, key).Reported
		if !told.OK || told.Latency != 100*time.Millisecond || told.At.IsZero() {
			t.Errorf("reported %+v, want the first result with its time", told)
		}
		for _, r := range []health.Result{ok(110 * time.Millisecond), bad(health.PartyDial)} {
			f.answer(r)
			e.Hurry(key)
			tick()
			s := snapshot(t, e, key)
			if s.Reported != told {
				t.Errorf("reported moved to %+v without an event", s.Reported)
			}
			if s.Last.OK != r.OK || s.Last.Latency != r.Latency || s.Last.Message != r.Message {
				t.Errorf("last is %+v, want %+v", s.Last, r)
			}
		}
		e.Hurry(key)
		tick()
		if s := snapshot(t, e, key); s.Verdict != health.Unhealthy || s.Reported != s.Last || s.Last.Party != health.PartyDial {
			t.Errorf("after the flip: %+v", s)
		}
	})
}

func TestFullChannelLosesNothing(t *testing.T) {
	const more = 70
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		for i := range more {
			set(t, e, target(fmt.Sprint("default/", i)))
		}
		tick()
		told := drain(e)
		if len(told) != 64 {
			t.Fatalf("%d events wait, want 64", len(told))
		}
		var owed []string
		for i := range more {
			if k := fmt.Sprint("default/", i); !slices.Contains(told, k) {
				owed = append(owed, k)
			}
		}
		// Who looks at such a target sees the verdict with the result that goes with it, and the debt remains.
		f.answer(bad(health.PartyDial))
		for _, k := range owed {
			if s := snapshot(t, e, k); s.Verdict != health.Healthy || !s.Reported.OK || s.Reported.At.IsZero() {
				t.Errorf("%s: %+v, want a healthy one", k, s)
			}
			one := target(k)
			one.FailureThreshold = 2
			set(t, e, one)
			e.Hurry(k)
		}
		tick()
		got := drain(e)
		slices.Sort(got)
		slices.Sort(owed)
		if diff := cmp.Diff(owed, got); diff != "" {
			t.Errorf("events of the next probe (-want +got):\n%s", diff)
		}
		for _, k := range owed {
			if s := snapshot(t, e, k); s.Verdict != health.Healthy || !s.Reported.OK || s.Last.OK {
				t.Errorf("%s: %+v, want a healthy verdict beside the result that gave it", k, s)
			}
		}
	})
}

func TestFirstProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fleet = 400
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		start := time.Now()
		set(t, e, target(key))
		for i := range fleet {
			one := target(fmt.Sprint("seeded/", i))
			one.Seed = health.Healthy
			set(t, e, one)
		}
		tick()
		if got := f.started(key); len(got) != 1 {
			t.Errorf("the target that was never probed had %d probes within a tick, want 1", len(got))
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		early := 0
		for i := range fleet {
			early += len(f.started(fmt.Sprint("seeded/", i)))
		}
		if early < fleet/3 || early > fleet*2/3 {
			t.Errorf("%d of %d seeded targets were probed in half an interval", early, fleet)
		}
		time.Sleep(30*time.Minute + time.Second)
		synctest.Wait()
		for i := range fleet {
			if got := f.started(fmt.Sprint("seeded/", i)); len(got) == 0 {
				t.Errorf("a seeded target was not probed within %v", time.Since(start))
			}
		}
	})
}

func TestSeed(t *testing.T) {
	for name, c := range map[string]struct {
		seed   health.Verdict
		result health.Result
		turned health.Verdict
	}{
		"healthy":   {health.Healthy, bad(health.PartyDial), health.Unhealthy},
		"unhealthy": {health.Unhealthy, ok(0), health.Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.answer(c.result)
				e := run(t, health.Config{Prober: f})
				one := target(key)
				one.SuccessThreshold, one.FailureThreshold = 3, 3
				one.Seed, one.SeedLatency = c.seed, 42*time.Millisecond
				set(t, e, one)
				want := health.Snapshot{Verdict: c.seed, Reported: health.Result{OK: c.seed == health.Healthy, Latency: 42 * time.Millisecond}}
				if diff := cmp.Diff(want, snapshot(t, e, key)); diff != "" {
					t.Errorf("before the first probe (-want +got):\n%s", diff)
				}
				for probe := 1; probe <= 3; probe++ {
					e.Hurry(key)
					tick()
					wantVerdict, wantEvents := c.seed, 0
					if probe == 3 {
						wantVerdict, wantEvents = c.turned, 1
					}
					if got := snapshot(t, e, key).Verdict; got != wantVerdict {
						t.Errorf("after probe %d: %q, want %q", probe, got, wantVerdict)
					}
					if got := drain(e); len(got) != wantEvents {
						t.Errorf("after probe %d: %d events, want %d", probe, len(got), wantEvents)
					}
				}
			})
		})
	}
}

func TestSeedCountsOnlyForTheUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := health.New(health.Config{Prober: newFake(t)})
		if err != nil {
			t.Fatal(err)
		}
		one := target(key)
		set(t, e, one)
		one.Seed = health.Healthy
		set(t, e, one)
		if s := snapshot(t, e, key); s.Verdict != health.Unknown {
			t.Errorf("a seed gave a known target the verdict %q", s.Verdict)
		}
		one.Incarnation = "second"
		set(t, e, one)
		if s, known := e.Snapshot(key, "second"); !known || s.Verdict != health.Unknown {
			t.Errorf("a replaced target: known %v, verdict %q", known, s.Verdict)
		}
		e.Remove(key)
		set(t, e, one)
		if s, _ := e.Snapshot(key, "second"); s.Verdict != health.Healthy {
			t.Errorf("a target that is new again: verdict %q, want its seed", s.Verdict)
		}
	})
}

func TestSetOfAKnownIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		one := target(key)
		one.SuccessThreshold = 2
		set(t, e, one)
		tick()
		set(t, e, one)
		tick()
		if got := f.started(key); len(got) != 1 {
			t.Errorf("setting it again caused %d probes, want 1 in all", len(got))
		}
		// The first probe still counts, and a shorter interval needs no waiting for the end of the longer one.
		one.Interval = 10 * time.Second
		set(t, e, one)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := snapshot(t, e, key).Verdict; got != health.Healthy {
			t.Errorf("the verdict is %q, want healthy by the second probe", got)
		}
	})
}

func TestNewIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &notes{}
		e := run(t, health.Config{Prober: f, Recorder: r})
		set(t, e, target(key))
		tick()
		drain(e)
		f.answer(bad(health.PartyDial))
		f.slow(key, 5*time.Second)
		e.Hurry(key)
		tick() // a probe of the first incarnation is under way
		next := target(key)
		next.Incarnation = "second"
		set(t, e, next)
		if _, known := e.Snapshot(key, "first"); known {
			t.Error("the old incarnation is still known")
		}
		if s, known := e.Snapshot(key, "second"); !known || s != (health.Snapshot{}) {
			t.Errorf("the new incarnation starts with %+v (known: %v)", s, known)
		}
		synctest.Wait()
		if len(f.ended) != 2 {
			t.Errorf("%d probes ended, want 2: the one of the old incarnation is canceled", len(f.ended))
		}
		if got := drain(e); len(got) != 0 || len(r.seen()) != 1 {
			t.Errorf("the result of the old incarnation counted: events %v, recorded %v", got, r.seen())
		}
		f.answer(ok(0))
		tick() // its first probe began at once with the old answer
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s, _ := e.Snapshot(key, "second"); s.Verdict != health.Unhealthy {
			t.Errorf("the verdict on the new incarnation is %q, want the one of its own first probe", s.Verdict)
		}
	})
}

func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &notes{}
		e := run(t, health.Config{Prober: f, Recorder: r})
		f.slow(key, 5*time.Second)
		set(t, e, target(key), target("default/idle"))
		tick()
		e.Remove(key)
		e.Remove(key)
		e.Remove("default/idle")
		e.Remove("default/never")
		for _, k := range []string{key, "default/idle"} {
			if _, known := e.Snapshot(k, "first"); known {
				t.Errorf("%s is still known", k)
			}
			e.Hurry(k)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := f.started(key); len(got) != 1 {
			t.Errorf("a removed target had %d probes, want 1", len(got))
		}
		want := []string{"probed default/idle", "forgotten " + key, "forgotten default/idle"}
		if diff := cmp.Diff(want, r.seen()); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

// TestRemoveAndSetDuringAProbe takes a target back and gives it again while it is probed: the two probes must not overlap
// (the fake watches), and the first must not count.
func TestRemoveAndSetDuringAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.slow(key, 5*time.Second)
		e := run(t, health.Config{Prober: f})
		f.answer(bad(health.PartyDial))
		set(t, e, target(key))
		tick()
		f.answer(ok(0))
		e.Remove(key)
		set(t, e, target(key))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if s := snapshot(t, e, key); s.Verdict != health.Healthy || len(f.started(key)) != 2 {
			t.Errorf("verdict %q after %d probes, want healthy after 2", s.Verdict, len(f.started(key)))
		}
	})
}

func TestSlowProxiesHoldOnlyTheirWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		for i := range 7 {
			slow := target(fmt.Sprint("slow/", i))
			slow.Interval = 15 * time.Second
			f.slow(slow.Key, time.Hour) // the engine's deadline of 10 s ends it
			set(t, e, slow)
		}
		for i := range 100 {
			quick := target(fmt.Sprint("quick/", i))
			quick.Interval = 30 * time.Second
			f.slow(quick.Key, 10*time.Millisecond)
			set(t, e, quick)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if f.most != 8 {
			t.Errorf("%d probes ran at once, want 8", f.most)
		}
		for i := range 100 {
			starts := f.started(fmt.Sprint("quick/", i))
			for n := 1; n < len(starts); n++ {
				if gap := starts[n].Sub(starts[n-1]); gap < 27*time.Second || gap > 33*time.Second {
					t.Fatalf("quick/%d waited %v between probes", i, gap)
				}
			}
			if len(starts) < 20 {
				t.Errorf("quick/%d had %d probes in 10 minutes", i, len(starts))
			}
		}
	})
}

func TestSaturation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f, Workers: 2})
		for i := range 5 {
			k := fmt.Sprint("default/", i)
			f.slow(k, 3500*time.Millisecond)
			set(t, e, target(k))
			time.Sleep(time.Millisecond) // so that the order of being due is certain
		}
		time.Sleep(13 * time.Second)
		synctest.Wait()
		want := []string{"default/0", "default/1", "default/2", "default/3", "default/4"}
		slices.Sort(f.ended[:2])
		slices.Sort(f.ended[2:4])
		if diff := cmp.Diff(want, f.ended); diff != "" {
			t.Errorf("order of probes (-want +got):\n%s", diff)
		}
		if f.most != 2 {
			t.Errorf("%d probes ran at once, want 2", f.most)
		}
	})
}

// TestThroughput shows that workers do not wait for ticks while something is due.
func TestThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		for i := range 800 {
			k := fmt.Sprint("default/", i)
			f.slow(k, 10*time.Millisecond)
			set(t, e, target(k))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(f.ended) != 800 {
			t.Errorf("%d of 800 probes of 10 ms ended within 2 s on 8 workers", len(f.ended))
		}
	})
}

func TestInterval(t *testing.T) {
	for name, c := range map[string]struct {
		interval, delay   time.Duration
		shortest, longest time.Duration
	}{
		"from start to start":           {time.Minute, 5 * time.Second, 54 * time.Second, 61 * time.Second},
		"a probe outlasts its interval": {2 * time.Second, 5 * time.Second, 5 * time.Second, 6 * time.Second},
		"shorter than a tick":           {100 * time.Millisecond, 0, 100 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				e := run(t, health.Config{Prober: f})
				one := target(key)
				one.Interval = c.interval
				f.slow(key, c.delay)
				set(t, e, one)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				starts := f.started(key)
				if len(starts) < 9 {
					t.Fatalf("%d probes in 10 minutes", len(starts))
				}
				for n := 1; n < len(starts); n++ {
					if gap := starts[n].Sub(starts[n-1]); gap < c.shortest || gap > c.longest {
						t.Fatalf("probe %d came %v after the one before, want %v to %v", n, gap, c.shortest, c.longest)
					}
				}
			})
		})
	}
}

func TestTargetsDriftApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		for i := range 200 {
			one := target(fmt.Sprint("default/", i))
			one.Interval = time.Minute
			set(t, e, one)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		perSecond := map[time.Duration]int{}
		for i := range 200 {
			starts := f.started(fmt.Sprint("default/", i))
			perSecond[time.Since(starts[len(starts)-1]).Truncate(time.Second)]++
		}
		for second, n := range perSecond {
			if n > 20 {
				t.Errorf("after an hour %d of 200 targets are still probed in one second (%v ago)", n, second)
			}
		}
	})
}

func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		set(t, e, target(key))
		tick()
		f.slow(key, 5*time.Second)
		e.Hurry(key)
		tick()
		if got := len(f.started(key)); got != 2 {
			t.Fatalf("%d probes after hurrying, want 2", got)
		}
		e.Hurry(key) // while the second is under way
		e.Hurry(key)
		time.Sleep(time.Minute)
		synctest.Wait()
		starts := f.started(key)
		if len(starts) != 3 {
			t.Fatalf("%d probes after hurrying twice during a probe, want 3", len(starts))
		}
		if gap := starts[2].Sub(starts[1]); gap != 5*time.Second {
			t.Errorf("the third came %v after the start of the second, want it to follow its end", gap)
		}
		e.Hurry("default/unknown")
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.slow(key, time.Hour)
		r := &notes{}
		e, err := health.New(health.Config{Prober: f, Recorder: r})
		if err != nil {
			t.Fatal(err)
		}
		set(t, e, target(key))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		tick()
		if err := e.Run(ctx); err == nil {
			t.Error("a second Run at the same time is no error")
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if len(f.active) != 0 {
			t.Error("Run returned before its probes")
		}
		if got := r.seen(); len(got) != 0 {
			t.Errorf("a result counted after the end: %v", got)
		}
		// A later Run takes the target up again, at once.
		f.slow(key, 0)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- e.Run(ctx) }()
		tick()
		if s := snapshot(t, e, key); s.Verdict != health.Healthy {
			t.Errorf("after running again the verdict is %q", s.Verdict)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestRecorderHearsOfEveryProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := &notes{}
		e := run(t, health.Config{Prober: f, Recorder: r})
		set(t, e, target(key))
		tick()
		for range 2 {
			e.Hurry(key)
			tick()
		}
		want := slices.Repeat([]string{"probed " + key}, 3)
		if diff := cmp.Diff(want, r.seen()); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

// notes is a Recorder that takes notes. The engine calls it one at a time; the lock is for the test that reads.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) Probed(key string, r health.Result) {
	if r.At.IsZero() {
		key += " at no time"
	}
	n.add("probed " + key)
}

func (n *notes) Forgotten(key string) { n.add("forgotten " + key) }

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notes) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newFake(t)
		f.answer(bad(health.PartyDial))
		e := run(t, health.Config{Prober: f, Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		set(t, e, target(key))
		tick()
		for _, want := range []string{"level=INFO", "proxy=" + key, "verdict=unhealthy", "party=dial", "it was dial"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, log.String())
			}
		}
		log.Reset()
		e.Hurry(key)
		tick()
		if len(log.String()) > 0 {
			t.Errorf("a verdict that stays is logged: %s", log.String())
		}
		// One worker, and two proxies that keep it busy: the second is late by more than its interval, and that is said once
		// a minute.
		for _, k := range []string{key, "default/two"} {
			one := target(k)
			one.Interval = time.Second
			f.slow(k, 8*time.Second)
			set(t, e, one)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings in a minute, want 1: %s", got, log.String())
		}
	})
}

// logged is what an engine has logged. Time that passes in a bubble orders nothing, so reading it takes a lock.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// TestHealthyVerdictIsLoggedWithoutAReason: nobody failed.
func TestHealthyVerdictIsLoggedWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		e := run(t, health.Config{Prober: newFake(t), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		set(t, e, target(key))
		tick()
		got := log.String()
		if !strings.Contains(got, "verdict=healthy") || strings.Contains(got, "party=") || strings.Contains(got, "message=") {
			t.Errorf("logged %s", got)
		}
	})
}

// TestWhatThisProcessLacksDoesNotCount has probes that cannot be made, between a failure and the one that turns the verdict.
func TestWhatThisProcessLacksDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f, recorded := newFake(t), &notes{}
		e := run(t, health.Config{Prober: f, Recorder: recorded, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		one := target(key)
		one.Interval, one.FailureThreshold = 10*time.Second, 2
		set(t, e, one)
		tick()
		f.answer(bad(health.PartyDial))
		e.Hurry(key)
		tick()
		before, probes := snapshot(t, e, key), len(recorded.seen())
		drain(e)
		log.Reset()

		f.answer(bad(health.PartyLocal))
		time.Sleep(58 * time.Second)
		synctest.Wait()
		if got := len(f.started(key)) - probes; got < 5 || got > 7 {
			t.Errorf("%d probes in a minute, want one per interval", got)
		}
		if diff := cmp.Diff(before, snapshot(t, e, key)); diff != "" {
			t.Errorf("they changed what is known (-before +after):\n%s", diff)
		}
		if got := len(recorded.seen()); got != probes {
			t.Errorf("%d of them were recorded", got-probes)
		}
		if got := drain(e); got != nil {
			t.Errorf("they made events: %v", got)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "it was local") {
			t.Errorf("want one warning in a minute: %s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Count(log.String(), "level=WARN"); got != 2 {
			t.Errorf("%d warnings in two minutes, want 2", got)
		}

		// The failure of before is still the last that counted, so one more turns the verdict.
		f.answer(bad(health.PartyDial))
		e.Hurry(key)
		tick()
		if got := snapshot(t, e, key).Verdict; got != health.Unhealthy {
			t.Errorf("the verdict is %q, want %q", got, health.Unhealthy)
		}
	})
}

func TestTracing(t *testing.T) {
	for name, c := range map[string]struct {
		on   bool
		want []string
	}{"off": {false, nil}, "on": {true, []string{"health.probe root=true"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracer := &spans{}
				e := run(t, health.Config{Prober: newFake(t), TracerProvider: tracer, TraceProbes: c.on})
				set(t, e, target(key))
				tick()
				if diff := cmp.Diff(c.want, tracer.started); diff != "" {
					t.Errorf("spans (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// spans is a TracerProvider, and its tracer, that notes the spans.
type spans struct {
	noop.TracerProvider
	started []string
}

type tracer struct {
	noop.Tracer
	spans *spans
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{spans: s} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	t.spans.started = append(t.spans.started, fmt.Sprintf("%s root=%v", name, cfg.NewRoot()))
	return t.Tracer.Start(ctx, name, opts...)
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	_, err := health.New(health.Config{Workers: -1, Tick: -1, MinReportInterval: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Prober", "Workers", "Tick", "MinReportInterval"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestSetRefusesTheInvalid(t *testing.T) {
	e, err := health.New(health.Config{Prober: newFake(t)})
	if err != nil {
		t.Fatal(err)
	}
	one := target(key)
	set(t, e, one)
	one.Incarnation, one.Timeout = "second", 0
	if err := e.Set(one); err == nil || !strings.Contains(err.Error(), "Timeout") || !strings.Contains(err.Error(), key) {
		t.Errorf("Set of a target without timeout: %v", err)
	}
	if _, known := e.Snapshot(key, "first"); !known {
		t.Error("the invalid target changed what was known")
	}
}
