package local_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
)

// check returns the verdicts of a provider, a line each: the target, and unless it is ready the reason.
func check(t *testing.T, p provider.Provider) []string {
	t.Helper()
	var lines []string
	for _, v := range verdicts(t, p, limit) {
		lines = append(lines, strings.TrimSpace(v.Target+" "+v.Reason))
		if v.Ready != (v.Reason == "") || v.Ready != (v.Message == "") {
			t.Errorf("%+v: a reason and a message are for what is not ready", v)
		}
	}
	return lines
}

func verdicts(t *testing.T, p provider.Provider, timeout time.Duration) []provider.TargetStatus {
	t.Helper()
	checker, ok := provider.As[provider.Checker](p)
	if !ok {
		t.Fatal("the provider has no Check")
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return checker.Check(ctx)
}

func wantCheck(t *testing.T, p provider.Provider, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, check(t, p)); diff != "" {
		t.Errorf("%s: the verdicts (-want +got):\n%s", when, diff)
	}
}

// take listens where a proxy could, as another program would, until the test ends or it is closed.
func take(t *testing.T, host string, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Each entry of the configuration is a target. That all of its addresses have a proxy is no fault.
func TestCheckReady(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{
		Addresses:       []string{"127.0.78.1 - 127.0.78.2", "127.0.78.4/31"},
		SourceAddresses: []string{"127.0.79.1-127.0.79.4"},
	})
	ready := []string{"listen:127.0.78.1-127.0.78.2", "listen:127.0.78.4/31", "source:127.0.79.1-127.0.79.4"}
	wantCheck(t, p, "without proxies", ready...)
	port := freePort(t)
	for i := range 4 {
		create(t, p, request(fmt.Sprint("uid-", i), port, provider.Credentials{}))
		wantCheck(t, p, fmt.Sprintf("with %d proxies", i+1), ready...)
	}
	if diff := cmp.Diff(map[string]string{"addresses": "4", "unusable": "0"}, verdicts(t, p, limit)[2].Details); diff != "" {
		t.Errorf("the details (-want +got):\n%s", diff)
	}
}

// Addresses that this host does not have, of either kind. 198.51.100.0/24 is for documentation.
func TestCheckAddressMissing(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{
		Addresses:        []string{"127.0.78.1", "198.51.100.1", "127.0.78.2"},
		SourceAddresses:  []string{"127.0.79.1", "127.0.79.2", "198.51.100.2"},
		AllowNonLoopback: true,
	})
	want := []string{
		"listen:127.0.78.1", "listen:198.51.100.1 AddressMissing", "listen:127.0.78.2",
		"source:127.0.79.1", "source:127.0.79.2", "source:198.51.100.2 AddressMissing",
	}
	wantCheck(t, p, "without proxies", want...)
	create(t, p, request("one", freePort(t), credentials()))
	wantCheck(t, p, "with a proxy", want...)
}

// An address where no proxy listens yet is tried at the port that proxies ask for.
func TestCheckPortInUse(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1-127.0.78.9", "127.0.78.11"}})
	port := freePort(t)
	create(t, p, request("one", port, provider.Credentials{}))
	const ready, more = "listen:127.0.78.1-127.0.78.9", "listen:127.0.78.11"
	other := take(t, "127.0.78.7", port)
	wantCheck(t, p, "while one port is taken", ready+" PortInUse", more)
	if got := verdicts(t, p, limit)[0]; !strings.Contains(got.Message, "1 of 9 addresses cannot be used: 127.0.78.7;") || got.Details["unusable"] != "1" {
		t.Errorf("the verdict is %+v, want the address named", got)
	}
	_ = other.Close()
	wantCheck(t, p, "when it is free again", ready, more)

	for i := 2; i <= 8; i++ {
		take(t, fmt.Sprint("127.0.78.", i), port)
	}
	wantCheck(t, p, "while many are taken", ready+" PortInUse", more)
	if got := verdicts(t, p, limit)[0].Message; !strings.Contains(got, "127.0.78.6 and 2 more;") {
		t.Errorf("the message is %q, want five addresses named and the others counted", got)
	}
}

