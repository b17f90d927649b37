package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
	"github.com/proxyfleet/fleet/lease"
)

// asCommand lets the binary of the test be the command, so that a test can end it by a signal.
const asCommand = "EXAMPLEFLEET_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// launch starts the command and returns when it serves.
func launch(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the command says %q: %v", url, err)
	}
	return cmd, strings.TrimSpace(url)
}

// awaitLeases returns when the fleet has granted leases of two proxies. It leases only what it has probed itself.
func awaitLeases(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fleet, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	leased := map[string]bool{}
	for {
		grant, err := fleet.Acquire(ctx, lease.Request{})
		for _, l := range grant.Leases {
			leased[l.Proxy.Name] = true
		}
		if len(leased) == 2 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("leases were granted of %v only; the last answer is %v", leased, err)
		}
	}
}

// The documents of the tutorial become proxies that can be leased, and the next command finds their instances again.
func TestFleetOfTheTutorial(t *testing.T) {
	toy, url := cloudtest.Start(t, cloud.Config{Boot: time.Millisecond, Stop: time.Millisecond})
	text, err := os.ReadFile("../../fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(documents, bytes.ReplaceAll(text, []byte("http://127.0.0.1:9080"), []byte(url)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd, url := launch(t, "-f", documents, "-state", filepath.Join(filepath.Dir(documents), "fleet.db"), "-port", "0")
		awaitLeases(t, url)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM the command ended with %v", err)
		}
	}
	if made := toy.History(); len(made) != 2 || made[0].Zone == made[1].Zone {
		t.Errorf("there were the instances %+v, want one in each of two zones", made)
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	nameless := filepath.Join(dir, "nameless.yaml")
	if err := os.WriteFile(nameless, []byte("{apiVersion: crawl.example.com/v1alpha1, kind: FleetConfiguration}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no documents":    {[]string{"-f", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		"no identity":     {[]string{"-f", nameless}, "fleetID"},
		"an unknown flag": {[]string{"-size", "3"}, "-size"},
		"an argument":     {[]string{"start"}, `"start"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), append([]string{"-state", filepath.Join(dir, "fleet.db")}, tt.args...), &out, &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
		})
	}
}
