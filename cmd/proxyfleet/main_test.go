package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/app"
	"github.com/proxyfleet/fleet/discovery/client"
	examplecloud "github.com/proxyfleet/fleet/examples/provider"
	"github.com/proxyfleet/fleet/secret"
)

// asProgram lets the binary of the test be the program, so that a test can kill it.
const asProgram = "PROXYFLEET_AS_PROGRAM"

// The program of the tests also knows the example cloud, whose instances outlive it.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		for _, variable := range os.Environ() { // of whoever works with a fleet of their own
			if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PROXYFLEET_") || strings.HasPrefix(name, "OTEL_") {
				_ = os.Unsetenv(name)
			}
		}
		flag.Parse()
		if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue { // most tests wait most of the time
			_ = parallel.Value.Set(strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
		}
		os.Exit(m.Run())
	}
	known := types()
	known["example"] = app.ProviderType{New: examplecloud.New, Outlives: true}
	os.Exit(app.Main(os.Args[1:], known, os.Stdout, os.Stderr))
}

// patience bounds whatever a test waits for. It is for machines that have other things to do.
const patience = 4 * time.Minute

// eventually asks until the answer is "", which is what is missing, and fails the test when patience is at its end.
func eventually(t *testing.T, missing func() string) {
	t.Helper()
	within(t, patience, 20*time.Millisecond, missing)
}

// within does so with another patience, and asks as often as said.
func within(t *testing.T, patience, every time.Duration, missing func() string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		what := missing()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited for %v, and still: %s", patience, what)
		}
	}
}

// command returns the program, ready to be started.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each call takes a second
	return cmd
}

// result is how a call of the program ended.
type result struct {
	stdout, stderr string
	code           int
}

// call runs the program to its end.
func call(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// server is a fleet that runs in a process of its own.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	reap   func() // returns when the process has ended
	log    *journal
	url    string
	client *client.Client
}

// launch starts a fleet.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, log: new(journal)}
	s.cmd = command(t.Context(), append([]string{"run", "--listen", "127.0.0.1:0", "--log-level", "debug"}, args...)...)
	s.cmd.Stderr = s.log
	s.reap = sync.OnceFunc(func() { _ = s.cmd.Wait() })
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		for what, unwanted := range map[string]string{"a password in clear": planted, "a race": "DATA RACE", "a panic": "panic"} {
			if strings.Contains(s.log.String(), unwanted) {
				t.Errorf("the log holds %s", what)
			}
		}
		if t.Failed() {
			t.Logf("the log of %v:\n%s", args, s.log.brief())
		}
	})
	return s
}

// serving waits until the fleet serves.
func (s *server) serving() *server {
	s.t.Helper()
	return s.servingWith("")
}

// servingWith does so of one that wants a token.
func (s *server) servingWith(token string) *server {
	s.t.Helper()
	eventually(s.t, func() string {
		if s.url = s.log.find("serving", "url"); s.url == "" {
			return "it does not serve: " + s.log.String()
		}
		return ""
	})
	var err error
	if s.client, err = client.New(client.Config{BaseURL: s.url, Token: secret.New(token)}); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// kill ends the process as kill -9 does.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	s.reap()
}

// signal sends a signal.
func (s *server) signal(which syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
}

// wait returns how the process ended.
func (s *server) wait() *os.ProcessState {
	s.t.Helper()
	overdue := time.AfterFunc(patience, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) })
	defer overdue.Stop()
	s.reap()
	return s.cmd.ProcessState
}

// list returns the proxies by name.
func (s *server) list() map[string]client.Proxy {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	all, err := s.client.ListProxies(ctx, client.Filter{})
	if err != nil {
		s.t.Fatal(err)
	}
	byName := map[string]client.Proxy{}
	for _, p := range all {
		byName[p.Name] = p
	}
	return byName
}

// await waits until there are as many proxies as wanted, all of them in a phase.
func (s *server) await(count int, phase string) map[string]client.Proxy {
	s.t.Helper()
	var all map[string]client.Proxy
	eventually(s.t, func() string {
		all = s.list()
		ready := 0
		for _, p := range all {
			if p.Phase == phase {
				ready++
			}
		}
		if ready == count && len(all) == count {
			return ""
		}
		return fmt.Sprintf("want %d proxies that are %s, there are %d of %d: %+v", count, phase, ready, len(all), all)
	})
	return all
}

// awaitPhases waits until there are these proxies, each in its phase.
func (s *server) awaitPhases(want map[string]string) {
	s.t.Helper()
	eventually(s.t, func() string {
		got := map[string]string{}
		for name, p := range s.list() {
			got[name] = p.Phase
		}
		return cmp.Diff(want, got)
	})
}

// cli calls the program as a client of the fleet.
func (s *server) cli(args ...string) result {
	s.t.Helper()
	return call(s.t, append(args, "--server", s.url)...)
}

// journal takes a log in JSON.
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

// brief returns the end of the log, without the lines of requests: there are many, for tests wait by asking.
func (j *journal) brief() string {
	var lines []string
	for line := range strings.Lines(j.String()) {
		if !strings.Contains(line, `"msg":"request"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-50):], "")
}

// find returns an attribute of the last line with a message, or "".
func (j *journal) find(message, attribute string) string {
	value := ""
	for line := range strings.Lines(j.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			text, _ := json.Marshal(entry[attribute])
			value = strings.Trim(string(text), `"`)
		}
	}
	return value
}