// The port that counts is the one that most proxies ask for.
func TestCheckTriesTheUsualPort(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1-127.0.78.4"}})
	usual, odd := freePort(t), freePort(t)
	create(t, p, request("one", odd, provider.Credentials{}))
	create(t, p, request("two", usual, provider.Credentials{}))
	create(t, p, request("three", usual, provider.Credentials{}))
	other := take(t, "127.0.78.4", odd)
	wantCheck(t, p, "while the odd port is taken", "listen:127.0.78.1-127.0.78.4")
	_ = other.Close()
	take(t, "127.0.78.4", usual)
	wantCheck(t, p, "while the usual port is taken", "listen:127.0.78.1-127.0.78.4 PortInUse")
}

// A proxy that cannot listen at its address after a restart is seen, whatever port it has, and looking does not repair it.
func TestCheckOfATakenProxy(t *testing.T) {
	dir := t.TempDir()
	c := local.Config{Addresses: []string{"127.0.78.1", "127.0.78.2-127.0.78.3"}}
	p, stop := run(t, dir, c)
	in := create(t, p, request("one", freePort(t), provider.Credentials{}))
	usual := freePort(t)
	create(t, p, request("two", usual, provider.Credentials{}))
	create(t, p, request("three", usual, provider.Credentials{}))
	stop()
	other := take(t, in.Host, in.Port)
	p, _ = run(t, dir, c)
	wantCheck(t, p, "while another program listens there", "listen:127.0.78.1 PortInUse", "listen:127.0.78.2-127.0.78.3")
	_ = other.Close()
	wantCheck(t, p, "when the address is free again", "listen:127.0.78.1", "listen:127.0.78.2-127.0.78.3")
	if c, err := net.Dial("tcp", addressOf(in)); err == nil {
		_ = c.Close()
		t.Error("a check opened the listener")
	}
}

// A check that tries an address is not in the way of a proxy that is made there, nor takes it for another program.
func TestCheckWhileProxiesComeAndGo(t *testing.T) {
	p, _ := run(t, t.TempDir(), local.Config{Addresses: []string{"127.0.78.1-127.0.78.2"}})
	port := freePort(t)
	create(t, p, request("stays", port, provider.Credentials{}))
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					wantCheck(t, p, "while proxies come and go", "listen:127.0.78.1-127.0.78.2")
				}
			}
		})
	}
	for i := range 50 {
		in, err := p.Create(t.Context(), request(fmt.Sprint("uid-", i), port, provider.Credentials{}))
		if err != nil {
			t.Errorf("Create: %v", err)
			break
		}
		if err := p.Delete(t.Context(), refOf(in)); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	close(done)
	group.Wait()
}

// Checks go past what this process serves: listeners stay open, and so do their connections.
func TestCheckDisturbsNoProxy(t *testing.T) {
	p, in := one(t)
	c := tunnel(t, in)
	for range 20 {
		if got := check(t, p); got[0] != "listen:127.0.78.1-127.0.78.9" {
			t.Fatalf("the verdict is %q, want it ready", got)
		}
		tunnel(t, in)
	}
	if _, err := c.Write([]byte("again")); err != nil {
		t.Error(err)
	}
	echo := make([]byte, len("again"))
	if _, err := c.Read(echo); err != nil || string(echo) != "again" {
		t.Errorf("the tunnel echoes %q, %v", echo, err)
	}
}

func TestCheckWithoutRun(t *testing.T) {
	c := local.Config{Addresses: []string{"127.0.78.1"}, SourceAddresses: []string{"127.0.79.1"}}
	p := open(t, provider.Environment{Fleet: fleetID, StateDir: t.TempDir()}, c)
	for _, v := range verdicts(t, p, 10*time.Millisecond) {
		if v.Ready || v.Reason != "NotRunning" || v.Message == "" {
			t.Errorf("before Run the verdict is %+v, want NotRunning", v)
		}
	}
	runUntilStopped(t, p)()
	wantCheck(t, p, "after Run", "listen:127.0.78.1 NotRunning", "source:127.0.79.1 NotRunning")
}
