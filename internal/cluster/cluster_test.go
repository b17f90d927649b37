package cluster_test

import (
	"os"
	"testing"

	"github.com/proxyfleet/fleet/internal/cluster"
)

// start starts a cluster, or skips the test where there can be none.
func start(t *testing.T, config cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), config)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestStart(t *testing.T) {
	c := start(t, cluster.Config{})
	out, err := c.Kubectl(t.Context(), "get", "namespaces", "--output=name")
	t.Log(out, err)
}
