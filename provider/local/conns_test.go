package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pipe returns a connection of a set and its peer.
func pipe(t *testing.T, s *conns, isClient bool) (*conn, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	c := s.add(near, isClient)
	if c == nil {
		t.Fatal("the connection was not taken")
	}
	t.Cleanup(func() { _ = c.Close(); _ = far.Close() })
	return c, far
}

// readEnds returns how long a read of a destination goes on without data, and its error.
func readEnds(c *conn) (time.Duration, error) {
	start := time.Now()
	_, err := c.Read(make([]byte, 1))
	return time.Since(start), err
}

func TestSilentDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(t, newConns(), false)
		if took, err := readEnds(c); took != tunnelIdle || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ended after %v with %v, want a timeout after %v", took, err, tunnelIdle)
		}
	})
}

// A tunnel in which only the client sends is not idle.
func TestOneWayTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t, newConns(), false)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		const writes = 5
		go func() {
			for range writes {
				time.Sleep(tunnelIdle / 2)
				_, _ = c.Write([]byte("x"))
			}
		}()
		want := writes*tunnelIdle/2 + tunnelIdle
		if took, err := readEnds(c); took != want || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ended after %v with %v, want a timeout after %v", took, err, want)
		}
	})
}

// pipes is a listener whose connections come by a channel.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipes) Close() error { close(l); return nil }

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A tunnel whose destination has hung up ends after tunnelIdle, whether the client notices or not: it gives its place back.
func TestHalfClosedTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newConns(), slog.New(slog.DiscardHandler)
		near, destination := net.Pipe()
		f := newForwarder(newGate(nil), &dialer{}, log)
		f.proxy.Tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return s.add(near, false), nil }
		server, accepted := newServer(t.Context(), f, log), make(pipes)
		go func() { _ = server.Serve(guardedListener{accepted, s}) }()
		accept, client := net.Pipe()
		accepted <- accept
		defer func() {
			_ = server.Close()
			s.close()
			<-s.drain()
		}()

		go func() {
			_, _ = io.WriteString(client, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(client), &http.Request{Method: http.MethodConnect})
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("CONNECT: %v, %v", resp, err)
		}
		time.Sleep(tunnelIdle / 2)
		_ = destination.Close()
		hungUp := time.Now()
		select {
		case <-s.drain():
			if took := time.Since(hungUp); took != tunnelIdle {
				t.Errorf("both connections were closed %v after the destination had hung up, want %v", took, tunnelIdle)
			}
		case <-time.After(2 * tunnelIdle):
			t.Errorf("%d connections are open %v after the destination has hung up", len(s.open), 2*tunnelIdle)
		}
	})
}

// A client that sends on after its destination has said all that it had to say is not idle.
func TestClientSendsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t, newConns(), true)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		const writes = 5
		go func() {
			for range writes {
				time.Sleep(tunnelIdle / 2)
				_, _ = far.Write([]byte("x"))
			}
		}()
		start := time.Now()
		n, err := io.Copy(io.Discard, c)
		want := writes*tunnelIdle/2 + tunnelIdle
		if took := time.Since(start); n != writes || took != want || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes were read in %v, and then %v; want %d, and a timeout after %v", n, took, err, writes, want)
		}
	})
}

func TestPeerThatTakesNothing(t *testing.T) {
	for name, isClient := range map[string]bool{"client": true, "destination": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := pipe(t, newConns(), isClient)
				start := time.Now()
				_, err := c.Write([]byte("x"))
				if took := time.Since(start); took != tunnelIdle || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the write ended after %v with %v, want a timeout after %v", took, err, tunnelIdle)
				}
			})
		})
	}
}

func TestConnsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newConns()
		one, _ := pipe(t, s, true)
		two, _ := pipe(t, s, false)
		empty := s.drain()
		if s.add(one.Conn, false) != nil {
			t.Error("a connection was taken while draining")
		}
		_ = one.Close()
		_ = one.Close()
		select {
		case <-empty:
			t.Error("it is said to be empty, and one connection is open")
		default:
		}
		_ = two.Close()
		<-empty
		<-s.drain()
	})
}

func TestConnsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newConns()
		c, _ := pipe(t, s, true)
		go func() {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}()
		s.close()
		<-s.drain()
	})
}

func TestTooManyClients(t *testing.T) {
	s := newConns()
	s.clients = maxClients
	near, far := net.Pipe()
	if s.add(near, true) != nil {
		t.Error("a client more than allowed was taken")
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client's read ended with %v, want EOF", err)
	}
	pipe(t, s, false)
}
