package libvirt

import (
	"context"
	"errors"
	"time"
)

// link keeps one connection to a host, for all calls. It is made when it is needed, and anew when it broke. A dial that failed is
// not tried again for as long as it took: calls of a host that is silent then fail at once, most of the time, and do not take up
// those who are to look after other hosts.
type link struct {
	dial func(context.Context) (*Conn, error)
	// slot holds the token of whoever looks at the fields below.
	slot chan struct{}
	conn *Conn
	over bool
	// failed is why the last dial failed, and holds until then.
	failed error
	until  time.Time
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
	began := time.Now()
	if began.Before(l.until) {
		return nil, l.failed
	}
	c, err := l.dial(ctx)
	if err != nil {
		if ctx.Err() == nil { // else it says more about the caller than about the host
			now := time.Now()
			l.failed, l.until = err, now.Add(now.Sub(began))
		}
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
