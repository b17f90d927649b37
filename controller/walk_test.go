package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	fleet "github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// The reconciler, over this store, makes no second instance, deletes none that is wanted, and leaves none behind, though two
// replicas take themselves for the leader and their caches hear of nothing for as long as the walk likes. WALK is how many
// histories there are.
func TestWalk(t *testing.T) {
	histories, err := strconv.Atoi(os.Getenv("WALK"))
	if err != nil {
		histories = 4
	}
	for seed := range histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newHistory(t, uint64(seed)).walk() })
	}
}

// history is one walk.
type history struct {
	t        *testing.T
	rng      *rand.Rand
	people   *declarer
	lab      *lab
	replicas []*replica
	keys     []proxy.Key
	edits    int
	calm     atomic.Bool // there are no faults any more
}

// replica is one that takes itself for the leader.
type replica struct {
	*fleet.Reconciler
	link *link
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), people: people(t, cfg), keys: []proxy.Key{key("a"), key("b"), key("c")}}
	h.lab = &lab{history: h, rng: rand.New(rand.NewPCG(seed, 2)), instances: map[string]*built{}}
	for range 2 {
		way := newLink(t, cfg)
		s, _ := runStore(t, Config{REST: way.rest, Logger: slog.New(slog.DiscardHandler)})
		way.answers(h.meddle(way, rand.New(rand.NewPCG(seed, 3))))
		soon := time.Millisecond
		h.replicas = append(h.replicas, &replica{link: way, Reconciler: &fleet.Reconciler{
			Fleet: "walk", Store: s, Providers: map[string]provider.Provider{"lab": h.lab}, Hasher: fleet.NewHasher("walk"), Health: well{},
			Intervals: fleet.Intervals{ProvisioningPoll: soon, DeletionPoll: soon, DriftPoll: soon, Requeue: soon, Call: 10 * time.Second, FirstRetry: soon,
				LastRetry: soon, QuotaRetry: soon, PermanentRetry: soon, Stable: time.Hour, Drain: soon},
			Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
		}})
	}
	return h
}

// meddle has some writes refused, and the answers of some others lost.
func (h *history) meddle(way *link, rng *rand.Rand) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	draw := func() int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(20)
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || h.calm.Load() {
			return false
		}
		switch draw() {
		case 0:
			refuse(w, http.StatusConflict, "Conflict")
		case 1:
			way.lose(r)
		default:
			return false
		}
		return true
	}
}

func (h *history) walk() {
	for range 500 {
		h.step()
	}
	for _, r := range h.replicas {
		r.link.thaw()
	}
	h.calm.Store(true)
	for _, k := range h.keys {
		h.declare(k)
	}
	until(h.t, "everything is as it is declared", func() bool {
		for _, k := range h.keys {
			h.pass(h.replicas[0], k)
		}
		return h.settled() == nil
	})
	h.t.Logf("%d instances were made, %d edits", h.lab.made, h.edits)
	if h.lab.made < len(h.keys) {
		h.t.Error("the walk went nowhere")
	}
}

// step lets one thing happen.
func (h *history) step() {
	k, r := h.keys[h.rng.IntN(len(h.keys))], h.replicas[h.rng.IntN(len(h.replicas))]
	switch h.rng.IntN(12) {
	case 0:
		h.declare(k)
	case 1:
		if h.rng.IntN(2) == 0 {
			_ = h.people.Delete(h.t.Context(), k)
		}
	case 2:
		r.link.freeze()
	case 3:
		r.link.thaw()
	case 4, 5: // both at once
		var both sync.WaitGroup
		for _, r := range h.replicas {
			both.Go(func() { h.pass(r, k) })
		}
		both.Wait()
	default:
		h.pass(r, k)
	}
}

// declare declares a proxy, in another way each time: what was once edited away is never wanted again.
func (h *history) declare(k proxy.Key) {
	h.edits++
	spec := proxy.Spec{Provider: "lab", Placement: proxy.Placement{Zone: fmt.Sprint("z", h.rng.IntN(2)), MachineType: fmt.Sprint("m", h.edits)}}
	for {
		_, err := h.people.Put(h.t.Context(), k, proxy.Declaration{Spec: spec}, "people")
		if !errors.Is(err, proxy.ErrTerminating) {
			if err != nil {
				h.t.Error(err)
			}
			return
		}
		if !h.calm.Load() {
			return // another time
		}
		h.pass(h.replicas[0], k)
	}
}

