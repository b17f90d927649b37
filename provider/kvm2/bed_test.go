package kvm2

import (
	"os"
	"testing"

	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
)

// bed is the hypervisor that all tests of this package share.
var bed = libvirttest.Bed{New: New}

func TestMain(m *testing.M) {
	code := m.Run()
	bed.Close()
	os.Exit(code)
}

func TestConformance(t *testing.T) { bed.Conformance(t) }

// Those that kvm does not make superfluous: what the two do alike is seen there.
func TestConformanceOverQEMU(t *testing.T) {
	bed.ConformanceOverQEMU(t, "create-unanswered", "restart")
}

func TestLifeOfAMachine(t *testing.T) { bed.Life(t) }

func TestRequests(t *testing.T) { bed.Requests(t, 17) }
