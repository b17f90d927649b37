package kvm_test

import (
	"os"
	"testing"

	"github.com/proxyfleet/fleet/provider/internal/libvirt/libvirttest"
	"github.com/proxyfleet/fleet/provider/kvm"
)

// bed is the hypervisor that all tests of this package share.
var bed = libvirttest.Bed{New: kvm.New}

func TestMain(m *testing.M) {
	code := m.Run()
	bed.Close()
	os.Exit(code)
}

func TestConformance(t *testing.T) { bed.Conformance(t) }

func TestConformanceOverQEMU(t *testing.T) {
	bed.ConformanceOverQEMU(t, "create", "create-unanswered", "delete-twice", "restart", "check-fails")
}

func TestRequests(t *testing.T) { bed.Requests(t, 15) }
