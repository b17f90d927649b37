package walk

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
	"github.com/proxyfleet/fleet/proxy"
)

// restarts is a walk over the real local provider, with real files and real sockets: edits and deletions, lost answers,
// and processes that end between any two effects and come back over the same state directory.
type restarts struct {
	t      *testing.T
	rng    *rand.Rand
	dir    string
	store  *records
	keys   []proxy.Key
	hasher *fleet.Hasher

	process  *process
	provider provider.Provider
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

// localPorts are those that the walk's specs name.
var localPorts = [...]int32{34181, 34182}

const localAddresses = "127.77.0.1-127.77.0.8"

func TestLocalOverRestarts(t *testing.T) {
	hasher := fleet.NewHasher(fleetID)
	for seed := range uint64(max(histories()/20, 10)) {
		w := &restarts{t: t, rng: rand.New(rand.NewPCG(seed, 11)), dir: t.TempDir(), store: newRecords(secrets{}, true), hasher: hasher}
		for i := range 3 {
			w.keys = append(w.keys, proxy.Key{Namespace: "d", Name: fmt.Sprint("p", i)})
			w.store.note(w.keys[i])
		}
		w.boot(w.rng.IntN(40))
		for range 300 {
			w.step()
		}
		w.restart(-1)
		for range 40 {
			w.process.threads[0].pass()
		}
		w.verdict(seed)
		w.shutDown()
		if t.Failed() {
			return
		}
	}
}

// boot starts a process over the state directory.
func (w *restarts) boot(left int) {
	p, err := local.New(provider.Environment{Name: "local", Fleet: fleetID, StateDir: w.dir}, fmt.Appendf(nil, `{"addresses": [%q]}`, localAddresses))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.provider, w.stop = p, stop
	run, _ := provider.As[provider.Runner](p)
	w.ended.Go(func() {
		if err := run.Run(ctx); err != nil {
			w.t.Errorf("the provider ended: %v", err)
		}
	})
	w.process = &process{left: left}
	w.process.spawn(w.rng, w.passes)
}

// passes reconciles one proxy after another.
func (w *restarts) passes(t *thread) func() {
	r := &fleet.Reconciler{
		Fleet: fleetID, Store: &cache{records: w.store, t: t, floor: map[proxy.Key]int{}}, Hasher: w.hasher, Started: time.Now(),
		Providers: map[string]provider.Provider{"a": &lossy{w.provider, t}},
		Intervals: fleet.Intervals{FirstRetry: time.Millisecond, LastRetry: time.Millisecond, QuotaRetry: time.Millisecond}.WithDefaults(),
		Logger:    slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
	}
	return func() {
		_, _ = r.Reconcile(w.t.Context(), w.keys[w.rng.IntN(len(w.keys))])
	}
}

func (w *restarts) shutDown() {
	w.process.kill()
	w.stop()
	w.ended.Wait()
}

func (w *restarts) restart(left int) {
	w.shutDown()
	w.boot(left)
}

func (w *restarts) step() {
	k := w.keys[w.rng.IntN(len(w.keys))]
	switch w.rng.IntN(20) {
	case 0, 1:
		_ = w.store.put(k, proxy.Spec{Provider: "a", Port: localPorts[w.rng.IntN(2)]}, nil)
	case 2:
		_ = w.store.Delete(w.t.Context(), k)
		w.store.note(k)
	default:
		w.process.threads[0].next()
	}
	if w.process.dead {
		w.restart(w.rng.IntN(40))
	}
	w.owned()
}

// owned looks for instances that nobody owns.
func (w *restarts) owned() {
	list, err := w.provider.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range list {
		if w.recordOf(i.Marks.UID) == nil {
			w.t.Errorf("instance %s of %s has no record", i.Incarnation, i.Marks.UID)
		}
	}
}

func (w *restarts) recordOf(uid string) *proxy.Proxy {
	for _, k := range w.keys {
		if p := w.store.now(k); p != nil && p.UID == uid {
			return p
		}
	}
	return nil
}

// verdict says whether exactly what is declared listens in the end.
func (w *restarts) verdict(seed uint64) {
	want := map[string]bool{}
	for _, k := range w.keys {
		p := w.store.now(k)
		if p == nil {
			continue
		}
		in := p.Status.Instance
		if c, _ := p.Status.Condition(proxy.Provisioned); p.Deleting || c.Status != proxy.True || in.Port != p.Spec.Port {
			w.t.Errorf("seed %d: %v is stuck: %+v", seed, k, p.Status)
		}
		want[net.JoinHostPort(in.Host, strconv.Itoa(int(in.Port)))] = true
	}
	for i := range 8 {
		for _, port := range localPorts {
			address := fmt.Sprintf("127.77.0.%d:%d", i+1, port)
			if got := listens(w.t, address); got != want[address] {
				w.t.Errorf("seed %d: %s listens: %v, want %v", seed, address, got, want[address])
			}
		}
	}
}

func listens(t *testing.T, address string) bool {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// lossy is a provider whose calls are effects of a thread, and lose an answer now and then.
type lossy struct {
	provider.Provider
	t *thread
}

func (l *lossy) Delays() provider.Delays { return provider.Delays{Call: time.Minute} }

func (l *lossy) call(do func() error) error {
	return l.t.effect(func() error {
		if err := do(); err != nil || l.t.rng.IntN(10) > 0 {
			return err
		}
		return &provider.Error{Op: "call", Class: provider.ErrTransient, Reason: "AnswerLost"}
	})
}

func (l *lossy) Create(ctx context.Context, r provider.Request) (got provider.Instance, err error) {
	err = l.call(func() error { got, err = l.Provider.Create(ctx, r); return err })
	return got, err
}

func (l *lossy) Get(ctx context.Context, ref provider.Ref) (got provider.Instance, err error) {
	err = l.call(func() error { got, err = l.Provider.Get(ctx, ref); return err })
	return got, err
}

func (l *lossy) Delete(ctx context.Context, ref provider.Ref) error {
	return l.call(func() error { return l.Provider.Delete(ctx, ref) })
}