func (h *history) pass(r *replica, k proxy.Key) { _, _ = r.Reconcile(h.t.Context(), k) }

// settled says what is not yet as it is declared.
func (h *history) settled() error {
	all, _, err := h.people.list(h.t.Context())
	if err != nil {
		return err
	}
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	if len(all) != len(h.keys) || len(h.lab.instances) != len(all) {
		return fmt.Errorf("%d records and %d instances", len(all), len(h.lab.instances))
	}
	for _, o := range all {
		p := o.record("")
		b := h.lab.instances[p.Status.Instance.ID]
		if p.Status.Phase != proxy.Ready || b == nil || !b.wantedBy(p) {
			return fmt.Errorf("%v is %s", p.Key, p.Status.Phase)
		}
	}
	return nil
}

// well finds everybody healthy.
type well struct{}

func (well) Snapshot(string, string) (health.Snapshot, bool) {
	return health.Snapshot{Verdict: health.Healthy}, true
}

// lab is the provider of a walk, and its judge.
type lab struct {
	*history

	mu        sync.Mutex
	rng       *rand.Rand
	made      int
	instances map[string]*built // by ID
}

// built is an instance, and what it was made from.
type built struct {
	provider.Instance
	machineType string
}

// wantedBy says whether a record asks for exactly this instance.
func (b *built) wantedBy(p *proxy.Proxy) bool {
	return !p.Deleting && p.UID == b.Marks.UID && b.machineType == p.Spec.Placement.MachineType && b.ID == p.Spec.Placement.Zone+"/"+provider.Name("walk", p.UID)
}

func (*lab) Plan(r provider.Request) (string, error) { return r.Placement.Zone + "/" + r.Name, nil }

// Delays says that the lab reads its own writes.
func (*lab) Delays() provider.Delays { return provider.Delays{Call: 10 * time.Second} }

// call makes one call, which may be refused, or be made and its answer lost.
func (l *lab) call(op string, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	luck := l.rng.Float64()
	if l.calm.Load() {
		luck = 1
	}
	if luck < 0.05 {
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: "Refused"}
	}
	err := do()
	if luck < 0.1 {
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: "AnswerLost"}
	}
	return err
}

func (l *lab) Create(_ context.Context, r provider.Request) (got provider.Instance, err error) {
	id, _ := l.Plan(r)
	err = l.call("create", func() error {
		if l.instances[id] == nil {
			for _, other := range l.instances {
				if other.Marks.UID == r.Marks.UID {
					l.t.Errorf("%s is made beside %s", id, other.ID)
				}
			}
			l.made++
			l.instances[id] = &built{machineType: r.Placement.MachineType, Instance: provider.Instance{ID: id, Incarnation: fmt.Sprint("i-", l.made),
				Marks: r.Marks, State: provider.Running, Host: "192.0.2.1"}}
		}
		got = l.instances[id].Instance
		return nil
	})
	return got, err
}

func (l *lab) Get(_ context.Context, r provider.Ref) (got provider.Instance, err error) {
	err = l.call("get", func() error {
		b := l.instances[r.ID]
		if b == nil || b.Marks.UID != r.UID {
			return &provider.Error{Op: "get", Class: provider.ErrNotFound}
		}
		got = b.Instance
		return nil
	})
	return got, err
}

func (l *lab) Delete(_ context.Context, r provider.Ref) error {
	return l.call("delete", func() error {
		b := l.instances[r.ID]
		if b == nil || b.Marks.UID != r.UID || r.Incarnation != "" && r.Incarnation != b.Incarnation {
			return nil
		}
		l.judge(b)
		delete(l.instances, r.ID)
		return nil
	})
}

// judge looks at who wants an instance that is being deleted. Nobody edits while a pass is under way.
func (l *lab) judge(b *built) {
	all, _, err := l.people.list(l.t.Context())
	if err != nil {
		l.t.Error(err)
	}
	for _, o := range all {
		if p := o.record(""); b.wantedBy(p) {
			l.t.Errorf("%s (%s) is deleted, which %v wants", b.ID, b.machineType, p.Key)
		}
	}
}

func (l *lab) List(context.Context) (all []provider.Instance, err error) {
	err = l.call("list", func() error {
		for _, b := range l.instances {
			all = append(all, b.Instance)
		}
		return nil
	})
	return all, err
}
