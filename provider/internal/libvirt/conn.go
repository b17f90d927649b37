package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/crypto/ssh"
)

// Conn is a connection to the libvirtd of one host. Its methods are single calls, and may be made at once. One whose context ends
// before the answer closes the connection, so that others on it fail as well, with [ConnectionLost]: there is no other way to
// take a call back.
type Conn struct {
	host    Host
	raw     net.Conn
	client  *ssh.Client
	libvirt *golibvirt.Libvirt
	version string
	budgets Budgets
	watch   Watch

	once   sync.Once
	closed chan struct{}
}

// Call is one call of libvirt: the name that it has in go-libvirt, and what it is about.
type Call struct {
	RPC, Host, Domain, Pool, Volume string
	// budget bounds it where that of its RPC does not.
	budget time.Duration
}

// Budgets bound what is asked of a host, whatever time a context leaves. What outlives its budget is a context's end: the connection
// goes with it.
type Budgets struct {
	// Dial bounds a dial: the connection, the handshake and libvirtd's first answers together. Defaults to 10 seconds.
	Dial time.Duration
	// RPC bounds each call but those below. Defaults to no bound.
	RPC time.Duration
	// Start bounds the start of a machine. Defaults to no bound.
	Start time.Duration
	// Seed bounds the upload of a seed. Defaults to no bound.
	Seed time.Duration
	// Image bounds one transfer of an image as a whole. Defaults to 1 hour.
	Image time.Duration
}

// of is the budget of a call.
func (b Budgets) of(what Call) time.Duration {
	switch what.RPC {
	case "DomainCreate":
		return b.Start
	case "StorageVolUpload":
		return what.budget
	}
	return b.RPC
}

// Watch is told of each call before it is sent. The call is made with the context that it returns, and done is told how it ended.
type Watch func(ctx context.Context, c Call) (_ context.Context, done func(error))

// Version is that of libvirt on the host.
func (c *Conn) Version() string { return c.version }

// Closed is closed when the connection is.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Close closes the connection at once. It asks libvirtd for nothing: one that hangs would never answer.
func (c *Conn) Close() {
	c.once.Do(func() {
		_ = c.raw.Close()
		_ = c.client.Close()
		close(c.closed)
	})
}

// closeWithLibvirt closes the connection when libvirtd has closed it.
func (c *Conn) closeWithLibvirt() {
	<-c.libvirt.Disconnected()
	c.Close()
}

// call makes one call.
func call[T any](ctx context.Context, c *Conn, what Call, send func(*golibvirt.Libvirt) (T, error)) (T, error) {
	done := func(error) {}
	if c.watch != nil {
		what.Host = c.host.Name
		ctx, done = c.watch(ctx, what)
	}
	answer, err := within(ctx, c, c.budgets.of(what), send)
	if err != nil {
		err = &CallError{Call: what, Err: err}
	}
	done(err)
	return answer, err
}

// within makes a call that may take no longer than a budget, if there is one.
func within[T any](ctx context.Context, c *Conn, budget time.Duration, send func(*golibvirt.Libvirt) (T, error)) (T, error) {
	if budget <= 0 {
		return await(ctx, c, send)
	}
	bound, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	answer, err := await(bound, c, send)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("no answer came within %v: %w", budget, err)
	}
	return answer, err
}

func await[T any](ctx context.Context, c *Conn, send func(*golibvirt.Libvirt) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, 1)
	go func() {
		answer, err := send(c.libvirt)
		results <- result{answer, err}
	}()
	select {
	case r := <-results:
		return r.answer, c.judge(r.err)
	case <-ctx.Done():
		c.Close()
		return none, ctx.Err()
	}
}

// judge closes a connection on which a call got no answer.
func (c *Conn) judge(err error) error {
	if err == nil || answered(err) {
		return err
	}
	c.Close()
	return dialError(ConnectionLost, "the connection to libvirtd broke: %w", err)
}

// answered says whether an error is libvirtd's.
func answered(err error) bool {
	_, ok := errors.AsType[golibvirt.Error](err)
	return ok || errors.Is(err, golibvirt.ErrUnsupported)
}

// act is a call that answers nothing.
func act(ctx context.Context, c *Conn, what Call, send func(*golibvirt.Libvirt) error) error {
	_, err := call(ctx, c, what, func(l *golibvirt.Libvirt) (struct{}, error) { return struct{}{}, send(l) })
	return err
}

// CallError is a call that failed.
type CallError struct {
	Call Call
	Err  error
}

// Error returns the call and the cause.
func (e *CallError) Error() string { return fmt.Sprintf("%s: %v", e.Call.RPC, e.Err) }

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Code returns libvirt's number of an error, or 0 when it is not one of libvirt's.
func Code(err error) uint32 {
	e, _ := errors.AsType[golibvirt.Error](err)
	return e.Code
}
