package gc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
)

// TestBrake says how much may go at once: three, or a fifth of what the provider has.
func TestBrake(t *testing.T) {
	for _, c := range []struct {
		name          string
		live, orphans int
		also          func(*backend, *records)
		left          int
	}{
		{name: "all three", orphans: 3, left: 0},
		{name: "all four", orphans: 4, left: 4},
		{name: "a fifth", live: 16, orphans: 4, left: 16},
		{name: "a little more than a fifth", live: 15, orphans: 4, left: 19},
		{name: "twice as many as yesterday", live: 10, orphans: 10, left: 20},
		{name: "strays count", live: 10, orphans: 2, left: 14, also: func(b *backend, r *records) {
			for _, uid := range []string{"live00", "live01"} {
				stray := old(uid)
				stray.ID, stray.Incarnation = "stray-"+uid, "stray-"+uid
				b.add(stray)
			}
		}},
		{name: "what goes already does not count", orphans: 3, left: 5, also: func(b *backend, _ *records) {
			for _, in := range olds("going", 5) {
				in.State = provider.Terminating
				b.add(in)
			}
		}},
		{name: "what is kept does not count", orphans: 3, left: 5, also: func(b *backend, _ *records) {
			for _, in := range olds("young", 5) {
				in.Created = in.Created.AddDate(1, 0, 0)
				b.add(in)
			}
		}},
		{name: "what others have does not make a part smaller", live: 10, orphans: 5, left: 115, also: func(b *backend, _ *records) {
			for _, in := range olds("theirs", 100) {
				in.Marks.Fleet = "theirs"
				b.add(in)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, r := &backend{}, &records{}
				b.add(olds("live", c.live)...)
				for _, in := range olds("live", c.live) {
					r.hold("cloud", in.Marks.UID)
				}
				b.add(olds("orphan", c.orphans)...)
				if c.also != nil {
					c.also(b, r)
				}
				plan := mustSweep(t, sweeper(t, r, one(b)))
				diff(t, "left", c.left, len(b.left()))
				diff(t, "braked", len(b.deletes) == 0, plan.Providers[0].Braked)
				for _, v := range plan.Providers[0].Instances {
					if want := plan.Providers[0].Braked; (v.Action == gc.Hold) != want && v.Action != gc.Keep {
						t.Errorf("%s: %s, %s", v.ID, v.Action, v.Reason)
					}
				}
			})
		})
	}
}

// A store that assigns new UIDs under the same identity, as a restored backup may, does not cost the fleet, however often it
// is swept; what is held is said each time. The other provider is swept as ever.
func TestNewUIDsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sound, r, told := &backend{}, &backend{}, &records{}, &ledger{}
		b.add(olds("before", 12)...)
		b.add(olds("restored", 12)...)
		for _, in := range olds("restored", 12) {
			r.hold("cloud", in.Marks.UID)
		}
		sound.add(old("orphan"))
		log, text := logged()
		s := sweeper(t, r, map[string]*backend{"cloud": b, "sound": sound}, func(c *gc.Config) { c.Recorder, c.Logger = told, log })
		mustSweep(t, s)
		diff(t, "left at the sound one", []string{}, sound.left())
		diff(t, "told", []string{"collected sound orphan ok", "held cloud 12", "held sound 0", "swept cloud braked 0s", "swept sound ok 0s"}, told.said())
		for range 5 {
			mustSweep(t, s)
		}
		diff(t, "left", 24, len(b.left()))
		var loud int
		for _, line := range text.lines() {
			if line == `level=ERROR msg="garbage collection is braked: it would delete too much of what the provider has, and deletes nothing of it" `+
				`provider=cloud held=12 listed=24 allowed=0 first="[id-before00 id-before01 id-before02 id-before03 id-before04 id-before05 `+
				`id-before06 id-before07 id-before08 id-before09]"` {
				loud++
			}
		}
		if loud != 6 {
			t.Errorf("the brake was told %d times in 6 sweeps:\n%s", loud, strings.Join(text.lines(), "\n"))
		}
	})
}

