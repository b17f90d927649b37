package controller

import (
	"fmt"
	"testing"

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

// BenchmarkStore measures the store beside one in memory, and a write beside the bare request that it is made of.
func BenchmarkStore(b *testing.B) {
	b.Run("memory", func(b *testing.B) { storetest.Benchmark(b, proxy.NewMemory(proxy.MemoryConfig{})) })
	b.Run("cluster", func(b *testing.B) {
		s, _ := runStore(b, Config{REST: restOf(b, ownCluster(b).Kubeconfig())})
		d := &declarer{s, &book{notes: map[types.UID]note{}}}
		storetest.Benchmark(b, d)
		b.Run("bare", func(b *testing.B) {
			k := d.declare(b, key("bare"), external()).Key
			for i := 0; b.Loop(); i++ {
				body := fmt.Appendf(nil, `{"status":{"latencyMillis":%d}}`, 1+i)
				err := s.proxies.Patch(types.MergePatchType).Namespace(k.Namespace).Resource("proxies").Name(k.Name).SubResource("status").
					Body(body).Do(b.Context()).Error()
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
