package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
	"github.com/proxyfleet/fleet/secret"
)

func TestRequestsFinishWhenRunEnds(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-finish
		_, _ = io.WriteString(w, "whole")
	}))
	defer target.Close()
	p, stop := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}, AllowedDestinations: []string{"127.0.0.1"}})
	in := create(t, p, request("one", freePort(t), provider.Credentials{}))
	answer := make(chan string)
	go func() {
		resp, err := client(t, in, nil).Get(target.URL)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	<-started
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	for dialed := true; dialed; { // until it accepts no more
		c, err := net.DialTimeout("tcp", addressOf(in), limit)
		if dialed = err == nil; dialed {
			_ = c.Close()
		}
	}
	close(finish)
	if got := <-answer; got != "whole" {
		t.Errorf("the request under way ended with %q", got)
	}
	<-stopped
	_, err := p.Get(t.Context(), refOf(in))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "NotRunning" {
		t.Errorf("after Run, Get returned %v, want a transient NotRunning, which says nothing about the instance", err)
	}
}

// A restart changes nothing, and the right password is known although it stands in no file.
func TestRestart(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	dir := filepath.Join(t.TempDir(), "state")
	c := local.Config{Addresses: []string{"127.0.78.1-127.0.78.9"}, AllowedDestinations: []string{"127.0.0.1"}}
	right := credentials()
	p, stop := run(t, dir, c)
	in := create(t, p, request("one", freePort(t), right))
	stop()
	noSecret(t, dir, right)
	p, _ = run(t, dir, c)
	if diff := cmp.Diff(in, get(t, p, in)); diff != "" {
		t.Errorf("instance (-before +after):\n%s", diff)
	}
	for _, try := range []struct {
		user *url.Userinfo
		want int
	}{
		{url.UserPassword(right.Username.Reveal(), "guess"), http.StatusProxyAuthRequired},
		{userinfo(right), http.StatusNotFound},
		{url.UserPassword(right.Username.Reveal(), "guess"), http.StatusProxyAuthRequired},
	} {
		resp, err := client(t, in, try.user).Get(target.URL)
		if body(t, resp, err); resp.StatusCode != try.want {
			t.Errorf("status %d, want %d", resp.StatusCode, try.want)
		}
	}
}

// noSecret looks for credentials in all files of a directory.
func noSecret(t *testing.T, dir string, c provider.Credentials) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for _, s := range []secret.Text{c.Username, c.Password} {
			if strings.Contains(string(text), s.Reveal()) {
				t.Errorf("%s holds a secret", path)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// An address that is taken for a while loses nobody's instance.
func TestAddressTakenAtRestart(t *testing.T) {
	dir := t.TempDir()
	c := local.Config{Addresses: []string{"127.0.78.1"}}
	p, stop := run(t, dir, c)
	in := create(t, p, request("one", freePort(t), provider.Credentials{}))
	stop()
	other, err := net.Listen("tcp", addressOf(in))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, _ = run(t, dir, c)
	now := get(t, p, in)
	if now.State != provider.Provisioning || now.Reason != "AddressUnavailable" || now.Message == "" || now.Incarnation != in.Incarnation {
		t.Errorf("while its address is taken the instance is %+v, want Provisioning and why", now)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, get(t, p, in)); diff != "" {
		t.Errorf("instance (-before +after):\n%s", diff)
	}
}

func TestAddressNoLongerConfigured(t *testing.T) {
	dir := t.TempDir()
	p, stop := run(t, dir, local.Config{Addresses: []string{"127.0.78.1-127.0.78.2"}})
	port := freePort(t)
	in, stays := create(t, p, request("one", port, provider.Credentials{})), create(t, p, request("two", port, provider.Credentials{}))
	stop()
	p, _ = run(t, dir, local.Config{Addresses: []string{"127.0.78.2"}})
	if now := get(t, p, in); now.State != provider.Stopped || now.Reason != "AddressNotConfigured" {
		t.Errorf("without its address the instance is %+v, want Stopped", now)
	}
	if now := get(t, p, stays); now.State != provider.Running {
		t.Errorf("the other instance is %+v, want Running", now)
	}
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("the address still accepts connections")
	}
}

// What another fleet left in the state directory is not served, and does not use up addresses.
func TestForeignInstances(t *testing.T) {
	dir := t.TempDir()
	c := local.Config{Addresses: []string{"127.0.78.1"}}
	theirs := open(t, provider.Environment{Fleet: "another", StateDir: dir}, c)
	stop := runUntilStopped(t, theirs)
	r := request("one", freePort(t), provider.Credentials{})
	foreign := r
	foreign.Name, foreign.Marks.Fleet = "proxy-foreign", "another"
	in := create(t, theirs, foreign)
	stop()
	p, _ := run(t, dir, c)
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List returned %v, %v, want nothing", all, err)
	}
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("the instance of another fleet accepts connections")
	}
	create(t, p, r)
	if _, err := os.Stat(filepath.Join(dir, foreign.Name+".json")); err != nil {
		t.Errorf("the file of the other fleet: %v", err)
	}
}

