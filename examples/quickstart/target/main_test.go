package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asCommand lets the binary of the test be the command.
const asCommand = "TARGET_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns the target, ready to be started, on free ports, with the file of its CA.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, plain, secure, caFile string) {
	t.Helper()
	plain, caFile = free(), filepath.Join(t.TempDir(), "ca.pem")
	for secure = plain; secure == plain; {
		secure = free()
	}
	cmd = exec.Command(os.Args[0], append([]string{"-http", plain, "-https", secure, "-ca-file", caFile}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd, plain, secure, caFile
}

// free is an address that nobody listens on. Its port is below those that Linux gives to whoever takes any, so that nobody comes
// in between.
func free() string {
	for {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 31100+rand.IntN(1600))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
}

// It serves http and https while the command runs, tells it of a SIGTERM, and ends as it does.
func TestServesDuringACommand(t *testing.T) {
	cmd, plain, secure, caFile := command(t, "sh", "-c", `trap "exit 7" TERM; echo begun; while :; do sleep 0.1; done`)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "begun\n" {
		t.Fatalf("the command prints %q, %v", line, err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	crawler := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	for path, want := range map[string]int{"/": http.StatusOK, "/healthz": http.StatusNoContent} {
		for _, site := range []string{"http://" + plain, "https://" + secure} {
			answer, err := crawler.Get(site + path)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != want || want == http.StatusOK && string(text) != "You came from 127.0.0.1.\n" {
				t.Errorf("%s%s: %s, %q", site, path, answer.Status, text)
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the exit code is %d, want 7: that of the command", code)
	}
}

func TestRefusals(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no command", nil, 2, "target: say which command to run"},
		{"no such command", []string{"/nowhere"}, 1, "target: fork/exec /nowhere: no such file or directory\n"},
		{"port taken", []string{"-https", taken.Addr().String(), "true"}, 1, "address already in use\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, _, _, _ := command(t, test.args...)
			text, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(text), test.want) {
				t.Errorf("exit code %d, %q; want %d, %q", code, text, test.code, test.want)
			}
		})
	}
}
