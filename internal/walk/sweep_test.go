package walk

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// What the deletions of sweepers are counted as.
const (
	collected = "collected" // nobody's; no flaw
	met       = "met"       // a create met it after the sweep had last read the records, and before the deletion; no flaw
	sweptLive = "sweptLive" // it was live when the sweep last read the records
)

// swept are kinds of histories in which every process sweeps at any moment between its passes, with faults, crashes and
// lagging lists. The minimum age is nothing: the order of list and records has to protect what is live by itself. sound says
// which flaws the sweeper is there for, so that only their traces in the end count.
var swept = map[string]struct {
	setting
	sound map[string]bool
}{
	"calm":                          {setting: base(func(*setting) {})},
	"rough, two leaders":            {setting: base(func(s *setting) { s.nature, s.leaders = rough, 2 })},
	"rough, two leaders, same UIDs": {setting: base(func(s *setting) { s.nature, s.leaders, s.stable = rough, 2, true })},
	"rough, two leaders, proxies":   {setting: base(func(s *setting) { s.nature, s.leaders, s.proxies, s.steps = rough, 2, 3, 1600 })},
	"permanent Get":                 {setting: base(func(s *setting) { s.nature, s.leaders = denied, 2 })},
	"in one process, over restarts": {setting: base(func(s *setting) { s.nature, s.stable, s.stale = inProcess, true, 0 })},
	// What no contract of the reconciler can prevent: a create that takes effect after its time was over.
	"delays without a bound": {base(func(s *setting) { s.nature, s.leaders, s.late = rough, 2, 80 }),
		map[string]bool{doubled: true, orphaned: true}},
	"delays without a bound, same UIDs": {base(func(s *setting) { s.nature, s.leaders, s.late, s.stable = rough, 2, 80, true }),
		map[string]bool{doubled: true, orphaned: true}},
}

// TestSwept says that a sweep at any moment deletes nothing live, and that after one in the end nothing unowned is left.
func TestSwept(t *testing.T) {
	hasher := fleet.NewHasher(fleetID)
	for name, s := range swept {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum, n := tally{}, histories()/3
			for seed := range uint64(n) {
				one := runSwept(t, seed, s.setting, hasher, nil)
				sum.add(one)
				maps.DeleteFunc(one, func(kind string, _ int) bool { return s.sound[kind] || kind == collected || kind == met })
				if one.flaws() > 0 {
					t.Errorf("seed %d: %v", seed, one)
					runSwept(t, seed, s.setting, hasher, t.Logf)
					return
				}
			}
			t.Logf("%d histories, %v", n, sum)
			if s.sound != nil && sum[collected] == 0 {
				t.Error("nothing was ever collected")
			}
		})
	}
}

func runSwept(t *testing.T, seed uint64, s setting, hasher *fleet.Hasher, trace func(string, ...any)) (result tally) {
	synctest.Test(t, func(*testing.T) { result = walkSwept(seed, s, hasher, trace) })
	return result
}

// walkSwept is one history with sweeps in it, and some in its quiet end.
func walkSwept(seed uint64, s setting, hasher *fleet.Hasher, trace func(string, ...any)) tally {
	b := &broom{known: map[*proxy.Proxy]map[string]bool{}}
	s.machine = b.machine
	h := begin(seed, s, hasher)
	h.trace = trace
	b.history, b.all = h, slices.Clone(h.keys)
	h.world.killed = b.kill
	for range s.leaders {
		h.procs = append(h.procs, h.boot(h.lifetime(), s.stale, s.skew))
	}
	for range s.steps {
		h.step()
	}
	for _, p := range h.procs {
		p.kill()
	}
	h.calm()
	h.settle(500)
	for range 3 { // lists lag, and what is deleted takes its time
		b.sweepOnce()
		h.settle(30)
	}
	h.verdict()
	return h.tally
}

// broom sweeps within a history.
type broom struct {
	*history
	all []proxy.Key // in its quiet end a history has only some in its keys
	// known is what a sweep goes by when it deletes, by the mark of the reading: the incarnations that were live then.
	known map[*proxy.Proxy]map[string]bool
}

