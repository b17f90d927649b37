package gc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
)

var errDown = errors.New("down")

// mustSweep makes a sweep that has no error.
func mustSweep(t *testing.T, s *gc.Sweeper) gc.Plan {
	t.Helper()
	plan, err := s.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestConfig(t *testing.T) {
	_, err := gc.New(gc.Config{Providers: map[string]provider.Provider{"b": nil, "a": nil}, Interval: -1, MinAge: -time.Second, Restricted: true})
	if !errors.Is(err, gc.ErrRestricted) {
		t.Errorf("%v is not ErrRestricted", err)
	}
	diff(t, "problems", []string{
		"gc: Fleet is required",
		`gc: Providers["a"] is nil`,
		`gc: Providers["b"] is nil`,
		"gc: Live is required",
		"gc: Interval must be positive, not -1ns",
		"gc: MinAge must be positive, not -1s",
		gc.ErrRestricted.Error(),
	}, strings.Split(err.Error(), "\n"))
	if _, err := gc.New(gc.Config{Fleet: fleetID, Live: new(records).Live, Restricted: true, AllowRestricted: true}); err != nil {
		t.Errorf("restricted and allowed: %v", err)
	}
}

// A fleet that makes a record and its instance at any moment of a sweep never loses it, although the minimum age protects
// nothing here.
func TestInstancesThatAreMadeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r, made := &backend{}, &records{}, 0
		b.add(old("orphan"))
		declare := func() {
			made++
			uid := fmt.Sprint("new", made)
			r.hold("cloud", uid)
			b.add(old(uid)) // by the clock of its backend
			time.Sleep(time.Second)
		}
		b.beforeList = func(context.Context) error { declare(); return nil }
		r.before = func(context.Context, int) error { declare(); return nil }
		b.beforeDelete = func(context.Context, provider.Ref) error { declare(); return nil }
		s := sweeper(t, r, one(b), func(c *gc.Config) { c.MinAge = 1 })
		plan, err := s.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range plan.Providers[0].Instances {
			if v.Action != gc.Keep && v.UID != "orphan" {
				t.Errorf("the plan is to %s %s, %s", v.Action, v.UID, v.Reason)
			}
		}
		mustSweep(t, s)
		diff(t, "deletes", []provider.Ref{{ID: "id-orphan", UID: "orphan", Incarnation: "inc-orphan"}}, b.deletes)
	})
}

// The records are what they are after the list, also for a provider whose list takes long.
func TestARecordThatComesLateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, r := &backend{}, &records{}
		slow.add(old("x"))
		slow.beforeList = func(context.Context) error { time.Sleep(time.Minute); r.hold("slow", "x"); return nil }
		plan, err := sweeper(t, r, map[string]*backend{"quick": {}, "slow": slow}).Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "reason", gc.Live, plan.Providers[1].Instances[0].Reason)
	})
}

// Where UIDs come from names, a proxy may be declared again after the plan was made, and meet what was nobody's.
func TestAProxyThatIsDeclaredAgainKeepsItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := &backend{}, &records{}
		b.add(old("a"), old("b"))
		b.beforeDelete = func(_ context.Context, ref provider.Ref) error {
			if ref.UID == "a" {
				r.hold("cloud", "b")
			}
			return nil
		}
		plan := mustSweep(t, sweeper(t, r, one(b)))
		diff(t, "left", []string{"inc-b"}, b.left())
		got := plan.Providers[0].Instances[1]
		diff(t, "verdict", gc.Verdict{ID: "id-b", Incarnation: "inc-b", UID: "b", Key: "default/b", Created: got.Created,
			Action: gc.Keep, Reason: gc.Live}, got)
	})
}

// A deletion that comes late hits nothing that bears the same name by then.
func TestSuccessorsAreNotHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{}
		b.add(old("x"))
		b.beforeDelete = func(context.Context, provider.Ref) error {
			b.mu.Lock()
			b.instances[0].Incarnation = "successor"
			b.mu.Unlock()
			return nil
		}
		mustSweep(t, sweeper(t, &records{}, one(b)))
		diff(t, "left", []string{"successor"}, b.left())
	})
}