// What an operator allows holds for one sweep and for so many deletions.
func TestAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, told := &backend{}, &ledger{}
		s := sweeper(t, &records{}, one(b), func(c *gc.Config) { c.Recorder = told })
		allow := func(n int) {
			if err := s.Allow("cloud", n); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func(what string, left int, braked bool, allowed int) {
			t.Helper()
			told.said()
			p := mustSweep(t, s).Providers[0]
			diff(t, what+": left", left, len(b.left()))
			diff(t, what+": braked", braked, p.Braked)
			diff(t, what+": allowed", allowed, p.Allowed)
			held := 0
			if braked {
				held = left
			}
			if said := strings.Join(told.said(), "\n"); !strings.Contains(said, fmt.Sprintf("held cloud %d\n", held)) {
				t.Errorf("%s: told\n%s", what, said)
			}
		}
		b.add(olds("x", 6)...)
		sweep("nobody has allowed anything", 6, true, 0)
		allow(5)
		sweep("fewer than there are", 6, true, 5)
		sweep("what was allowed is used up", 6, true, 0)
		allow(5)
		allow(6)
		for range 2 {
			plan, err := s.Plan(t.Context())
			if err != nil || plan.Providers[0].Braked || plan.Providers[0].Allowed != 6 {
				t.Errorf("planned: %+v, %v", plan, err)
			}
		}
		sweep("all that there are", 0, false, 6)
		b.add(olds("y", 6)...)
		sweep("the next six", 6, true, 0)

		b.mu.Lock()
		b.instances = b.instances[:2]
		b.mu.Unlock()
		allow(6)
		sweep("nothing to allow", 0, false, 6)
		b.add(olds("z", 6)...)
		sweep("and used up all the same", 6, true, 0)

		allow(6)
		b.beforeList = func(context.Context) error { return errDown }
		mustSweep(t, s)
		b.beforeList = nil
		sweep("used up by a sweep that could not list", 6, true, 0)
	})
}

// What is allowed at one provider is allowed at no other.
func TestAllowIsForOneProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &backend{}, &backend{}
		a.add(olds("a", 5)...)
		b.add(olds("b", 5)...)
		s := sweeper(t, &records{}, map[string]*backend{"a": a, "b": b})
		if err := s.Allow("a", 5); err != nil {
			t.Fatal(err)
		}
		mustSweep(t, s)
		diff(t, "left", []int{0, 5}, []int{len(a.left()), len(b.left())})

		err := s.Allow("c", 1)
		if !errors.Is(err, gc.ErrUnknownProvider) {
			t.Errorf("an unknown provider: %v", err)
		}
		diff(t, "error", `gc: no such provider: "c"; there are: a, b`, fmt.Sprint(err))
		if err := s.Allow("a", 0); err == nil {
			t.Error("no deletion at all was allowed")
		}
	})
}

// Allow is for the next sweep that begins, whoever makes it, and may be called at any moment.
func TestAllowDuringASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{}
		b.add(olds("x", 5)...)
		s := sweeper(t, &records{}, one(b))
		b.beforeList = func(context.Context) error { b.beforeList = nil; return s.Allow("cloud", 5) }
		mustSweep(t, s)
		diff(t, "left by the sweep that was under way", 5, len(b.left()))
		mustSweep(t, s)
		diff(t, "left by the next", 0, len(b.left()))
	})
}

// A provider that lists instances more than once has no more of them: the brake holds, and nothing is deleted twice.
func TestRepetitionsDoNotLoosenTheBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := &backend{}, &records{}
		for _, in := range olds("live", 15) {
			r.hold("cloud", in.Marks.UID)
		}
		b.add(olds("live", 15)...)
		b.add(olds("live", 15)...)
		b.add(olds("orphan", 5)...)
		p := mustSweep(t, sweeper(t, r, one(b))).Providers[0]
		if p.Listed != 20 || len(p.Instances) != 20 || !p.Braked || len(b.deletes) > 0 {
			t.Errorf("listed %d, %d verdicts, braked %v, deleted %v", p.Listed, len(p.Instances), p.Braked, b.deletes)
		}
	})
}

// What is listed twice is deleted once, and not at all if one of the entries speaks for it.
func TestRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{}
		b.add(old("a"), old("a"))
		goes := old("b")
		goes.State = provider.Terminating
		b.add(old("b"), goes, old("b"))
		p := mustSweep(t, sweeper(t, &records{}, one(b))).Providers[0]
		diff(t, "deletes", []provider.Ref{{ID: "id-a", UID: "a", Incarnation: "inc-a"}}, b.deletes)
		diff(t, "verdict", gc.Terminating, p.Instances[1].Reason)
	})
}