// machine is the real one, with a sweep before some of its passes.
func (b *broom) machine(h *history, c *cache, providers map[string]provider.Provider) pass {
	reconcile := real(h, c, providers)
	return func(ctx context.Context, k proxy.Key) (time.Duration, error) {
		if h.rng.IntN(8) == 0 {
			b.sweep(c.t, 0)
		}
		return reconcile(ctx, k)
	}
}

// sweepOnce sweeps in a process of its own, which does not die. An operator has looked at the plan.
func (b *broom) sweepOnce() {
	p := &process{left: -1}
	p.spawn(b.rng, func(t *thread) func() { return func() { b.sweep(t, 100) } })
	p.threads[0].pass()
	p.kill()
}

// sweep sweeps one provider after the other, for a thread that may be stopped between any two effects.
func (b *broom) sweep(t *thread, allowed int) {
	own := *t // so that its deletions are told from those of the reconciler
	for _, name := range []string{"a", "b"} {
		d := &dustpan{broom: b, fake: &fake{b.world, &own, name}, calls: make(chan func()), over: make(chan struct{})}
		s, err := gc.New(gc.Config{Fleet: fleetID, Providers: map[string]provider.Provider{name: d}, Live: d.live, MinAge: 1})
		if err != nil {
			panic(err)
		}
		if allowed > 0 {
			_ = s.Allow(name, allowed)
		}
		go func() {
			defer close(d.over)
			_, _ = s.Sweep(context.Background())
		}()
		d.serve()
	}
}

// dustpan hands each call of a sweep to the thread that sweeps, because only there a history can go on in between.
type dustpan struct {
	*broom
	*fake
	calls chan func()
	over  chan struct{} // closed when the sweep has ended
}

// serve makes the calls of a sweep until it ends.
func (d *dustpan) serve() {
	for {
		select {
		case call := <-d.calls:
			call()
		case <-d.over:
			return
		}
	}
}

// call has a call made, unless the sweep has given it up before its turn came, and has ended.
func (d *dustpan) call(f func() error) (err error) {
	done := make(chan struct{})
	select {
	case d.calls <- func() { err = f(); close(done) }:
		<-done
		return err
	case <-d.over:
		return errors.New("nobody waits for it any more")
	}
}

// Plan is never called.
func (d *dustpan) Plan(provider.Request) (string, error) { panic("a sweep plans nothing") }

// Create is never called.
func (d *dustpan) Create(context.Context, provider.Request) (provider.Instance, error) {
	panic("a sweep creates nothing")
}

// Get is never called.
func (d *dustpan) Get(context.Context, provider.Ref) (provider.Instance, error) {
	panic("a sweep gets nothing")
}

// List adds the time at which each instance was made.
func (d *dustpan) List(ctx context.Context) (list []provider.Instance, err error) {
	err = d.call(func() (err error) {
		list, err = d.fake.List(ctx)
		for i, in := range list {
			first := slices.IndexFunc(d.world.log[d.name+":"+in.ID], func(s seen) bool { return s.inst != nil && s.inst.Incarnation == in.Incarnation })
			list[i].Created = d.began.Add(time.Duration(d.world.log[d.name+":"+in.ID][first].at) * tick)
		}
		return err
	})
	return list, err
}

func (d *dustpan) Delete(ctx context.Context, r provider.Ref) error {
	return d.call(func() error { return d.fake.Delete(ctx, r) })
}

// live reads the records as they truly are, and remembers what was live then.
func (d *dustpan) live(ctx context.Context) (held map[string]gc.Held, err error) {
	err = d.call(func() error {
		return d.fake.call(ctx, "live", func() error {
			held = map[string]gc.Held{}
			for uid, p := range d.records() {
				h := proxy.HeldBy(p)
				held[uid] = gc.Held{Key: h.Key.String(), External: h.Mode == proxy.External, Deleting: h.Deleting,
					Provider: h.Instance.Provider, ID: h.Instance.ID, Incarnation: h.Instance.Incarnation}
			}
			d.t.known = knowledge{record: &proxy.Proxy{}}
			d.known[d.t.known.record] = d.alive()
			return nil
		})
	})
	return held, err
}

// records are those that there are, by UID.
func (b *broom) records() map[string]*proxy.Proxy {
	records := map[string]*proxy.Proxy{}
	for _, k := range b.all {
		if p := b.store.now(k); p != nil {
			records[p.UID] = p
		}
	}
	return records
}

