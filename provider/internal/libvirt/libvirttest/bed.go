// Package libvirttest holds what the tests of the providers of virtual machines share: a real hypervisor, libvirt's test driver
// behind a relay that can disturb it, and the tests that every such provider has to pass.
package libvirttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
)

// Bed is a hypervisor that all tests of a package share. It starts when a test asks for it, and ends with [Bed.Close].
type Bed struct {
	// New opens the provider that is tested.
	New provider.Constructor
	// Host and Image, a disk of the tiny guest, are there after [Bed.Start].
	*hypervisor.Host
	Image []byte

	once sync.Once
	err  error
}

// Start starts the hypervisor unless it runs, or skips the test where there can be none.
func (b *Bed) Start(t testing.TB) {
	t.Helper()
	b.once.Do(func() { b.err = b.start() })
	switch {
	case b.err != nil && os.Getenv("CI") != "":
		t.Fatal(b.err)
	case b.err != nil:
		t.Skip(b.err)
	}
}

func (b *Bed) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path, err := hypervisor.Image(ctx)
	if err != nil {
		return err
	}
	if b.Image, err = os.ReadFile(path); err != nil {
		return err
	}
	b.Host, err = hypervisor.Start(ctx)
	return err
}

// Close ends the hypervisor.
func (b *Bed) Close() {
	if b.Host != nil {
		b.Host.Close()
	}
}

// Config is a configuration with one host, "one", whose machines are emulated, with edits.
func (b *Bed) Config(t testing.TB, imageURL string, edits ...func(config map[string]any)) json.RawMessage {
	t.Helper()
	config := map[string]any{
		"hosts":        []any{HostConfig("one", b.Host)},
		"images":       []any{map[string]any{"name": "tiny", "url": imageURL, "sha256": Sum(b.Image), "firmware": "bios"}},
		"machineTypes": []any{map[string]any{"name": "small", "cpus": 1, "memoryMiB": 256}},
		"domainTypes":  []string{"qemu"},
		"proxy":        "none",
	}
	for _, edit := range edits {
		edit(config)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// HostConfig is how a host stands in a configuration.
func HostConfig(name string, h *hypervisor.Host) map[string]any {
	return map[string]any{
		"name": name, "address": h.Address, "user": h.User, "keyFile": h.KeyFile(), "knownHostsFile": h.KnownHostsFile(), "pool": h.Pool,
	}
}

// EditHost edits the one host of a configuration.
func EditHost(edit func(host map[string]any)) func(config map[string]any) {
	return func(config map[string]any) { edit(config["hosts"].([]any)[0].(map[string]any)) }
}

// Open opens the provider over a configuration.
func (b *Bed) Open(t testing.TB, fleet string, config json.RawMessage) provider.Provider {
	t.Helper()
	p, err := b.New(Environment(t, fleet), config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Environment is that of a provider whose log is the test's.
func Environment(t testing.TB, fleet string) provider.Environment {
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	return provider.Environment{Name: "vms", Fleet: fleet, Logger: logger}
}

// Shell runs a line of shell on the host.
func (b *Bed) Shell(t testing.TB, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	out, err := b.Exec(ctx, "sh", "-c", line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Clear removes all machines of the host.
func (b *Bed) Clear(t testing.TB) {
	t.Helper()
	b.Shell(t, `for d in $(virsh list --all --name); do virsh --quiet destroy $d; virsh --quiet undefine --nvram $d; done
		rm -f /var/lib/libvirt/images/fleet/proxy-*; virsh --quiet pool-refresh fleet`)
}

// WantNothingOf says that the host has no domain, volume or NVRAM of a machine.
func (b *Bed) WantNothingOf(t testing.TB, name string) {
	t.Helper()
	for _, line := range []string{
		"virsh list --all --name", "virsh vol-list " + b.Pool, "ls /var/lib/libvirt/images/fleet /var/lib/libvirt/qemu/nvram || true",
	} {
		if out := b.Shell(t, line); strings.Contains(out, name) {
			t.Errorf("%s still has %s:\n%s", line, name, out)
		}
	}
}

// WantNothingLeft says at the end of a test that it has left no goroutine here and no connection to the host.
func (b *Bed) WantNothingLeft(t testing.TB) {
	t.Helper()
	b.Start(t)
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		Await(t, 15*time.Second, "no goroutine is left", func() (bool, error) {
			now := runtime.NumGoroutine()
			return now <= before, fmt.Errorf("%d, and before %d", now, before)
		})
		Await(t, 15*time.Second, "no connection is left", func() (bool, error) {
			left := b.Shell(t, "ss --no-header --tcp state established sport = :22")
			return left == "", errors.New(left)
		})
	})
}

// Serve serves at an address of this machine until the test ends, and returns the URL.
func Serve(t testing.TB, ip string, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// ServeImage serves an image until the test ends, and returns its URL.
func ServeImage(t testing.TB, image []byte) string {
	t.Helper()
	return Serve(t, "127.0.0.1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(image)))
		_, _ = w.Write(image)
	}))
}

// Sum is the checksum of an image as a configuration has it.
func Sum(image []byte) string {
	digest := sha256.Sum256(image)
	return hex.EncodeToString(digest[:])
}

// BlankImage is as good as any other for machines that need not boot.
func BlankImage() []byte { return bytes.Repeat([]byte("proxyfleet"), 1<<10) }