// A list that failed on its way is no list, whatever it holds; other providers are swept all the same.
func TestAProviderThatCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, sound, told := &backend{}, &backend{}, &ledger{}
		broken.add(old("a"))
		broken.beforeList = func(context.Context) error { return fmt.Errorf("page 2: %w", errDown) }
		sound.add(old("b"))
		log, text := logged()
		s := sweeper(t, &records{}, map[string]*backend{"broken": broken, "sound": sound},
			func(c *gc.Config) { c.Recorder, c.Logger = told, log })
		plan := mustSweep(t, s)
		if p := plan.Providers[0]; !errors.Is(p.Err, errDown) || p.Instances != nil || p.Listed != 0 {
			t.Errorf("the plan for the broken provider is %+v", p)
		}
		diff(t, "left at the broken one", []string{"inc-a"}, broken.left())
		diff(t, "left at the sound one", []string{}, sound.left())
		diff(t, "told", []string{"collected sound orphan ok", "held sound 0", "swept broken unreadable 0s", "swept sound ok 0s"}, told.said())
		if !slices.Contains(text.lines(), `level=WARN msg="provider not swept: it cannot be listed" provider=broken err="page 2: down"`) {
			t.Errorf("logged: %q", text.lines())
		}
	})
}

// A provider that hangs holds nobody up, and its calls have an end.
func TestAProviderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, sound, start := &backend{}, &backend{}, time.Now()
		hung.add(old("a"))
		hung.beforeList = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		sound.add(old("b"))
		var deleted time.Duration
		sound.beforeDelete = func(context.Context, provider.Ref) error { deleted = time.Since(start); return nil }
		plan := mustSweep(t, sweeper(t, &records{}, map[string]*backend{"hung": hung, "sound": sound}))
		if deleted != 0 || time.Since(start) != 2*time.Minute {
			t.Errorf("the sound one was swept after %v, and both after %v", deleted, time.Since(start))
		}
		if !errors.Is(plan.Providers[0].Err, context.DeadlineExceeded) {
			t.Errorf("the hung one: %v", plan.Providers[0].Err)
		}
	})
}

// Deletions that hang are given up one by one, and a sweep of them ends in time for the next.
func TestDeletionsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, start := &backend{}, time.Now()
		b.add(olds("x", 10)...)
		b.beforeDelete = func(ctx context.Context, _ provider.Ref) error { <-ctx.Done(); return ctx.Err() }
		s := sweeper(t, &records{}, one(b))
		if err := s.Allow("cloud", 10); err != nil {
			t.Fatal(err)
		}
		plan, err := s.Sweep(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Minute {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		for _, v := range plan.Providers[0].Instances {
			if v.Action != gc.Delete || !errors.Is(v.Err, context.DeadlineExceeded) {
				t.Errorf("%s: %s, %v", v.ID, v.Action, v.Err)
			}
		}
	})
}

// A provider whose List heeds no context is given up and not called again before it has returned; the others are swept.
func TestAListThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, sound, told, release, calls := &backend{}, &backend{}, &ledger{}, make(chan struct{}), 0
		hung.add(old("a"))
		hung.beforeList = func(context.Context) error { calls++; <-release; return nil }
		log, text := logged()
		s := sweeper(t, &records{}, map[string]*backend{"hung": hung, "sound": sound}, func(c *gc.Config) { c.Recorder, c.Logger = told, log })
		for i, took := range []time.Duration{2*time.Minute + time.Second, 0, 0} {
			orphan := old(fmt.Sprint("orphan", i))
			sound.add(orphan)
			start := time.Now()
			plan := mustSweep(t, s)
			diff(t, "took", took, time.Since(start))
			diff(t, "told", []string{"collected sound orphan ok", "held sound 0", fmt.Sprint("swept hung unreadable ", took), "swept sound ok 0s"}, told.said())
			if plan.Providers[0].Err == nil {
				t.Error("the hung one has no error")
			}
		}
		want := `level=WARN msg="provider not swept: it cannot be listed" provider=hung err="an earlier call, which was given up, has not returned yet"`
		if lines := text.lines(); !slices.Contains(lines[4:], want) { // of the last sweep, whose two providers are in no order
			t.Errorf("logged at last: %q, want %q among it", lines[4:], want)
		}
		close(release)
		synctest.Wait()
		diff(t, "lists of the hung one", 1, calls)
		mustSweep(t, s)
		diff(t, "left when it has returned", []string{}, hung.left())
	})
}

