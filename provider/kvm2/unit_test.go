package kvm2

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
)

// What docs/kvm2-provider.md says of time.
func TestBudgets(t *testing.T) {
	want := libvirt.Budgets{Dial: 10 * time.Second, RPC: 30 * time.Second, Start: 90 * time.Second, Seed: time.Minute, Image: 20 * time.Minute}
	if diff := cmp.Diff(want, budgets()); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if delays := (&machines{}).Delays(); delays.Call < budgets().Start || delays.Settle <= delays.Call {
		t.Errorf("a create has %+v, which its start alone may use up", delays)
	}
}

// configFor is a configuration of one host, which need not exist.
func configFor(address, key, known string) []byte {
	return []byte(`{"hosts": [{"name": "one", "address": "` + address + `", "user": "fleet", "keyFile": "` + key + `", "knownHostsFile": "` + known + `"}],
		"images": [{"name": "i", "url": "http://127.0.0.1/i", "sha256": "` + strings.Repeat("0", 64) + `"}],
		"machineTypes": [{"name": "m", "cpus": 1, "memoryMiB": 512}]}`)
}

// Files that are not there are a warning at the start, for they may come later, and until then a wait.
func TestMissingFiles(t *testing.T) {
	const key, known = "/nonexistent/id", "/nonexistent/known_hosts"
	var log bytes.Buffer
	p, err := New(provider.Environment{Fleet: "f", Logger: slog.New(slog.NewTextHandler(&log, nil))}, configFor("127.0.0.1:1", key, known))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{key, known} {
		if strings.Count(log.String(), "level=WARN") != 2 || !strings.Contains(log.String(), "file="+file) {
			t.Errorf("the log does not warn of %s:\n%s", file, &log)
		}
	}
	_, err = p.List(t.Context())
	wantFailure(t, err, provider.ErrTransient, libvirt.KeyUnreadable)

	log.Reset()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(provider.Environment{Fleet: "f", Logger: slog.New(slog.NewTextHandler(&log, nil))}, configFor("127.0.0.1:1", file, file)); err != nil || log.Len() > 0 {
		t.Errorf("New returned %v and logged %s", err, &log)
	}
	if _, err := New(provider.Environment{Fleet: "f"}, []byte(`{"hosts": []}`)); err == nil || !strings.Contains(err.Error(), "images: want at least one") {
		t.Errorf("New of a configuration with nothing in it: %v", err)
	}
}

// A host that takes the connection and says nothing costs a dial's budget, also where the call has no end of its own.
func TestSilentHost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	key, known := keyPair(t)
	p, err := open(provider.Environment{Fleet: "f"}, configFor(listener.Addr().String(), key, known), libvirt.Budgets{Dial: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.List(t.Context())
	wantFailure(t, err, provider.ErrTransient, libvirt.HostUnreachable)
	if all := p.Check(t.Context()); len(all) != 1 || all[0].Ready || all[0].Reason != libvirt.HostUnreachable {
		t.Errorf("Check returned %+v", all)
	}
}

func wantFailure(t testing.TB, err error, class provider.Class, reason string) {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != class || e.Reason != reason {
		t.Errorf("the error is %v (%+v), want class %s and reason %s", err, e, class, reason)
	}
}
