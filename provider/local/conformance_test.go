package local_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		dir, port := t.TempDir(), freePort(t)
		return providertest.Harness{
			Open: func(t testing.TB, fleet string) provider.Provider {
				return open(t, provider.Environment{Fleet: fleet, StateDir: dir}, local.Config{Addresses: []string{"127.0.77.1-127.0.77.20"}})
			},
			Request: func() provider.Request {
				return provider.Request{Port: port, Credentials: provider.Credentials{
					Username: secret.New("planted-user-name"),
					Password: secret.New("planted:pass/wörd"),
				}}
			},
			Outlives: true,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "europe" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "small" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "debian" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = 10 },
				"cloudInit":             func(r *provider.Request) { r.CloudInit = secret.New("#cloud-config planted") },
				"port":                  func(r *provider.Request) { r.Port = 0 },
			},
			Inject: func(f providertest.Fault) bool {
				if f != providertest.CheckFails {
					return false
				}
				taken, err := net.Listen("tcp", fmt.Sprintf("127.0.77.20:%d", port))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = taken.Close() })
				return true
			},
		}
	})
}

func open(t testing.TB, env provider.Environment, c local.Config) provider.Provider {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.NewQuick(env, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// freePort returns a port that nothing listens at on any address of this host.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