// A deletion that heeds no context costs its own time, and those behind it none.
func TestADeletionThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, told, release, start := &backend{}, &ledger{}, make(chan struct{}), time.Now()
		b.add(olds("x", 3)...)
		b.beforeDelete = func(context.Context, provider.Ref) error { <-release; return nil }
		s := sweeper(t, &records{}, one(b), func(c *gc.Config) { c.Recorder = told })
		plan := mustSweep(t, s)
		diff(t, "took", 2*time.Minute+time.Second, time.Since(start))
		for _, v := range plan.Providers[0].Instances {
			if v.Err == nil {
				t.Errorf("%s counts as deleted", v.ID)
			}
		}
		diff(t, "told", []string{"collected cloud orphan error", "held cloud 0", "swept cloud ok 2m1s"}, told.said())
		close(release)
		synctest.Wait()
		mustSweep(t, s)
		diff(t, "left", []string{}, b.left())
	})
}

// Errors of providers have no bound of their own.
func TestErrorsAreClipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := strings.Repeat("<p>\xff", 2<<20)
		for _, b := range []*backend{
			{beforeList: func(context.Context) error { return fmt.Errorf("%s %w", page, errDown) }},
			{beforeDelete: func(context.Context, provider.Ref) error { return fmt.Errorf("%s %w", page, errDown) }},
		} {
			b.add(old("x"))
			log, text := logged()
			p := mustSweep(t, sweeper(t, &records{}, one(b), func(c *gc.Config) { c.Logger = log })).Providers[0]
			err := p.Err
			if err == nil {
				err = p.Instances[0].Err
			}
			if !errors.Is(err, errDown) || len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes, the cause: %v", len(err.Error()), errors.Is(err, errDown))
			}
			if n := len(strings.Join(text.lines(), "\n")); n > 4096 {
				t.Errorf("%d bytes were logged", n)
			}
		}
	})
}

// A deletion that fails stops no other, and is tried again by the next sweep, whatever its class.
func TestDeletionsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, told, r := &backend{}, &ledger{}, &records{}
		b.add(old("a"), old("b"), old("c"))
		r.hold("elsewhere", "b") // what the record has under that ID is another one
		h := r.held["b"]
		h.Incarnation = "another"
		r.held["b"] = h
		fails := true
		b.beforeDelete = func(_ context.Context, ref provider.Ref) error {
			if fails && ref.UID != "c" {
				return &provider.Error{Op: "delete", Class: provider.ErrPermanent, Reason: "Forbidden"}
			}
			return nil
		}
		log, text := logged()
		s := sweeper(t, r, one(b), func(c *gc.Config) { c.Recorder, c.Logger = told, log })
		plan := mustSweep(t, s)
		for _, v := range plan.Providers[0].Instances {
			if failed := v.UID != "c"; v.Action != gc.Delete || (v.Err != nil) != failed {
				t.Errorf("%s: %s, %v", v.ID, v.Action, v.Err)
			}
		}
		diff(t, "told", []string{"collected cloud orphan error", "collected cloud orphan ok", "collected cloud stray error",
			"held cloud 0", "swept cloud ok 0s"}, told.said())
		diff(t, "logged", []string{
			`level=WARN msg="deleting an instance that no record holds" provider=cloud id=id-a uid=a incarnation=inc-a kind=orphan`,
			`level=WARN msg="the deletion failed; the next sweep tries again" provider=cloud id=id-a uid=a incarnation=inc-a kind=orphan err="delete: Forbidden"`,
			`level=WARN msg="deleting an instance that no record holds" provider=cloud id=id-b uid=b incarnation=inc-b kind=stray proxy=default/b`,
			`level=WARN msg="the deletion failed; the next sweep tries again" provider=cloud id=id-b uid=b incarnation=inc-b kind=stray proxy=default/b err="delete: Forbidden"`,
			`level=WARN msg="deleting an instance that no record holds" provider=cloud id=id-c uid=c incarnation=inc-c kind=orphan`,
		}, text.lines())
		fails = false
		mustSweep(t, s)
		diff(t, "left", []string{}, b.left())
	})
}

