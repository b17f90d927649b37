package kvm_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// cloudInit has the tiny guest run tinyproxy.
const cloudInit = `#cloud-config
write_files:
- path: /etc/tinyproxy.conf
  content: |
    Port 3128
    Timeout 60
    DisableViaHeader Yes
    StatFile "/usr/share/tinyproxy/stats.html"
runcmd:
- [tinyproxy, -c, /etc/tinyproxy.conf]
`

// run runs a provider until the test ends.
func run(t testing.TB, p provider.Provider) {
	t.Helper()
	runner, ok := provider.As[provider.Runner](p)
	if !ok {
		t.Fatal("the provider is no Runner")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func request(fleet, uid string) provider.Request {
	return provider.Request{
		Name: provider.Name(fleet, uid), Marks: provider.Marks{Fleet: fleet, UID: uid, Hash: "v1-1"}, Token: uid,
		Port: 3128, CloudInit: secret.New(cloudInit),
	}
}

// await calls until it returns true, or ends the test.
func await(t testing.TB, atMost time.Duration, what string, done func() (bool, error)) {
	t.Helper()
	deadline := time.After(atMost)
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		ok, err := done()
		if ok {
			return
		}
		select {
		case <-ticks.C:
		case <-deadline:
			t.Fatalf("after %v it was not true that %s: %v", atMost, what, err)
		}
	}
}

// made creates an instance, and waits until its image is there.
func made(t testing.TB, p provider.Provider, r provider.Request) provider.Instance {
	t.Helper()
	var in provider.Instance
	await(t, 2*time.Minute, "the instance is made", func() (_ bool, err error) {
		in, err = p.Create(t.Context(), r)
		return err == nil && in.Incarnation != "", fmt.Errorf("%s %s: %w", in.Reason, in.Message, err)
	})
	return in
}

func refOf(in provider.Instance) provider.Ref {
	return provider.Ref{ID: in.ID, UID: in.Marks.UID, Incarnation: in.Incarnation}
}

func TestLifeOfAMachine(t *testing.T) {
	b := realBed(t)
	p := b.open(t, "fleet-life", b.serve(t, b.imageServer()))
	run(t, p)
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	target.Listener = listen(t, b.Gateway)
	target.Start()
	defer target.Close()

	in := made(t, p, request("fleet-life", "uid-1"))
	await(t, 2*time.Minute, "the machine has an address", func() (_ bool, err error) {
		in, err = p.Get(t.Context(), refOf(in))
		return in.State == provider.Running, fmt.Errorf("%s %s %w", in.State, in.Message, err)
	})
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: in.Host + ":3128"}), DisableKeepAlives: true,
	}}
	await(t, 2*time.Minute, "its proxy answers", func() (bool, error) {
		response, err := client.Get(target.URL)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body) == "hello", err
	})
	if err := p.Delete(t.Context(), refOf(in)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(t.Context(), refOf(in)); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get after Delete: %v, want not found", err)
	}
	b.wantNothingOf(t, provider.Name("fleet-life", "uid-1"))
}

// wantNothingOf says that the host has no domain, volume or NVRAM of a machine.
func (b *bed) wantNothingOf(t testing.TB, name string) {
	t.Helper()
	for _, command := range [][]string{
		{"virsh", "list", "--all", "--name"}, {"virsh", "vol-list", b.Pool}, {"ls", "/var/lib/libvirt/images/fleet", "/var/lib/libvirt/qemu/nvram"},
	} {
		out, _ := b.Exec(t.Context(), command...)
		if strings.Contains(out, name) {
			t.Errorf("%s still has %s:\n%s", strings.Join(command, " "), name, out)
		}
	}
}

// A machine whose disk cannot be written to any more is paused by QEMU; the fleet is told why, and replaces it.
func TestDiskFull(t *testing.T) {
	b := realBed(t)
	p := b.open(t, "fleet-full", b.serve(t, b.imageServer()))
	run(t, p)
	r := request("fleet-full", "uid-full")
	r.CloudInit = secret.New("#cloud-config\nruncmd:\n- dd if=/dev/zero of=/dev/vda bs=1M count=100 conv=fsync\n")
	r.Placement.DiskSizeGb = 1
	in := made(t, p, r)
	const ballast = `cd /var/lib/libvirt/images/fleet; free=$(df --output=avail -k . | tail -1); dd if=/dev/zero of=ballast bs=1k count=$((free - 40000)) status=none`
	if out, err := b.Exec(t.Context(), "sh", "-c", ballast); err != nil {
		t.Fatal(err, out)
	}
	defer func() {
		_, _ = b.Exec(context.WithoutCancel(t.Context()), "rm", "-f", "/var/lib/libvirt/images/fleet/ballast")
	}()
	await(t, 2*time.Minute, "the machine is paused", func() (_ bool, err error) {
		in, err = p.Get(t.Context(), refOf(in))
		return in.State == provider.Stopped, fmt.Errorf("%s %s: %w", in.State, in.Reason, err)
	})
	if in.Reason != "DiskFull" {
		t.Errorf("the machine is stopped for %s: %s", in.Reason, in.Message)
	}
	if err := p.Delete(t.Context(), refOf(in)); err != nil {
		t.Fatal(err)
	}
	b.wantNothingOf(t, r.Name)
}
