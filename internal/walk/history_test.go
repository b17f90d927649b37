package walk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

const fleetID = "walk"

// setting is what a history is made of.
type setting struct {
	nature
	proxies int
	leaders int
	stale   int    // store reads lag by up to so many versions
	skew    int    // clocks differ from the true one by up to so many ticks
	stable  bool   // a proxy that is declared again has the UID of its earlier life
	edits   string // "type": machine types; "place": also providers and zones; "all": everything, typos among it
	steps   int
	quick   bool // many passes to a tick, where the others have few
	machine machine
	paced   bool // edits come to all proxies at once, and the judge counts how many are out
}

// pass is one pass of a machine: when to look again, zero for the next event.
type pass func(context.Context, proxy.Key) (time.Duration, error)

// machine makes the pass that is walked.
type machine func(*history, *cache, map[string]provider.Provider) pass

// history is one random walk.
type history struct {
	setting
	rng     *rand.Rand
	world   *world
	store   *records
	secrets secrets
	keys    []proxy.Key
	procs   []*process
	tally   tally
	hasher  *fleet.Hasher
	began   time.Time
	trace   func(format string, args ...any) // nil: none
	serving map[proxy.Key]bool
	out     map[proxy.Key]bool // of service, because their instance was deleted
	next    map[proxy.Key]*due // in the quiet end
}

// due is when the machine asked to look at a proxy again.
type due struct {
	at   time.Time // zero: at the next event
	wake bool
	last *proxy.Proxy // the record before the last pass
}

// begin makes a world and an empty store.
func begin(seed uint64, s setting, hasher *fleet.Hasher) *history {
	rng := rand.New(rand.NewPCG(seed, 7))
	h := &history{setting: s, rng: rng, world: newWorld(rng, s.nature), secrets: secrets{"s0": "0", "s1": "0"}, tally: tally{},
		hasher: hasher, began: time.Now(), serving: map[proxy.Key]bool{}, out: map[proxy.Key]bool{}, next: map[proxy.Key]*due{}}
	h.store = newRecords(h.secrets, s.stable)
	h.world.killed = h.kill
	for i := range s.proxies {
		k := proxy.Key{Namespace: "d", Name: fmt.Sprint("p", i)}
		h.keys = append(h.keys, k)
		h.store.note(k)
		h.next[k] = &due{wake: true}
	}
	return h
}

// walk is one history: a random part, and a quiet end after which all must be as the specs ask for.
func walk(seed uint64, s setting, hasher *fleet.Hasher, trace func(string, ...any)) tally {
	h := begin(seed, s, hasher)
	h.trace = trace
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
	h.verdict()
	h.tally[creates] = h.world.made
	if h.world.twice {
		h.once(tokenTwice)
	}
	return h.tally
}

// lifetime is after how many effects a process dies.
func (h *history) lifetime() int {
	if h.paced {
		return -1
	}
	return h.rng.IntN(30)
}

// boot starts a process that reconciles.
func (h *history) boot(left, stale, skew int) *process {
	p := &process{left: left}
	if skew > 0 {
		skew = h.rng.IntN(2*skew+1) - skew
	}
	p.spawn(h.rng, func(t *thread) func() {
		c := &cache{records: h.store, t: t, floor: map[proxy.Key]int{}, lag: stale, skew: time.Duration(skew) * tick}
		do := h.machine(h, c, map[string]provider.Provider{"a": &fake{h.world, t, "a"}, "b": &fake{h.world, t, "b"}})
		return func() {
			h.reconcile(do, h.keys[h.rng.IntN(len(h.keys))])
		}
	})
	return p
}

func (h *history) reconcile(do pass, k proxy.Key) {
	after, err := do(context.Background(), k)
	if err != nil {
		h.log("%s: %v", k.Name, err)
	}
	d := h.next[k]
	d.wake = err != nil
	d.at = time.Time{}
	if after > 0 {
		d.at = time.Now().Add(after)
	}
}