// Without the records nothing is deleted anywhere, at whatever moment they become unreadable.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name string
		from int // the first reading that fails; each of two providers has one for its plan, and one for each deletion
		left int // of two instances at each
		told []string
	}{
		{"at once", 0, 4, []string{"swept a records_unreadable 1s", "swept b records_unreadable 1s"}},
		{"after both plans", 2, 4, []string{"held a 0", "held b 0", "swept a records_unreadable 2s", "swept b records_unreadable 2s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, r, told, traced := &backend{}, &backend{}, &records{}, &ledger{}, &spans{}
				a.add(old("a1"), old("a2"))
				b.add(old("b1"), old("b2"))
				r.before = func(_ context.Context, n int) error {
					time.Sleep(time.Second) // the other one comes here, too
					if n >= c.from {
						return errDown
					}
					return nil
				}
				s := sweeper(t, r, map[string]*backend{"a": a, "b": b}, func(c *gc.Config) { c.Recorder, c.TracerProvider = told, traced })
				plan, err := s.Sweep(t.Context())
				if !errors.Is(err, gc.ErrRecords) || !errors.Is(err, errDown) {
					t.Errorf("the error is %v", err)
				}
				diff(t, "left", c.left, len(a.left())+len(b.left()))
				for _, p := range plan.Providers {
					for _, v := range p.Instances {
						if v.Action == gc.Delete && !errors.Is(v.Err, gc.ErrRecords) {
							t.Errorf("%s: %v", v.ID, v.Err)
						}
					}
				}
				diff(t, "told", c.told, told.said())
				diff(t, "span", codes.Error, traced.ended[0].Code)
			})
		})
	}
}

// A sweep whose caller gives up deletes nothing more, and says of each what was not done.
func TestASweepThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, told := &backend{}, &ledger{}
		b.add(old("a"), old("b"), old("c"))
		ctx, cancel := context.WithCancel(t.Context())
		b.beforeDelete = func(context.Context, provider.Ref) error { cancel(); return nil }
		s := sweeper(t, &records{}, one(b), func(c *gc.Config) { c.Recorder = told })
		plan, err := s.Sweep(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		diff(t, "left", []string{"inc-b", "inc-c"}, b.left())
		for _, v := range plan.Providers[0].Instances {
			if gone := v.UID == "a"; gone != (v.Err == nil) {
				t.Errorf("%s: %v", v.ID, v.Err)
			}
		}
		told.said()
		if _, err := s.Sweep(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		diff(t, "told of a sweep that was given up before it began", []string{}, told.said())
	})
}

// Two sweeps at once are made one after the other; who does not want to wait does not.
func TestSweepsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, at := &backend{}, 0
		b.beforeList = func(context.Context) error {
			if at++; at > 1 {
				t.Error("two sweeps at once")
			}
			time.Sleep(time.Minute)
			at--
			return nil
		}
		s := sweeper(t, &records{}, one(b))
		start := time.Now()
		for range 3 {
			go func() { mustSweep(t, s) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Sweep(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		mustSweep(t, s)
		if time.Since(start) != 4*time.Minute {
			t.Errorf("four sweeps took %v", time.Since(start))
		}
	})
}

