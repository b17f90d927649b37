package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/proxy/storetest"
)

func TestConformance(t *testing.T) {
	opened := func(t testing.TB, kubeconfig string, b *book) storetest.Subject {
		s, _ := runStore(t, Config{REST: restOf(t, kubeconfig)})
		return storetest.Subject{Store: &declarer{s, b}, Secrets: secretWriter{t, s}}
	}
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) storetest.Subject {
			return opened(t, sharedCluster(t).Kubeconfig(), &book{notes: map[types.UID]note{}})
		},
		Reopen: func(t testing.TB, old storetest.Subject) storetest.Subject {
			c, err := testCluster()
			return opened(t, needs(t, c, err).Kubeconfig(), old.Store.(*declarer).book)
		},
	})
}

// BenchmarkStore measures the store beside one in memory, and a write beside the bare request that it is made of, in turns.
func BenchmarkStore(b *testing.B) {
	b.Run("memory", func(b *testing.B) { storetest.Benchmark(b, proxy.NewMemory(proxy.MemoryConfig{})) })
	b.Run("cluster", func(b *testing.B) {
		s, _ := runStore(b, Config{REST: restOf(b, ownCluster(b).Kubeconfig())})
		d := &declarer{s, &book{notes: map[types.UID]note{}}}
		b.Run("turns", func(b *testing.B) { turns(b, d) })
		storetest.Benchmark(b, d)
	})
}

func turns(b *testing.B, d *declarer) {
	p, other := d.declare(b, key("written"), external()), d.declare(b, key("patched"), external()).Key
	var written, patched time.Duration
	for b.Loop() {
		began := time.Now()
		p.Status.LatencyMillis++
		q, err := d.UpdateStatus(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		p, written = q, written+time.Since(began)
		began = time.Now()
		err = d.proxies.Patch(types.MergePatchType).Namespace(other.Namespace).Resource("proxies").Name(other.Name).SubResource("status").
			Body(fmt.Appendf(nil, `{"status":{"latencyMillis":%d}}`, p.Status.LatencyMillis)).Do(b.Context()).Error()
		if err != nil {
			b.Fatal(err)
		}
		patched += time.Since(began)
	}
	b.ReportMetric(float64(written)/float64(patched), "ratio")
	if err := errors.Join(d.Delete(b.Context(), p.Key), d.Delete(b.Context(), other)); err != nil { // what follows begins with nothing
		b.Fatal(err)
	}
}
