package libvirt

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
)

var (
	startHost = sync.OnceValues(func() (*hypervisor.Host, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		host, err := hypervisor.Start(ctx)
		started = host
		return host, err
	})
	started *hypervisor.Host
)

func TestMain(m *testing.M) {
	code := m.Run()
	if started != nil {
		started.Close()
	}
	os.Exit(code)
}

// realHost returns a hypervisor that all tests of this package share, or skips the test where there can be none. At the end of
// the test nothing of it is left: no goroutine here, no connection and no volume there.
func realHost(t *testing.T) *hypervisor.Host {
	t.Helper()
	host, err := startHost()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, 15*time.Second, "there are as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
		eventually(t, 15*time.Second, "no connection is left on the host", func() bool { return connections(t, host) == 0 })
		if volumes := on(t, host, "ls", "/var/lib/libvirt/images/fleet"); volumes != "" {
			t.Errorf("volumes are left:\n%s", volumes)
		}
		if domains := on(t, host, "virsh", "list", "--all", "--name"); domains != "" {
			t.Errorf("domains are left:\n%s", domains)
		}
	})
	return host
}

// connections counts the SSH connections to a host.
func connections(t testing.TB, host *hypervisor.Host) int {
	t.Helper()
	out, err := host.Exec(context.WithoutCancel(t.Context()), "ss", "--no-header", "--tcp", "state", "established", "sport", "=", ":22")
	if err != nil {
		t.Fatal(err)
	}
	if out == "" {
		return 0
	}
	return strings.Count(out, "\n") + 1
}

// on runs a command on the host.
func on(t testing.TB, host *hypervisor.Host, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	out, err := host.Exec(ctx, command...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shell runs a line of shell on the host.
func shell(t testing.TB, host *hypervisor.Host, line string) string {
	t.Helper()
	return on(t, host, "sh", "-c", line)
}

func eventually(t testing.TB, atMost time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(atMost)
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for !done() {
		select {
		case <-ticks.C:
		case <-deadline:
			t.Errorf("after %v it was not true that %s", atMost, what)
			return
		}
	}
}

// configOf is a configuration for a host whose image is served at url.
func configOf(host *hypervisor.Host, url, sum string) Config {
	return Config{
		Hosts: []HostConfig{{
			Name: "one", Address: host.Address, User: host.User, KeyFile: host.KeyFile(), KnownHostsFile: host.KnownHostsFile(), Pool: host.Pool,
		}},
		Images:       []Image{{Name: "disk", URL: url, SHA256: sum, Firmware: bios}},
		MachineTypes: []MachineType{{Name: "small", CPUs: 1, MemoryMiB: 64}},
		DomainTypes:  []string{"qemu"},
		Proxy:        none,
	}
}

// policy is one of a provider of these tests: what needs an administrator is permanent.
func policy() Policy {
	return Policy{
		Namespace: "https://crawl.example.com/proxyfleet/test", AddressSources: []string{Lease},
		PermanentDials: []string{HostKeyUnknown, HostKeyChanged, AuthenticationFailed, KeyEncrypted},
	}
}

// open opens a provider and runs it until the test ends.
func open(t *testing.T, config Config, policy Policy) *Provider {
	t.Helper()
	p, err := New(provider.Environment{Name: "vms", Fleet: "fleet-one"}, config, policy)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p
}

func requestFor(uid string) provider.Request {
	return provider.Request{
		Name: provider.Name("fleet-one", uid), Marks: provider.Marks{Fleet: "fleet-one", UID: uid, Hash: "v1-1"}, Port: 3128, Token: "t",
	}
}
