package kvm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/kvm"
)

// bed is the hypervisor and the guest's image that all tests of this package share.
type bed struct {
	*hypervisor.Host
	image []byte
}

var (
	startBed = sync.OnceValues(func() (*bed, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		path, err := hypervisor.Image(ctx)
		if err != nil {
			return nil, err
		}
		image, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		host, err := hypervisor.Start(ctx)
		if err != nil {
			return nil, err
		}
		started = host
		return &bed{host, image}, nil
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

// realBed returns the hypervisor, or skips the test where there can be none.
func realBed(t testing.TB) *bed {
	t.Helper()
	b, err := startBed()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	return b
}

// serve serves the guest's image where the provider finds it, and returns its URL.
func (b *bed) serve(t testing.TB, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String() + "/tiny.qcow2"
}

func (b *bed) imageServer() http.Handler { return content(b.image) }

// content serves some bytes.
func content(c []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(c)))
		_, _ = w.Write(c)
	})
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// open opens the provider over a host, with changes to its configuration.
func (b *bed) open(t testing.TB, fleet, imageURL string, edits ...func(map[string]any)) provider.Provider {
	t.Helper()
	host := map[string]any{
		"name": "one", "address": b.Address, "user": b.User, "keyFile": b.KeyFile(), "knownHostsFile": b.KnownHostsFile(), "pool": b.Pool,
	}
	config := map[string]any{
		"hosts":        []any{host},
		"images":       []any{map[string]any{"name": "tiny", "url": imageURL, "sha256": sum(b.image), "firmware": "bios"}},
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
	p, err := kvm.New(provider.Environment{Name: "vms", Fleet: fleet, Logger: logger(t)}, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listen listens at an address of this machine.
func listen(t testing.TB, ip string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