// step lets one thing happen.
func (h *history) step() {
	k := h.keys[h.rng.IntN(len(h.keys))]
	switch x := h.rng.IntN(40); {
	case x == 0:
		h.edit(k)
	case x == 1 && h.rng.IntN(3) == 0 && !h.paced:
		_ = h.store.Delete(context.Background(), k)
		h.store.note(k)
		h.log("%s: declared no more", k.Name)
	case x == 2 && h.edits == "all":
		h.meddle(k)
	case x == 3, x < 10 && !h.quick:
		h.world.tick()
	default:
		h.run(h.rng.IntN(len(h.procs)))
	}
	h.judge()
}

// run lets a process go on to its next effect.
func (h *history) run(n int) {
	p := h.procs[n]
	t := p.threads[h.rng.IntN(len(p.threads))]
	switch {
	case h.world.now < t.asleep:
	case h.rng.IntN(100) == 0 && !h.paced: // a pause of the whole machine, between any two effects
		t.asleep = h.world.now + h.rng.IntN(40)
	default:
		t.next()
	}
	if p.dead {
		p.kill()
		h.procs[n] = h.boot(h.lifetime(), h.stale, h.skew)
	}
}

// edit declares a proxy, or edits it; an edit of the mode must be refused and change nothing.
func (h *history) edit(k proxy.Key) {
	if h.paced {
		for _, k := range h.keys {
			h.declare(k, h.spec(k))
		}
		h.secrets["s0"] = fmt.Sprint(h.rng.IntN(4))
		return
	}
	h.declare(k, h.spec(k))
}

// spec draws a spec.
func (h *history) spec(proxy.Key) proxy.Spec {
	s := proxy.Spec{Provider: "a", Placement: proxy.Placement{Zone: "z1", MachineType: fmt.Sprint("m", h.rng.IntN(2))}}
	if h.paced {
		s.Placement.MachineType = "m0"
		s.CloudInit = &proxy.CloudInit{SecretRef: &proxy.SecretKeyRef{Name: "s0", Key: "user-data"}}
		return s
	}
	if h.edits == "type" {
		return s
	}
	s.Placement.Zone = []string{"z1", "z2"}[h.rng.IntN(2)]
	s.Provider = []string{"a", "b"}[h.rng.IntN(2)]
	if h.edits == "place" {
		return s
	}
	h.vary(&s)
	return s
}

// vary draws the fields that few specs have, and typos.
func (h *history) vary(s *proxy.Spec) {
	if h.rng.IntN(3) == 0 {
		s.Port = int32(8080 + h.rng.IntN(2))
	}
	if h.rng.IntN(3) == 0 {
		s.CloudInit = &proxy.CloudInit{SecretRef: &proxy.SecretKeyRef{Name: fmt.Sprint("s", h.rng.IntN(2)), Key: "user-data"}}
	}
	if h.rng.IntN(3) == 0 {
		s.Credentials = &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: fmt.Sprint("s", h.rng.IntN(2))}}
	}
	s.MaxLeases = int32(h.rng.IntN(3))
	s.Attributes = map[string]string{"n": fmt.Sprint(h.rng.IntN(2))}
	switch h.rng.IntN(12) {
	case 0:
		s.Provider = "typo"
	case 1:
		s.Placement.Zone = "" // a field that is missing
	case 2:
		*s = proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: fmt.Sprint("e", h.rng.IntN(2)), Port: 1}}
	}
}

func (h *history) declare(k proxy.Key, s proxy.Spec) {
	old := h.store.now(k)
	err := h.store.put(k, s, nil)
	h.log("%s: declared %+v, %v", k.Name, s, err)
	if old == nil || old.Deleting || old.Spec.Mode == s.Canonical().Mode {
		return
	}
	if after := h.store.now(k); !errors.Is(err, proxy.ErrImmutable) || after.Version != old.Version {
		h.once(modeChanged)
	}
}

// meddle does what people do besides edits: rotate or remove a Secret, ask for a retry, skip a cleanup, edit a record that
// no validation has seen.
func (h *history) meddle(k proxy.Key) {
	name := fmt.Sprint("s", h.rng.IntN(2))
	switch h.rng.IntN(6) {
	case 0:
		delete(h.secrets, name)
	case 1, 2:
		h.secrets[name] = fmt.Sprint(h.rng.IntN(3))
	case 3:
		h.annotate(k, proxy.RetryAnnotation, fmt.Sprint(h.world.now))
	case 4:
		h.skip(k)
	}
	h.log("%s: secrets %v", k.Name, h.secrets)
}

