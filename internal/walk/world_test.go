package walk

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// One tick of the world is 5 s of the bubble that a history runs in.
const tick = 5 * time.Second

// nature is how badly the world behaves. Times are in ticks.
type nature struct {
	fault  float64 // a call is refused, or made and its answer lost
	late   int     // a create or delete whose answer was lost takes effect up to so much later
	lag    int     // Get answers as of up to so long ago, back and forth
	fail   float64 // an accepted create comes to nothing
	class  provider.Class
	refuse error   // answer of every create
	crash  float64 // an instance stops soon after it runs
	deny   float64 // for a while Get is forbidden, and Delete is not
	local  bool    // the backend lives in the process that asks: nothing is late, and Settle is nothing
	fetch  float64 // a create must wait for the transfer of an image
}

// inst is one instance as it truly is.
type inst struct {
	provider.Instance
	prov             string
	built            string // the inputs that it was made from
	ready, stop, end int    // when it runs, stops and is gone; 0: not yet decided
	doomed           error  // the create comes to nothing, for this reason
	abandoned        bool   // somebody skipped its cleanup
}

// seen is what an all-knowing reader would have seen of one ID from a time on.
type seen struct {
	at   int
	inst *provider.Instance
	fail error
}

// world is the backend of all providers.
type world struct {
	nature
	rng     *rand.Rand
	now     int
	seq     int
	insts   map[string]*inst  // by provider + ":" + ID
	log     map[string][]seen // by the same key
	tokens  map[string]bool   // of creates that made something: none is made for the same token again
	twice   bool              // a token came with a second intent
	later   map[int][]func()
	skipped map[string]int  // by UID: when its cleanup was skipped
	probed  map[string]bool // by incarnation: it was found healthy
	denied  int             // until this tick Get is forbidden
	made    int             // instances
	asked   int             // creates that were sent
	killed  func(*thread, *inst)
}

func newWorld(rng *rand.Rand, n nature) *world {
	return &world{nature: n, rng: rng, insts: map[string]*inst{}, log: map[string][]seen{},
		tokens: map[string]bool{}, later: map[int][]func(){}, skipped: map[string]int{}, probed: map[string]bool{}}
}

// soon is one to three ticks from now.
func (w *world) soon() int { return w.now + 1 + w.rng.IntN(3) }

// note logs what can be seen of an ID now.
func (w *world) note(key string, fail error) {
	s := seen{at: w.now, fail: fail}
	if i := w.insts[key]; i != nil {
		c := i.Instance
		s.inst = &c
	}
	w.log[key] = append(w.log[key], s)
}

// see returns what some replica of the backend shows of an ID.
func (w *world) see(key string, lag int) (s seen) {
	for _, x := range slices.Backward(w.log[key]) {
		if x.at <= w.now-lag {
			return x
		}
	}
	return s
}

// tick lets time pass.
func (w *world) tick() {
	time.Sleep(tick)
	w.now++
	for _, do := range w.later[w.now] {
		do()
	}
	delete(w.later, w.now)
	if w.rng.Float64() < w.deny {
		w.denied = w.now + 1 + w.rng.IntN(20)
	}
	for _, k := range slices.Sorted(maps.Keys(w.insts)) {
		w.age(k, w.insts[k])
	}
}

func (w *world) age(key string, i *inst) {
	switch {
	case i.end != 0 && w.now >= i.end:
		delete(w.insts, key)
		w.note(key, i.doomed)
	case i.State == provider.Provisioning && w.now >= i.ready:
		i.State, i.Host = provider.Running, "10.0.0.1"
		w.note(key, nil)
	case i.State == provider.Running && i.stop != 0 && w.now >= i.stop:
		i.State = provider.Stopped
		w.note(key, nil)
	}
}

// make creates an instance unless its name is taken.
func (w *world) make(prov, id string, r provider.Request, sent int) {
	key := prov + ":" + id
	known := w.tokens[r.Token]
	w.twice = w.twice || known
	if w.insts[key] != nil || known {
		return
	}
	w.tokens[r.Token] = r.Token != "" // the machine by the letter sends none
	w.seq++
	w.made++
	i := &inst{prov: prov, built: builtFrom(prov, r), ready: w.soon(), Instance: provider.Instance{ID: id,
		Incarnation: fmt.Sprint("i", w.seq), Marks: r.Marks, State: provider.Provisioning}}
	if at, ok := w.skipped[r.Marks.UID]; ok && sent <= at {
		i.abandoned = true
	}
	switch x := w.rng.Float64(); {
	case x < w.fail:
		i.doomed = &provider.Error{Op: "get", Class: w.failure(), Reason: "Doomed", CreateFailed: true}
		i.end, i.ready = i.ready, i.ready+1
	case x < w.fail+w.crash:
		i.stop = i.ready + 1 + w.rng.IntN(3)
	}
	w.insts[key] = i
	w.note(key, nil)
}

func (w *world) failure() provider.Class {
	if w.class != "" {
		return w.class
	}
	return []provider.Class{provider.ErrTransient, provider.ErrQuotaExceeded, provider.ErrPermanent}[w.rng.IntN(3)]
}

