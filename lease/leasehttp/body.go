package leasehttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/proxyfleet/fleet/lease"
)

// paced reads from the target, which must not be silent for too long in any read.
type paced struct {
	a *attempt
	r io.Reader
}

func (p *paced) Read(b []byte) (int, error) {
	p.a.clock.Reset(p.a.t.cfg.Timeout)
	defer p.a.clock.Stop()
	return p.r.Read(b)
}

// whole returns a body that is all there.
func whole(body []byte) io.ReadCloser {
	if len(body) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(body))
}

// rest is a body that is not all there yet. Its end, or closing it, is the end of the attempt.
type rest struct {
	a       *attempt
	r       io.Reader
	c       io.Closer
	outcome lease.Outcome // what is to be reported if it does not break off
	mu      sync.Mutex    // one read at a time
	err     error
}

// rest returns a body that begins with what was read of it.
func (a *attempt) rest(head []byte, body io.ReadCloser, o lease.Outcome) io.ReadCloser {
	b := &rest{a: a, r: io.MultiReader(bytes.NewReader(head), &paced{a, body}), c: body, outcome: o}
	if w, ok := body.(io.Writer); ok { // of a connection that has switched protocols
		return struct {
			*rest
			io.Writer
		}{b, w}
	}
	return b
}

func (b *rest) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	done := b.a.held.use()
	n, err := b.r.Read(p)
	done()
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		b.a.end(b.outcome)
		b.err = io.EOF
	default:
		b.err = b.a.blame(err)
		b.a.end("")
	}
	return n, b.err
}

// Close ends the lease of a body that was not read to its end.
func (b *rest) Close() error {
	err := b.c.Close()
	b.a.end(b.outcome)
	return err
}

// sending is the body of a request, and knows whether it was the caller's reader that failed.
type sending struct {
	io.ReadCloser
	closed, broken atomic.Bool
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !s.closed.Load() {
		s.broken.Store(true)
	}
	return n, err
}

func (s *sending) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.ReadCloser.Close()
}

// links are the connections of an attempt: one, or two where net/http has dialled once more.
type links struct {
	mu     sync.Mutex
	open   []net.Conn
	closed bool
}

// add takes charge of a connection, and closes one that comes too late.
func (l *links) add(c net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return net.ErrClosed
	}
	l.open = append(l.open, c)
	return nil
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.open {
		_ = c.Close()
	}
}
