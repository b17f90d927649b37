package lease_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// large has so many proxies that lanes pay, and so many selectors and targets that there are many.
func large() world {
	w := world{targets: []string{""}, recent: 60, attributes: []choice{
		{"country", []string{"nl", "de", "be", "fr"}},
		{"tier", []string{"cheap", "dear", "free"}},
		{"rack", []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6"}},
	}}
	for i := range 60 {
		w.names = append(w.names, fmt.Sprintf("proxy-%02d", i))
	}
	for i := range 8 {
		w.targets = append(w.targets, fmt.Sprintf("target-%d", i))
		w.sessions = append(w.sessions, fmt.Sprintf("session-%d", i))
	}
	return w
}

// TestWalkOverLanes holds the store against the model where lanes are made, dropped because nobody uses them, and dropped
// because there are too many. What they hold is checked as well.
func TestWalkOverLanes(t *testing.T) {
	for _, kind := range []struct {
		name                   string
		perProxy, fewest, idle int
	}{
		{"room for all", 1000, 1 << 16, 1 << 16},
		{"idle ones go", 1000, 1 << 16, 5},
		{"room for few", 1, 100, 1 << 16},
		{"room for none", 0, 0, 5},
	} {
		t.Run(kind.name, func(t *testing.T) {
			made, dropped := 0, 0
			for n := range times(t, "WALK", 3) / 3 {
				policy := []lease.Policy{leastBusy{}, fastest{}, lease.Spread{}, lease.Fastest{}}[n%4]
				synctest.Test(t, func(t *testing.T) {
					m := newMemory(t, lease.Config{Policy: policy})
					m.Bound(kind.perProxy, kind.fewest, kind.idle)
					w := &walker{large(), t, rand.New(rand.NewPCG(3, uint64(n))), m, newModel(policy), []string{"never granted"}, map[string]int{}}
					more, fewer := w.overLanes(1000)
					made, dropped = made+more, dropped+fewer
					w.forgetsAll()
				})
			}
			if want := kind.perProxy > 0; made > 0 != want {
				t.Errorf("%d lanes were made", made)
			}
			if want := kind.name != "room for all" && kind.perProxy > 0; dropped > 0 != want {
				t.Errorf("%d lanes were dropped", dropped)
			}
		})
	}
}

// overLanes takes some steps, and counts how often the number of lanes grew and how often it shrank.
func (w *walker) overLanes(steps int) (more, fewer int) {
	for range w.names {
		w.set()
	}
	before, _ := w.store.Lanes()
	for range steps {
		w.step()
		now, _ := w.store.Lanes()
		switch {
		case now > before:
			more++
		case now < before:
			fewer++
		}
		before = now
	}
	return more, fewer
}

// times is how often something is done: as often as a variable says in long runs, and otherwise as often as will do.
func times(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	said := os.Getenv(variable)
	if said == "" {
		return otherwise
	}
	n, err := strconv.Atoi(said)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return max(n, otherwise)
}

// TestNewTargetsAndSelectors makes sure that clients who always ask for something new do not fill the memory.
func TestNewTargetsAndSelectors(t *testing.T) {
	requests := 60_000
	if times(t, "WALK", 0) > 0 {
		requests = 1_000_000
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, lease.Config{})
		for i := range 40 {
			p := proxy(fmt.Sprintf("proxy-%02d", i), 10)
			p.Attributes = map[string]string{}
			for bit := range 20 {
				p.Attributes[fmt.Sprint(bit)] = "yes"
			}
			m.Set(p)
		}
		c := crawler{t, m}
		ask := func(i int) {
			r := lease.Request{Target: fmt.Sprint("target ", i), Selector: map[string]string{}}
			for bit := range 20 { // no two are alike, and all proxies match
				if i>>bit&1 == 1 {
					r.Selector[fmt.Sprint(bit)] = "yes"
				}
			}
			if i%3 == 0 {
				r.Selector["nobody has this"] = fmt.Sprint(i)
			}
			g, err := m.Acquire(t.Context(), r)
			if (err != nil) != (i%3 == 0) {
				t.Fatalf("%+v: %v", r, err)
			}
			for _, l := range g.Leases {
				c.reports(l, lease.Banned, "")
				c.releases(l)
			}
			time.Sleep(time.Second) // so the last thousands are remembered
		}
		var first uint64
		for i := range requests {
			ask(i)
			if i == 20_000 {
				first = heap()
			}
		}
		if last := heap(); last > first*3/2 {
			t.Errorf("%d MB are in use after %d requests, %d MB after 20,000", last>>20, requests, first>>20)
		}
		if n := m.Remembered(); n > 100_000 {
			t.Errorf("the store remembers %d things", n)
		}
		if lanes, entries := m.Lanes(); entries+8*lanes > 1<<16 {
			t.Errorf("%d lanes have %d entries", lanes, entries)
		}
	})
}

// heap is how much memory is in use.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestWaitersBeyondTheLanes makes sure that those who wait with more selectors than there is room for lanes are served
// all the same, and in order.
func TestWaitersBeyondTheLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := proxy("a", 1)
		a.Attributes = map[string]string{}
		for i := range 12 {
			a.Attributes[fmt.Sprint(i)] = "yes"
		}
		m := newMemory(t, lease.Config{}, a)
		m.Bound(0, 40, 256)
		c := crawler{t, m}
		out := c.gets(anyProxy, "a")
		var all []*waiting
		for round := range 2 {
			for i := range 12 {
				all = append(all, c.waits(t.Context(), lease.Request{Selector: map[string]string{fmt.Sprint(i): "yes"}, Wait: time.Hour}))
			}
			if lanes, _ := m.Lanes(); round == 0 && lanes > 4 {
				t.Errorf("%d lanes where there is room for 4", lanes)
			}
		}
		other := c.waits(t.Context(), lease.Request{Selector: map[string]string{"0": "no"}, Wait: time.Hour})
		for i, w := range all {
			c.releases(out)
			out = c.got(w, "a", time.Now())
			if i+1 < len(all) {
				c.stillWaits(all[i+1])
			}
			if err := m.Flaw(); err != nil {
				t.Fatal(err)
			}
		}
		c.stillWaits(other)
		a.Attributes = map[string]string{"0": "no"}
		a.MaxLeases = 2
		m.Set(a)
		c.got(other, "a", time.Now())
	})
}
