package serving

import (
	"net"
	"sync"
)

// bounded is a listener of which only so many connections are open at once. More wait in the kernel's queue.
type bounded struct {
	net.Listener
	places chan struct{} // as many as are taken
	closed chan struct{}
	end    func() // closes closed, once
}

func bound(l net.Listener, most int) *bounded {
	closed := make(chan struct{})
	return &bounded{Listener: l, places: make(chan struct{}, most), closed: closed, end: sync.OnceFunc(func() { close(closed) })}
}

// Accept waits for a place and then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// Close ends also an Accept that waits for a place.
func (b *bounded) Close() error {
	b.end()
	return b.Listener.Close()
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
