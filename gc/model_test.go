package gc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
)

// dice draws what happens in a world from bytes, so that a fuzzer can steer it.
type dice struct{ data []byte }

// n draws a number below most.
func (d *dice) n(most int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % most
}

func pick[T any](d *dice, all ...T) T { return all[d.n(len(all))] }

// world is a sweeper amid records and instances that need not make sense, and a model of what may be deleted.
type world struct {
	*testing.T
	*dice
	records  *records
	backends map[string]*backend
	sweeper  *gc.Sweeper
	allowed  map[string]int
	broken   map[string]bool // providers that cannot be listed
	blind    bool            // the records cannot be read
	made     int
}

func newWorld(t *testing.T, data []byte) *world {
	w := &world{T: t, dice: &dice{data}, records: &records{held: map[string]gc.Held{}}, backends: map[string]*backend{},
		allowed: map[string]int{}, broken: map[string]bool{}}
	for _, name := range []string{"a", "b"} {
		w.backends[name] = &backend{beforeList: func(context.Context) error {
			if w.broken[name] {
				return errDown
			}
			return nil
		}}
	}
	w.records.before = func(context.Context, int) error {
		if w.blind {
			return errDown
		}
		return nil
	}
	w.sweeper = sweeper(t, w.records, w.backends)
	return w
}

// step lets one thing happen.
func (w *world) step() {
	switch w.n(12) {
	case 0, 1:
		w.write()
	case 2:
		delete(w.records.held, w.uid())
	case 3, 4, 5, 6:
		w.make()
	case 7:
		time.Sleep(time.Duration(w.n(5)) * 3 * time.Minute)
	case 8:
		name, most := w.name(), 1+w.n(8)
		w.allowed[name] = most
		if err := w.sweeper.Allow(name, most); err != nil {
			w.Error(err)
		}
	case 9:
		w.broken[w.name()] = w.n(4) == 0
		w.blind = w.n(8) == 0
	default:
		w.sweep()
	}
}

func (w *world) name() string { return pick(w.dice, "a", "b") }
func (w *world) uid() string  { return pick(w.dice, "u", "v", "w", "") }
func (w *world) id() string   { return pick(w.dice, "1", "2", "3", "") }

// write writes a record, often one that holds what is there.
func (w *world) write() {
	h := gc.Held{Key: "k", Provider: w.name(), ID: w.id(), Incarnation: pick(w.dice, "", "no such"), External: w.n(6) == 0, Deleting: w.n(6) == 0}
	uid := w.uid()
	if b := w.backends[h.Provider]; len(b.instances) > 0 && w.n(2) == 0 {
		in := b.instances[w.n(len(b.instances))]
		uid, h.ID, h.Incarnation = in.Marks.UID, in.ID, in.Incarnation
	}
	w.records.held[uid] = h
}

// make makes an instance.
func (w *world) make() {
	w.made++
	in := provider.Instance{ID: w.id(), Incarnation: fmt.Sprint("i", w.made), Created: time.Now(),
		Marks: provider.Marks{Fleet: fleetID, UID: w.uid()}, State: pick(w.dice, provider.Running, provider.Stopped, provider.Provisioning)}
	switch w.n(16) {
	case 0:
		in.Created = time.Time{}
	case 1:
		in.Marks.Fleet = "theirs"
	case 2:
		in.Incarnation = ""
	case 3:
		in.State = provider.Terminating
	case 4:
		in.Created = in.Created.Add(time.Hour)
	}
	b := w.backends[w.name()]
	for range 1 + w.n(4)/3 { // some are listed twice
		b.add(in)
	}
}

// sweep makes a sweep and compares what is left with what the model leaves.
func (w *world) sweep() {
	want := map[string][]provider.Instance{}
	for name, b := range w.backends {
		want[name] = w.after(name, slices.Clone(b.instances))
	}
	planned, planErr := w.sweeper.Plan(w.Context())
	done, err := w.sweeper.Sweep(w.Context())
	if w.blind {
		if err == nil && !(w.broken["a"] && w.broken["b"]) {
			w.Error("a sweep without records has no error")
		}
	} else if planErr != nil || err != nil {
		w.Errorf("plan: %v, sweep: %v", planErr, err)
	} else {
		planned.At = done.At
		for i := range planned.Providers { // errors have no equality
			planned.Providers[i].Err, done.Providers[i].Err = nil, nil
		}
		diff(w.T, "what was done as against what was planned", planned, done)
	}
	for name, b := range w.backends {
		if d := cmp.Diff(want[name], b.instances, cmpopts.EquateEmpty()); d != "" {
			w.Errorf("left at %s (-want +got):\n%s", name, d)
		}
	}
	clear(w.allowed)
}

// after is what a sweep has to leave.
func (w *world) after(name string, all []provider.Instance) []provider.Instance {
	if w.broken[name] || w.blind {
		return all
	}
	type identity struct{ id, incarnation string }
	var keep []provider.Instance
	ours, goes := map[identity]bool{}, map[identity]bool{}
	for _, in := range all {
		which := identity{in.ID, in.Incarnation}
		if in.Marks.Fleet == fleetID {
			ours[which] = true
		}
		if !w.deletable(in) || w.owned(name, in) {
			keep = append(keep, in)
		} else {
			goes[which] = true
		}
	}
	if gone := len(goes); gone > 3 && float64(gone) > 0.2*float64(len(ours)) && gone > w.allowed[name] {
		return all
	}
	return keep
}

func (w *world) deletable(in provider.Instance) bool {
	known := in.Marks.UID != "" && in.Incarnation != "" && !in.Created.IsZero()
	return known && in.Marks.Fleet == fleetID && in.State != provider.Terminating && time.Since(in.Created) >= 10*time.Minute
}

// owned says whether a record has or may come to have an instance.
func (w *world) owned(name string, in provider.Instance) bool {
	h, there := w.records.held[in.Marks.UID]
	if !there {
		return false
	}
	itself := h.ID != "" && (h.Provider == name && h.ID == in.ID || h.Incarnation == in.Incarnation)
	mayMeet := h.Incarnation == "" && h.ID != "" || h.ID == "" && !h.External
	return h.Deleting || itself || mayMeet
}

func (w *world) run() {
	for len(w.data) > 0 && !w.Failed() {
		w.step()
	}
	w.sweep()
}

func TestModel(t *testing.T) {
	deletes := 0
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, data)
			w.run()
			for _, b := range w.backends {
				deletes += len(b.deletes)
				if slices.ContainsFunc(b.deletes, func(r provider.Ref) bool { return r.Incarnation == "" }) {
					t.Error("a deletion without an incarnation")
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if deletes < 300 {
		t.Errorf("%d deletions show nothing", deletes)
	}
	t.Logf("%d deletions", deletes)
}

// FuzzModel is TestModel for any history.
func FuzzModel(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 9, 0, 7, 4, 11, 0, 0, 1, 2, 2, 11})
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1000 // a longer history shows nothing that a shorter one does not
		synctest.Test(t, func(t *testing.T) { newWorld(t, data[:min(len(data), most)]).run() })
	})
}
