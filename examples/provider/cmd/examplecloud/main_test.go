package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
)

// asCommand lets the binary of the test be the command, so that a test can kill it.
const asCommand = "EXAMPLECLOUD_AS_COMMAND"

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
	cmd := exec.Command(os.Args[0], append([]string{"-listen", "127.0.0.1:0"}, args...)...)
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

func call(t *testing.T, method, url, body string) (status int, said cloud.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
			t.Fatal(err)
		}
	}
	return response.StatusCode, said
}

func TestInstancesOutliveTheCommand(t *testing.T) {
	cloudtest.NeedTinyproxy(t)
	dir := t.TempDir()
	t.Cleanup(func() { cloudtest.Purge(t, dir) })
	args := []string{"-dir", dir, "-boot", "1ms", "-stop", "1ms"}
	const path = "/v1/zones/b/instances"

	cmd, url := launch(t, args...)
	_, made := call(t, http.MethodPost, url+path, `{"name": "one"}`)
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		if err := cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err == nil) != (end == syscall.SIGTERM) {
			t.Errorf("after %v the command ended with %v", end, err)
		}
		cmd, url = launch(t, args...)
		if status, found := call(t, http.MethodGet, url+path+"/one", ""); status != http.StatusOK || found.ID != made.ID {
			t.Errorf("after %v there is %d %+v, want %d", end, status, found, made.ID)
		}
	}

	if err := run(t.Context(), append(args, "-purge"), t.Output(), t.Output()); err == nil {
		t.Error("-purge went at the directory of a cloud that runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := run(t.Context(), append(args, "-purge"), t.Output(), t.Output()); err != nil {
		t.Error(err)
	}
	_, url = launch(t, args...)
	if status, _ := call(t, http.MethodGet, url+path+"/one", ""); status != http.StatusNotFound {
		t.Errorf("after -purge a get is answered with %d, want 404", status)
	}
}

func TestRunRefuses(t *testing.T) {
	cloudtest.NeedTinyproxy(t)
	dir := t.TempDir()
	tests := map[string]struct {
		args []string
		want string
	}{
		"no directory":        {nil, "dir is required"},
		"all addresses":       {[]string{"-dir", dir, "-listen", ":0"}, "-listen"},
		"another address":     {[]string{"-dir", dir, "-listen", "192.0.2.1:80"}, "-listen"},
		"an argument":         {[]string{"-dir", dir, "start"}, `"start"`},
		"an unknown flag":     {[]string{"-size", "3"}, "-size"},
		"a zone without name": {[]string{"-dir", dir, "-zones", "a,,b"}, `zone ""`},
		"a file as directory": {[]string{"-dir", os.Args[0]}, os.Args[0]},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tt.args, &out, &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
		})
	}
}