// alive are the incarnations of all instances that are not to be swept: a record names them, is about to meet them, or is
// being deleted and takes them along.
func (b *broom) alive() map[string]bool {
	alive, records := map[string]bool{}, b.records()
	for _, i := range b.world.insts {
		if p := records[i.Marks.UID]; p != nil {
			last := p.Status.Instance
			named := last.Provider == i.prov && last.ID == i.ID
			none := last.ID == "" && p.Spec.Mode != proxy.External
			alive[i.Incarnation] = p.Deleting || named || none
		}
	}
	return alive
}

// kill judges a deletion by whoever made it.
func (b *broom) kill(by *thread, i *inst) {
	then, swept := b.known[by.known.record]
	switch {
	case !swept:
		b.history.kill(by, i)
	case then[i.Incarnation]:
		b.count(sweptLive)
	case b.alive()[i.Incarnation]:
		b.count(met)
	default:
		b.count(collected)
	}
}

// sweepMutants are the sweeper of this module with one protection taken away, and who must find it guilty.
var sweepMutants = []struct {
	name     string
	file     string
	old, new string
	test     string // of package gc
	kind     string // or of histories
}{
	{"records before the list", "visit.go", "	list, err := v.backend.list(ctx)\n", "	early, err := v.live(ctx)\n" +
		"	v.Live = func(context.Context) (map[string]Held, error) { return early, err }\n	list, err := v.backend.list(ctx)\n",
		"TestInstancesThatAreMadeMeanwhile", ""},
	{"a failed list believed", "visit.go", "	if err != nil {\n		p.Err = err\n		return p, nil\n	}\n", "", "TestAProviderThatCannotBeListed", ""},
	{"any age", "judge.go", "case v.Created.After(j.youngest):", "case false:", "TestVerdicts", ""},
	{"no second look", "visit.go", "ended = v.confirm(ctx, verdict)", "ended = ctx.Err()", "TestAProxyThatIsDeclaredAgainKeepsItsInstance", ""},
	{"Delete without an incarnation", "visit.go", ", Incarnation: verdict.Incarnation}", "}", "TestSuccessorsAreNotHit", ""},
	{"no brake", "judge.go", "if n <= freeDeletions ||", "if true ||", "TestNewUIDsCostNothing", ""},
	{"an allowance for ever", "sweeper.go", "	s.allowed = map[string]int{}\n	s.mu.Unlock()", "	s.mu.Unlock()", "TestAllow", ""},
	{"deletions of the reconciler doubled", "judge.go", "case held.Deleting:", "case false:", "TestVerdicts", ""},
	{"what is about to be met is a stray", "judge.go", `case held.ID == "" || held.Incarnation == "":`, "case false:", "", "rough, two leaders, same UIDs"},
	{"an ID of another incarnation is a stray", "judge.go", "case held.Provider == j.provider && held.ID == v.ID:",
		"case held.Provider == j.provider && held.ID == v.ID && held.Incarnation == v.Incarnation:", "", "rough, two leaders"},
	{"no strays", "judge.go", "return r == Orphan || r == Stray", "return r == Orphan", "", "delays without a bound"},
	{"no orphans", "judge.go", "return r == Orphan || r == Stray", "return r == Stray", "", "delays without a bound"},
}

// guiltyLine is the line of a test's output that says who found a mutant.
var guiltyLine = regexp.MustCompile(`--- FAIL: .*`)

// TestSweepMutants builds the sweeper once for each protection, with the protection taken away.
func TestSweepMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the module once for each mutant")
	}
	folder, err := filepath.Abs("../../gc")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sweepMutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := mutate(t, filepath.Join(folder, m.file), m.old, m.new, 1)
			where, tests := "../../gc", "^"+m.test+"$"
			if m.kind != "" {
				where, tests = ".", "^TestSwept$/^"+escaped(m.kind)+"$"
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-run", tests, where)
			cmd.Env = append(os.Environ(), "WALK=9000")
			out, err := cmd.CombinedOutput()
			found := guiltyLine.Find(out)
			if err == nil || found == nil {
				t.Fatalf("nothing shows what the protection is for: %v\n%s", err, out)
			}
			t.Logf("%s", found)
		})
	}
}