// Run waits for a full interval, sweeps in each, and whatever goes wrong in one does not keep it from the next.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed []time.Duration
		b, start := &backend{}, time.Now()
		b.beforeList = func(context.Context) error { listed = append(listed, time.Since(start)); return nil }
		log, text := logged()
		r := &records{before: func(_ context.Context, n int) error {
			if n == 0 {
				return errDown
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		s := sweeper(t, r, one(b), func(c *gc.Config) { c.Logger = log })
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(35 * time.Minute)
		synctest.Wait()
		diff(t, "sweeps", []time.Duration{10 * time.Minute, 20 * time.Minute, 30 * time.Minute}, listed)
		diff(t, "logged", []string{
			`level=WARN msg="garbage collection ended early; the next sweep tries again" err="the records cannot be read: down"`}, text.lines())
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Run ends soon after its context, also in the middle of a sweep.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{beforeList: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		log, text := logged()
		start := time.Now()
		err := sweeper(t, &records{}, one(b), func(c *gc.Config) { c.Logger = log }).Run(ctx)
		if err != nil || time.Since(start) != 11*time.Minute {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		diff(t, "logged of what was told to end", []string{""}, text.lines())
	})
}

// Run ends a moment after its context also where a provider does not heed it.
func TestRunEndsWithoutItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := &backend{beforeList: func(context.Context) error { <-release; return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		start := time.Now()
		err := sweeper(t, &records{}, one(b)).Run(ctx)
		if err != nil || time.Since(start) != 11*time.Minute+time.Second {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		close(release)
	})
}

// Two fleets with the same proxies at one backend: neither touches what is the other's.
func TestTwoFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cloud providertest.Memory
		ours, theirs := cloud.Open("ours"), cloud.Open("theirs")
		for _, fleet := range []string{"ours", "theirs"} {
			for _, uid := range []string{"live", "orphan"} {
				cloud.Plant(provider.Request{Name: provider.Name(fleet, uid), Marks: provider.Marks{Fleet: fleet, UID: uid}, Port: 3128})
			}
		}
		time.Sleep(time.Hour)
		live := func(context.Context) (map[string]gc.Held, error) {
			return map[string]gc.Held{"live": {Key: "default/live", Provider: "cloud", ID: "memory/" + provider.Name("ours", "live")}}, nil
		}
		s, err := gc.New(gc.Config{Fleet: "ours", Providers: map[string]provider.Provider{"cloud": ours}, Live: live})
		if err != nil {
			t.Fatal(err)
		}
		plan := mustSweep(t, s)
		diff(t, "listed", 2, plan.Providers[0].Listed)
		uids := func(p provider.Provider) (uids []string) {
			list, err := p.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range list {
				uids = append(uids, in.Marks.UID)
			}
			slices.Sort(uids)
			return uids
		}
		diff(t, "ours", []string{"live"}, uids(ours))
		diff(t, "theirs", []string{"live", "orphan"}, uids(theirs))
	})
}

func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traced, a, b, c := &spans{}, &backend{}, &backend{}, &backend{}
		a.add(old("a"), old("b"))
		a.beforeDelete = func(_ context.Context, ref provider.Ref) error {
			if ref.UID == "b" {
				return errDown
			}
			return nil
		}
		b.add(olds("x", 5)...)
		c.beforeList = func(context.Context) error { return errDown }
		s := sweeper(t, &records{}, map[string]*backend{"a": a, "b": b, "c": c}, func(c *gc.Config) { c.TracerProvider = traced })
		mustSweep(t, s)
		if len(traced.ended) != 1 || traced.ended[0].Name != "gc.sweep" || traced.ended[0].Code != codes.Unset {
			t.Fatalf("spans: %+v", traced.ended)
		}
		diff(t, "attributes", map[string]int64{"gc.listed": 7, "gc.deleted": 1, "gc.failed": 1, "gc.held": 5, "gc.unreadable": 1},
			traced.ended[0].Attributes)
	})
}