func (h *history) annotate(k proxy.Key, name, value string) {
	p, err := h.store.Memory.Get(context.Background(), k)
	if err != nil {
		return
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[name] = value
	_, _ = h.store.Memory.UpdateMeta(context.Background(), p)
	h.store.note(k)
}

// skip abandons the instance of a record that is being deleted, and all that is on its way to it.
func (h *history) skip(k proxy.Key) {
	p := h.store.now(k)
	if p == nil || !p.Deleting || h.rng.IntN(2) == 0 {
		return
	}
	h.annotate(k, proxy.SkipCleanupAnnotation, "true")
	h.world.skipped[p.UID] = 1 << 30 // until the next life of the UID, whatever comes is abandoned
	for _, i := range h.world.insts {
		i.abandoned = i.abandoned || i.Marks.UID == p.UID
	}
	h.log("%s: cleanup skipped", k.Name)
}

// calm ends all faults and puts right what people got wrong.
func (h *history) calm() {
	h.world.nature = nature{late: h.late, lag: h.lag, local: h.local}
	h.world.denied = 0
	for _, name := range []string{"s0", "s1"} {
		if _, ok := h.secrets[name]; !ok {
			h.secrets[name] = "restored"
		}
	}
	for _, k := range h.keys {
		p := h.store.now(k)
		if p == nil || p.Deleting || p.Spec.Mode == proxy.External {
			continue
		}
		s := p.Spec
		if s.Provider == "typo" {
			s.Provider = "a"
		}
		if s.Placement.Zone == "" {
			s.Placement.Zone = "z1"
		}
		h.declare(k, s)
	}
}

// settle lets time pass with one leader that reads freshly: the machine runs only when it asked to or something changed.
func (h *history) settle(ticks int) {
	p := h.boot(-1, 0, 0)
	defer p.kill()
	t := p.threads[0]
	for range ticks {
		for _, k := range h.keys {
			d, now := h.next[k], h.store.now(k)
			changed := (now == nil) != (d.last == nil) || now != nil && (now.Version != d.last.Version || now.UID != d.last.UID)
			if !changed && !d.wake && (d.at.IsZero() || time.Now().Before(d.at)) {
				continue
			}
			d.last = now
			keys := h.keys
			h.keys = []proxy.Key{k} // a thread draws from these
			t.pass()
			h.keys = keys
		}
		h.judge()
		h.world.tick()
	}
}

func (h *history) log(format string, args ...any) {
	if h.trace != nil {
		h.trace("%4d "+format, append([]any{h.world.now}, args...)...)
	}
}

// verdicts is the health engine of the walk: what has run for two ticks is healthy.
type verdicts struct{ *world }

// Snapshot tells the truth about an incarnation.
func (v verdicts) Snapshot(_, incarnation string) (health.Snapshot, bool) {
	for _, i := range v.insts {
		if i.Incarnation == incarnation && i.State == provider.Running && v.now >= i.ready+2 {
			v.probed[incarnation] = true
			return health.Snapshot{Verdict: health.Healthy}, true
		}
	}
	return health.Snapshot{}, false
}

// real is the machine of this module.
func real(h *history, c *cache, providers map[string]provider.Provider) pass {
	return passes(reconciler(h, c, providers))
}

func reconciler(h *history, c *cache, providers map[string]provider.Provider) *fleet.Reconciler {
	return &fleet.Reconciler{
		Fleet: fleetID, Store: c, Providers: providers, Hasher: h.hasher, Health: verdicts{h.world}, Started: time.Now(),
		Intervals: fleet.Intervals{ProvisioningPoll: tick, DeletionPoll: tick, DriftPoll: 12 * tick, Requeue: time.Second, Call: 4 * tick,
			FirstRetry: tick, LastRetry: 20 * tick, QuotaRetry: 20 * tick, PermanentRetry: 40 * tick, Stable: 40 * tick, Drain: 4 * tick},
		Logger: slog.New(slog.DiscardHandler),
		Tracer: noop.NewTracerProvider().Tracer(""),
	}
}

func passes(r *fleet.Reconciler) pass {
	return func(ctx context.Context, k proxy.Key) (time.Duration, error) {
		res, err := r.Reconcile(ctx, k)
		return res.After, err
	}
}
