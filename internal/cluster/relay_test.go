package cluster

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestRelay(t *testing.T) {
	heard := make(chan string, 100)
	c := &Cluster{address: echo(t, heard)}
	var relays [2]*Relay
	for i := range relays {
		var err error
		if relays[i], err = c.Relay(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(relays[i].Close)
	}
	way := relays[0]
	client, beside := dial(t, way), dial(t, relays[1])
	says(t, client, "passes")
	says(t, beside, "passes")

	way.Freeze()
	send(t, client, "frozen")
	late := dial(t, way)
	send(t, late, "frozen")
	for name, conn := range map[string]net.Conn{"an open connection": client, "a new connection": late} {
		if text, err := receive(conn, 6, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("frozen, %s has %q, %v", name, text, err)
		}
	}
	says(t, beside, "passes")
	way.Mend()
	for name, conn := range map[string]net.Conn{"an open connection": client, "a new connection": late} {
		if text, err := receive(conn, 6, 10*time.Second); text != "frozen" {
			t.Errorf("mended, %s has %q, %v", name, text, err)
		}
	}
	if n := way.Open(); n != 2 {
		t.Errorf("%d connections are open", n)
	}

	way.Freeze()
	send(t, client, "lost")
	if text, err := receive(client, 4, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("frozen again, it has %q, %v", text, err)
	}
	way.Cut()
	for name, conn := range map[string]net.Conn{"an open connection": client, "another": late, "a new connection": dial(t, way)} {
		if text, err := receive(conn, 4, 10*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut, %s has %q, %v", name, text, err)
		}
	}
	says(t, beside, "passes")
	way.Mend()
	says(t, dial(t, way), "passes again")
	way.Close()
	for len(heard) > 0 {
		if <-heard == "lost" {
			t.Error("what waited when the connection was cut has arrived")
		}
	}
}

// echo starts a server that says what it hears, here and to its client, and returns its address.
func echo(t *testing.T, heard chan<- string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buffer := make([]byte, 100); ; {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					heard <- string(buffer[:n])
					_, _ = conn.Write(buffer[:n])
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// says sends a text and wants it back.
func says(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	send(t, conn, text)
	if got, err := receive(conn, len(text), 10*time.Second); got != text {
		t.Errorf("got %q, %v", got, err)
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Error(err)
	}
}

func receive(conn net.Conn, length int, within time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	text := make([]byte, length)
	n, err := io.ReadFull(conn, text)
	return string(text[:n]), err
}
