package local

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conns are the open connections of one listener: those of its clients and those to their destinations. The HTTP server
// forgets a connection that became a tunnel; this does not.
type conns struct {
	mu      sync.Mutex
	clients int
	open    map[*conn]bool
	closed  bool
	empty   chan struct{} // closed when the last one is
}

func newConns() *conns {
	return &conns{open: map[*conn]bool{}, empty: make(chan struct{})}
}

// add takes charge of a connection. When there are too many of its clients, or all have been closed, it closes this one
// too and returns nil.
func (s *conns) add(raw net.Conn, isClient bool) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || isClient && s.clients == maxClients {
		_ = raw.Close()
		return nil
	}
	c := &conn{Conn: raw, set: s, isClient: isClient, since: time.Now()}
	s.open[c] = true
	if isClient {
		s.clients++
	}
	return c
}

func (s *conns) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open[c] {
		return
	}
	delete(s.open, c)
	if c.isClient {
		s.clients--
	}
	if s.closed && len(s.open) == 0 {
		close(s.empty)
	}
}

// drain refuses new connections and returns a channel that is closed when there are none any more.
func (s *conns) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		if len(s.open) == 0 {
			close(s.empty)
		}
	}
	return s.empty
}

// close closes all connections. Whoever copies between two of them ends by that.
func (s *conns) close() {
	s.drain()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Conn.Close()
	}
}

// conn is a connection that gives up when nothing moves for tunnelIdle: on a write that the peer does not take, and, to a
// destination, on a read while nothing is written either. How long a client may be silent between two requests is up to
// the HTTP server, and in a tunnel to the connection to the destination; when that has ended, and the client has been told
// so by CloseWrite, a read from it gives up as well.
type conn struct {
	net.Conn
	set      *conns
	isClient bool
	since    time.Time
	moved    atomic.Int64 // when something last did, as a duration after since
	ending   atomic.Bool  // nothing more is written
}

func (c *conn) touch() { c.moved.Store(int64(time.Since(c.since))) }

// idleAt returns when the connection will have been idle for too long, as it looks now.
func (c *conn) idleAt() time.Time { return c.since.Add(time.Duration(c.moved.Load()) + tunnelIdle) }

func (c *conn) Read(p []byte) (int, error) {
	if c.isClient && !c.ending.Load() {
		return c.Conn.Read(p)
	}
	c.touch()
	for {
		limit := c.idleAt()
		if err := c.SetReadDeadline(limit); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.idleAt().After(limit) {
			continue // the other direction moved meanwhile
		}
		c.touch()
		return n, err
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(tunnelIdle)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.touch()
	return n, err
}

// Close closes the connection and forgets it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.set.remove(c)
	return err
}

// CloseRead and CloseWrite let a tunnel end in one direction before the other.
func (c *conn) CloseRead() error { return c.half(func(h halfCloser) error { return h.CloseRead() }) }

// CloseWrite is the other half of CloseRead. From now on a read gives up in time, the one that is under way too.
func (c *conn) CloseWrite() error {
	c.ending.Store(true)
	c.touch()
	if err := c.SetReadDeadline(c.idleAt()); err != nil {
		return err
	}
	return c.half(func(h halfCloser) error { return h.CloseWrite() })
}

type halfCloser interface {
	CloseRead() error
	CloseWrite() error
}

func (c *conn) half(f func(halfCloser) error) error {
	if h, ok := c.Conn.(halfCloser); ok {
		return f(h)
	}
	return nil
}

// guardedListener puts the connections that it accepts into a set.
type guardedListener struct {
	net.Listener
	conns *conns
}

func (l guardedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.conns.add(raw, true); c != nil {
			return c, nil
		}
	}
}
