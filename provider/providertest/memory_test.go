package providertest_test

import (
	"testing"

	"github.com/proxyfleet/fleet/provider/providertest"
)

func TestMemory(t *testing.T) {
	providertest.Run(t, func(testing.TB) providertest.Harness { return new(providertest.Memory).Harness() })
}

// Without what a harness may leave out, the rest is still tested.
func TestMinimalHarness(t *testing.T) {
	providertest.Run(t, func(testing.TB) providertest.Harness {
		full := new(providertest.Memory).Harness()
		return providertest.Harness{Open: full.Open, Request: full.Request, Outlives: true}
	})
}
