package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// newOptions are those of a fleet without proxies in a folder of its own.
func newOptions(t *testing.T) runOptions {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: home\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var o runOptions
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse([]string{"-f", file, "--listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	return o
}

func readiness(s *standalone) (status int, answer string) {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

func awaitReadiness(t *testing.T, s *standalone) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, answer := readiness(s)
		if status == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("readiness is %d: %s", status, answer)
		}
	}
}

// A fleet that can write no more would lease what it once knew for ever. It says so and ends; the next start opens the
// file again.
func TestEndsWhenTheStateFileFails(t *testing.T) {
	var log journal
	o := newOptions(t)
	s, err := openStandalone(t.Context(), o, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context()) }()
	awaitReadiness(t, s)
	if err := os.Truncate(o.statePath(), int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	_, failure := s.store.Put(t.Context(), proxy.Key{Namespace: "default", Name: "a"}, proxy.Declaration{Spec: proxy.Spec{Provider: "x"}}, "test")
	if failure == nil {
		t.Fatal("a file that was cut short takes a write")
	}
	if status, answer := readiness(s); status != http.StatusServiceUnavailable || !strings.Contains(answer, "takes no more writes") {
		t.Errorf("readiness is %d: %s", status, answer)
	}
	if err := <-ended; err == nil || !errors.Is(err, s.store.Err()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("it ends with %v, want %v once", err, s.store.Err())
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged, want 1:\n%s", n, log.String())
	}
}

// The same holds for the lease file: a lease that may be forgotten is none.
func TestEndsWhenTheLeaseFileFails(t *testing.T) {
	var log journal
	o := newOptions(t)
	s, err := openStandalone(t.Context(), o, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context()) }()
	awaitReadiness(t, s)
	if err := os.Truncate(o.leasesPath(), int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	s.fleet.Leases().Set(lease.Candidate{Key: "default/a", MaxLeases: 1, Healthy: true})
	if _, err := s.fleet.Leases().Acquire(t.Context(), lease.Request{}); !errors.Is(err, lease.ErrNotReady) {
		t.Errorf("Acquire: %v, want %v", err, lease.ErrNotReady)
	}
	if status, answer := readiness(s); status != http.StatusServiceUnavailable || !strings.Contains(answer, "lease file") {
		t.Errorf("readiness is %d: %s", status, answer)
	}
	if err := <-ended; err == nil || !errors.Is(err, s.leases.Err()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("it ends with %v, want %v once", err, s.leases.Err())
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged, want 1:\n%s", n, log.String())
	}
}

// A start that is interrupted is no failure, and the next one goes on.
func TestInterruptedStart(t *testing.T) {
	o := newOptions(t)
	file, err := os.OpenFile(o.files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\nspec: {provider: x}\n")
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := newRun(nil)
	cmd.SetArgs([]string{"-f", o.files[0], "--listen", "127.0.0.1:0"})
	cmd.SetErr(t.Output())
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Errorf("the command fails: %v", err)
	}
	if _, err := openStandalone(ctx, o, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("openStandalone returns %v, want %v", err, context.Canceled)
	}
	s, err := openStandalone(t.Context(), o, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.discard(); err != nil {
		t.Error(err)
	}
}
