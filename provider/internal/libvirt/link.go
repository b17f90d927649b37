package libvirt

import (
	"context"
	"errors"
)

// link keeps one connection to a host, for all calls. It is made when it is needed, and anew when it broke.
type link struct {
	dial func(context.Context) (*Conn, error)
	// slot holds the token of whoever looks at the fields below.
	slot chan struct{}
	conn *Conn
	over bool
}

func newLink(dial func(context.Context) (*Conn, error)) *link {
	return &link{dial: dial, slot: make(chan struct{}, 1)}
}

// get returns the connection. Whoever waits for another's dial waits no longer than ctx.
func (l *link) get(ctx context.Context) (*Conn, error) {
	select {
	case l.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.slot }()
	if l.over {
		return nil, &DialError{Reason: ConnectionLost, Err: errors.New("the provider has ended")}
	}
	if l.conn != nil {
		select {
		case <-l.conn.Closed():
		default:
			return l.conn, nil
		}
	}
	c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	l.conn = c
	return c, nil
}

// close closes the connection for good.
func (l *link) close() {
	l.slot <- struct{}{}
	defer func() { <-l.slot }()
	l.over = true
	if l.conn != nil {
		l.conn.Close()
	}
}
