package local

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener accepts one connection, which needs no network.
type pipeListener struct{ accepted chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// serveOne serves one connection in a bubble and returns the client's end.
func serveOne(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	socket := pipeListener{make(chan net.Conn, 1)}
	socket.accepted <- near
	server := newServer(t.Context(), h, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(func() { close(socket.accepted); _ = far.Close() })
	return far
}

// A client that stops in the middle of its request holds its connection for a while and no longer.
func TestStalledClients(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
	for _, c := range []struct {
		name  string
		sends string
		want  time.Duration
	}{
		{"nothing", "", headerTimeout},
		{"half a header", head, headerTimeout},
		{"no body", head + "\r\n", tunnelIdle},
		{"half a body", head + "\r\nbody", tunnelIdle},
		{"no further request", head + "\r\nwhole-bod", keepAlive},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForwarder(newGate(nil), &dialer{conns: newConns()}, slog.New(slog.DiscardHandler))
				far := serveOne(t, f)
				start := time.Now()
				go func() { _, _ = io.WriteString(far, c.sends) }()
				if _, err := io.Copy(io.Discard, far); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start).Round(time.Second); took != c.want {
					t.Errorf("the connection was closed after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// A client learns that a name is not known, and nothing of the network that this host is in.
func TestUnknownNames(t *testing.T) {
	for _, c := range []struct {
		name string
		err  net.DNSError
		want int
	}{
		{"no such host", net.DNSError{Err: "no such host", Name: "shop.internal", Server: "10.9.8.7:53", IsNotFound: true}, http.StatusBadGateway},
		{"a resolver in trouble", net.DNSError{Err: "server misbehaving", Name: "shop.internal", Server: "10.9.8.7:53"}, http.StatusBadGateway},
		{"a resolver that is silent", net.DNSError{Err: "i/o timeout", Name: "shop.internal", Server: "10.9.8.7:53", IsTimeout: true}, http.StatusGatewayTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := failure(nil, &net.OpError{Op: "dial", Net: "tcp", Err: &c.err})
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(text); resp.StatusCode != c.want || got != "the name of the destination could not be resolved\n" {
				t.Errorf("the answer is %d %q, want %d and that the name could not be resolved", resp.StatusCode, got, c.want)
			}
		})
	}
}

// The limit is on the client's body: a destination may take its time after that.
func TestSlowAnswerToABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error)
		far := serveOne(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limitBody(w, r)
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(3 * tunnelIdle)
			ended <- r.Context().Err()
		}))
		if _, err := io.WriteString(far, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		if err := <-ended; err != nil {
			t.Errorf("while it waited for an answer the request ended: %v", err)
		}
	})
}