func TestAddressesRunOut(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1-127.0.78.3"}})
	port := freePort(t)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.78.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var first provider.Instance
	for i, want := range []string{"127.0.78.2", "127.0.78.3"} {
		in := create(t, p, request(want, port, provider.Credentials{}))
		if in.Host != want {
			t.Errorf("instance %d is at %s, want %s, the first that is free", i, in.Host, want)
		}
		if i == 0 {
			first = in
		}
	}
	next := request("next", port, provider.Credentials{})
	_, err = p.Create(t.Context(), next)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "AddressUnavailable" {
		t.Errorf("Create where the last free address is in use returned %v, want a transient AddressUnavailable", err)
	}
	create(t, p, request("elsewhere", freePort(t), provider.Credentials{}))
	_, err = p.Create(t.Context(), next)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrQuotaExceeded || e.Reason != "NoFreeAddress" {
		t.Errorf("Create without a free address returned %v, want a quota", err)
	}
	if err := p.Delete(t.Context(), refOf(first)); err != nil {
		t.Fatal(err)
	}
	if in := create(t, p, next); in.Host != first.Host {
		t.Errorf("the next instance is at %s, want %s, which became free", in.Host, first.Host)
	}
}

func TestExposedProxiesNeedCredentials(t *testing.T) {
	p := open(t, provider.Environment{Fleet: fleetID, StateDir: t.TempDir()}, local.Config{
		Addresses: []string{"127.0.78.1", "192.0.2.1"}, AllowNonLoopback: true,
	})
	_, err := p.Plan(request("one", 3128, provider.Credentials{}))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Reason != provider.MissingField || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("Plan without credentials returned %v, want a MissingField that names them", err)
	}
	if _, err := p.Plan(request("one", 3128, credentials())); err != nil {
		t.Errorf("Plan with credentials: %v", err)
	}
}

// The slow hash is made outside the mutex, where another create may overtake it.
func TestCreatesAtOnceWithCredentials(t *testing.T) {
	raw, err := json.Marshal(local.Config{Addresses: []string{"127.0.78.1-127.0.78.9"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(provider.Environment{Fleet: fleetID, StateDir: t.TempDir()}, raw)
	if err != nil {
		t.Fatal(err)
	}
	runUntilStopped(t, p)
	r := request("one", freePort(t), credentials())
	var made [3]provider.Instance
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			in, err := p.Create(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			made[i] = in
		})
	}
	group.Wait()
	for _, in := range made[1:] {
		if diff := cmp.Diff(made[0], in); diff != "" {
			t.Errorf("two creates returned (-one +other):\n%s", diff)
		}
	}
}

// A state directory that takes no file costs an attempt and leaves nothing behind.
func TestUnwritableState(t *testing.T) {
	dir := t.TempDir()
	p, stop := run(t, dir, local.Config{Addresses: []string{"127.0.78.1"}})
	r := request("one", freePort(t), provider.Credentials{})
	create(t, p, request("other", r.Port, provider.Credentials{})) // Run has prepared the directory by now
	if err := p.Delete(t.Context(), provider.Ref{ID: "listeners/" + provider.Name(fleetID, "other"), UID: "other"}); err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(dir, r.Name+".json.part")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := p.Create(t.Context(), r)
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "StateUnwritable" {
		t.Errorf("Create returned %v, want a transient StateUnwritable", err)
	}
	if _, err := p.Get(t.Context(), provider.Ref{ID: "listeners/" + r.Name, UID: "one"}); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get returned %v, want NotFound", err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	create(t, p, r)
	stop()
}

// The address of a deleted proxy is free when Delete returns, for this provider and for others.
func TestDeletedAddressIsFree(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}})
	r := request("one", freePort(t), provider.Credentials{})
	for range 50 {
		in := create(t, p, r)
		if err := p.Delete(t.Context(), refOf(in)); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addressOf(in))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, state, config, want string
	}{
		{"no state directory", "", `{"addresses":["127.0.0.1"]}`, "no state directory"},
		{"no configuration", t.TempDir(), ``, "config.addresses: at least one"},
		{"foreign file", dir, `{"addresses":["127.0.0.1"]}`, "notes.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := local.New(provider.Environment{Fleet: fleetID, StateDir: c.state}, []byte(c.config))
			if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New returned %v and %v, want an error that says %q", p, err, c.want)
			}
		})
	}
}

func TestRunsOnce(t *testing.T) {
	p, stop := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1"}})
	create(t, p, request("one", freePort(t), provider.Credentials{}))
	runner, _ := provider.As[provider.Runner](p)
	if err := runner.Run(t.Context()); err == nil {
		t.Error("a second Run returned no error")
	}
	stop()
}

// A fleet leases nothing until the listeners of before are open.
func TestOpened(t *testing.T) {
	p := open(t, provider.Environment{Fleet: "home", StateDir: t.TempDir()}, local.Config{Addresses: []string{"127.0.0.1"}})
	opener := p.(provider.Opener)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := opener.Opened(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("before Run: %v, want %v", err, context.Canceled)
	}
	defer runUntilStopped(t, p)()
	if err := opener.Opened(t.Context()); err != nil {
		t.Errorf("while it runs: %v", err)
	}
}

// Two processes that work on the same files would undo what the other one does.
func TestStateDirectoryIsHeld(t *testing.T) {
	env := provider.Environment{Fleet: "home", StateDir: t.TempDir()}
	config := local.Config{Addresses: []string{"127.0.0.1"}}
	first := open(t, env, config)
	stop := runUntilStopped(t, first)
	if err := first.(provider.Opener).Opened(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := open(t, env, config) // which only looks
	err := second.(provider.Runner).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), env.StateDir+": is in use by another process") {
		t.Errorf("the second one: %v", err)
	}
	stop()
	third := open(t, env, config)
	defer runUntilStopped(t, third)()
	if err := third.(provider.Opener).Opened(t.Context()); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
}
