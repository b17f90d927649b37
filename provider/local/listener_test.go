package local

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"

	"github.com/proxyfleet/fleet/provider"
)

// Environment variables never send connections elsewhere. That the transport has no proxy at all is what a test can see:
// for destinations on loopback it would not use one.
func TestTransportHasNoProxy(t *testing.T) {
	f := newForwarder(newGate(nil), &dialer{conns: newConns()}, slog.New(slog.DiscardHandler))
	if f.proxy.Tr.Proxy != nil || f.proxy.ConnectDial != nil || f.proxy.ConnectDialWithReq != nil {
		t.Error("the proxy library has a proxy of its own to go through")
	}
	if c := f.proxy.Tr.TLSClientConfig; c != nil && c.InsecureSkipVerify {
		t.Error("the proxy library verifies no certificate")
	}
}

// A client that never finishes is cut off when the time for that is over.
func TestDrainEnds(t *testing.T) {
	r := record{Address: netip.MustParseAddr("127.0.0.1")}
	l, err := listen(r, netip.Addr{}, guard{}, newGate(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer far.Close()
	c := l.conns.add(near, true)
	go func() {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.drain(ctx)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client's read ended with %v, want EOF", err)
	}
}

func TestListenerThatFails(t *testing.T) {
	l := &listener{server: new(http.Server), ended: make(chan struct{})}
	l.serve(failingListener{}, slog.New(slog.DiscardHandler))
	p := &listeners{settings: settings{pool: pool{listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}}
	in := &instance{record: record{Address: netip.MustParseAddr("127.0.0.1")}, listener: l}
	if v := p.view(in); v.State != provider.Stopped || v.Reason != listenerFailed || v.Host != "" {
		t.Errorf("the instance is %+v, want Stopped", v)
	}
}

// Whatever a file says, nobody listens for other hosts without credentials.
func TestNeverAnOpenProxy(t *testing.T) {
	exposed := netip.MustParseAddr("192.0.2.1")
	p := &listeners{fleet: "lab", settings: settings{pool: pool{listen: []netip.Addr{exposed}}, exposed: true}}
	in := &instance{record: record{Fleet: "lab", Address: exposed, Port: 3128}, gate: newGate(nil)}
	p.serve(in)
	if in.listener != nil || in.failure != nil {
		t.Errorf("it was tried to listen at %v: %v", exposed, in.failure)
	}
	if v := p.view(in); v.State != provider.Stopped {
		t.Errorf("the instance is %+v, want Stopped, so that the fleet makes another", v)
	}
	in.Login = new(login)
	if !p.permits(in.record) {
		t.Error("with credentials it may not listen either")
	}
}

type failingListener struct{}

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("gone") }
func (failingListener) Close() error              { return nil }
func (failingListener) Addr() net.Addr            { return &net.TCPAddr{} }

// Run does not return before connections have ended that a Delete has cut.
func TestRunWaitsForWhatDeleteCut(t *testing.T) {
	made, err := New(provider.Environment{Fleet: "lab", StateDir: t.TempDir()}, []byte(`{"addresses":["127.0.80.1"]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*listeners)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	free, err := net.Listen("tcp", "127.0.80.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	r := provider.Request{Name: "proxy-a", Marks: provider.Marks{Fleet: "lab", UID: "a"}, Port: port}
	in, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	set := p.instances["proxy-a"].listener.conns
	near, far := net.Pipe()
	defer far.Close()
	c := set.add(near, true)
	go func() {
		_, _ = io.Copy(io.Discard, c)
		for range 1000 {
			runtime.Gosched()
		}
		_ = c.Close()
	}()
	if err := p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: "a"}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	select {
	case <-set.drain():
	default:
		t.Error("Run returned, and a connection is still open")
	}
}