// builtFrom names what an instance is made from.
func builtFrom(prov string, r provider.Request) string {
	return fmt.Sprintf("%s %+v %d %q %q", prov, r.Placement, r.Port, r.CloudInit.Reveal(), r.Credentials.Password.Reveal())
}

// asksFor names what a spec asks for.
func asksFor(s proxy.Spec, in proxy.Inputs) string {
	p := s.Placement
	return builtFrom(s.Provider, provider.Request{Placement: provider.Placement{Zone: p.Zone, MachineType: p.MachineType},
		Port: int(s.Port), CloudInit: in.CloudInit, Credentials: provider.Credentials{Password: in.Password}})
}

// fake is a provider as one thread of a process calls it.
type fake struct {
	*world
	t    *thread
	name string
}

func (f *fake) Plan(r provider.Request) (string, error) {
	if r.Placement.Zone == "" {
		return "", provider.Missing("plan", "spec.placement.zone")
	}
	return r.Placement.Zone + "/" + r.Name, nil
}

func (f *fake) Delays() provider.Delays {
	if f.local {
		return provider.Delays{Call: 4 * tick}
	}
	return provider.Delays{Call: 4 * tick, Settle: 12 * tick}
}

// call makes one call, which may be refused, or be made and its answer lost.
func (f *fake) call(ctx context.Context, op string, do func() error) error {
	return f.t.effect(func() error {
		if d, ok := ctx.Deadline(); ok && time.Now().After(d) {
			return context.DeadlineExceeded
		}
		x := f.rng.Float64()
		if x < f.fault/2 {
			return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: "Refused"}
		}
		err := do()
		if x < f.fault {
			return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: "AnswerLost"}
		}
		return err
	})
}

// delay may put off what a call does.
func (f *fake) delay(do func()) bool {
	if f.late == 0 || f.rng.Float64() >= f.fault {
		return false
	}
	at := f.now + 1 + f.rng.IntN(f.late)
	f.later[at] = append(f.later[at], do)
	return true
}

func (f *fake) Create(ctx context.Context, r provider.Request) (got provider.Instance, err error) {
	id, _ := f.Plan(r)
	key := f.name + ":" + id
	err = f.call(ctx, "create", func() error {
		f.asked++
		if f.refuse != nil {
			return f.refuse
		}
		if f.insts[key] == nil && f.rng.Float64() < f.fetch {
			got = provider.Instance{ID: id, Marks: r.Marks, State: provider.Provisioning, Reason: "FetchingImage"}
			return nil
		}
		sent := f.now
		if f.delay(func() { f.make(f.name, id, r, sent) }) {
			return &provider.Error{Op: "create", Class: provider.ErrTransient, Reason: "AnswerLost"}
		}
		before := f.made
		if f.make(f.name, id, r, sent); f.made > before {
			got = f.insts[key].Instance
			return nil
		}
		s := f.see(key, f.rng.IntN(f.lag+1))
		if s.inst == nil {
			return &provider.Error{Op: "create", Class: provider.ErrTransient, Reason: "NameTakenByWhatCannotBeSeen"}
		}
		got = *s.inst
		return nil
	})
	return got, err
}

func (f *fake) Get(ctx context.Context, r provider.Ref) (got provider.Instance, err error) {
	err = f.call(ctx, "get", func() error {
		if f.now < f.denied {
			return &provider.Error{Op: "get", Class: provider.ErrPermanent, Reason: "Forbidden"}
		}
		switch s := f.see(f.name+":"+r.ID, f.rng.IntN(f.lag+1)); {
		case s.inst != nil && s.inst.Marks.UID == r.UID:
			got = *s.inst
			return nil
		case s.inst == nil && s.fail != nil:
			return s.fail
		}
		return &provider.Error{Op: "get", Class: provider.ErrNotFound}
	})
	return got, err
}

func (f *fake) Delete(ctx context.Context, r provider.Ref) error {
	key := f.name + ":" + r.ID
	by := *f.t
	do := func() {
		i := f.insts[key]
		if i == nil || i.Marks.UID != r.UID || i.end != 0 && i.doomed == nil || r.Incarnation != "" && r.Incarnation != i.Incarnation ||
			f.see(key, f.rng.IntN(f.lag+1)).inst == nil { // a delete may miss what cannot be seen yet
			return
		}
		f.killed(&by, i)
		i.State, i.end, i.doomed = provider.Terminating, f.soon(), nil
		f.note(key, nil)
	}
	return f.call(ctx, "delete", func() error {
		if f.delay(do) {
			return &provider.Error{Op: "delete", Class: provider.ErrTransient, Reason: "AnswerLost"}
		}
		do()
		return nil
	})
}

func (f *fake) List(ctx context.Context) (list []provider.Instance, err error) {
	err = f.call(ctx, "list", func() error {
		lag := f.rng.IntN(f.lag + 1)
		for _, key := range slices.Sorted(maps.Keys(f.log)) {
			if s := f.see(key, lag); s.inst != nil && strings.HasPrefix(key, f.name+":") {
				list = append(list, *s.inst)
			}
		}
		return nil
	})
	return list, err
}
