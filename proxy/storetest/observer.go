package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// observer is a Watch that is under way and counts how often each key was delivered.
type observer struct {
	f     *fixture
	stop  context.CancelFunc
	ended chan error

	mu    sync.Mutex
	calls map[proxy.Key]int
	busy  bool
}

// watch begins a Watch that ends with the case. on is called with each key; nil for nothing.
func (f *fixture) watch(on func(proxy.Key)) *observer {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	o := &observer{f: f, stop: stop, ended: make(chan error, 1), calls: map[proxy.Key]int{}}
	go func() {
		o.ended <- f.Store.Watch(ctx, func(k proxy.Key) {
			o.begin()
			if on != nil {
				on(k)
			}
			o.end(k)
		})
	}()
	f.Cleanup(stop)
	return o
}

func (o *observer) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		o.f.Error("Watch called fn while an earlier call was running")
	}
	o.busy = true
}

func (o *observer) end(k proxy.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	o.calls[k]++
}

// counts returns how often each key was delivered so far.
func (o *observer) counts() map[proxy.Key]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.calls)
}

// wakes does something and waits until all keys are delivered afterwards.
func (o *observer) wakes(what string, do func(), keys ...proxy.Key) {
	o.f.Helper()
	o.settle()
	before := o.counts()
	do()
	for _, k := range keys {
		o.f.await(fmt.Sprintf("Watch delivered %v after %s", k, what), func() bool { return o.counts()[k] > before[k] })
	}
}

// wakesOnly does something and checks that of the records of the case exactly these are delivered afterwards.
func (o *observer) wakesOnly(what string, do func(), keys ...proxy.Key) {
	o.f.Helper()
	o.settle()
	before := o.counts()
	o.wakes(what, do, keys...)
	o.settle()
	want := map[proxy.Key]bool{sentinel: true}
	for _, k := range keys {
		want[k] = true
	}
	for k, n := range o.counts() {
		if n != before[k] && !want[k] {
			o.f.Errorf("Watch delivered %v after %s, which does not concern it", k, what)
		}
	}
}

// sentinel is a record that exists to be changed: when its change is delivered, so is what was changed before it.
var sentinel = proxy.Key{Namespace: "crawl", Name: "sentinel"}

// settle waits until what was changed so far is delivered. A change of a record and one of a Secret may come on different
// ways, and keys that come together in any order: so it is done with both, twice.
func (o *observer) settle() {
	o.f.Helper()
	p, err := o.f.Store.Put(o.f.Context(), sentinel, proxy.Declaration{Spec: proxy.Spec{
		Provider:  "lab",
		CloudInit: &proxy.CloudInit{SecretRef: &proxy.SecretKeyRef{Name: "sentinel", Key: "k"}},
	}}, "sentinel")
	if err != nil {
		o.f.Fatalf("Put %v: %v", sentinel, err)
	}
	o.f.shown(p)
	for range 2 {
		o.awaitSentinel("its status changed", func() {
			_, err := proxy.Update(o.f.Context(), o.f.Store, sentinel, o.f.Store.UpdateStatus, func(p *proxy.Proxy) error {
				p.Status.LatencyMillis++
				return nil
			})
			if err != nil {
				o.f.Fatalf("UpdateStatus %v: %v", sentinel, err)
			}
		})
		o.awaitSentinel("its Secret changed", func() {
			o.f.Secrets.Set("crawl", "sentinel", proxy.Secret{
				Labels: map[string]string{proxy.CloudInitLabel: "true"},
				Data:   map[string]secret.Text{"k": secret.New(rand.Text())},
			})
		})
	}
}

func (o *observer) awaitSentinel(what string, do func()) {
	o.f.Helper()
	before := o.counts()[sentinel]
	do()
	o.f.await(fmt.Sprintf("Watch delivered %v after %s", sentinel, what), func() bool { return o.counts()[sentinel] > before })
}
