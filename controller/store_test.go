package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

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
