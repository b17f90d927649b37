package local

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// What a peer may cost at most.
const (
	maxClients      = 1024
	maxHeaderBytes  = 64 << 10
	headerTimeout   = 10 * time.Second
	keepAlive       = 90 * time.Second // between two requests
	dialTimeout     = 10 * time.Second
	responseTimeout = 2 * time.Minute // until the header of a response
	tunnelIdle      = 5 * time.Minute // while nothing moves in either direction
)

// listener is the forward proxy of one instance.
type listener struct {
	server *http.Server
	idle   func() // closes the connections that are kept for later requests
	conns  *conns
	cancel context.CancelFunc
	ended  chan struct{} // closed when the server has returned
	failed atomic.Bool   // the server returned by itself
}

// listen opens the proxy of a record. Its connections leave from source, if that is valid.
func listen(r record, source netip.Addr, g guard, gate *gate, log *slog.Logger) (*listener, error) {
	socket, err := net.Listen("tcp", netip.AddrPortFrom(r.Address, uint16(r.Port)).String())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{conns: newConns(), cancel: cancel, ended: make(chan struct{})}
	forwarder := newForwarder(gate, &dialer{guard: g, source: source, conns: l.conns}, log)
	l.idle = forwarder.proxy.Tr.CloseIdleConnections
	l.server = newServer(ctx, forwarder, log)
	go l.serve(guardedListener{socket, l.conns}, log)
	return l, nil
}

// newServer returns the server of a proxy, with the limits of one connection. Requests end with ctx.
func newServer(ctx context.Context, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func (l *listener) serve(socket net.Listener, log *slog.Logger) {
	defer close(l.ended)
	if err := l.server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		l.failed.Store(true)
		log.Error("A proxy stopped accepting connections", "address", socket.Addr().String(), "error", err)
	}
}

// close stops accepting and closes all connections. The address is free when it returns: the socket is only closed when the
// server, which may just be accepting from it, has let it go.
func (l *listener) close() {
	_ = l.server.Close()
	<-l.ended
	l.cancel()
	l.idle()
	l.conns.close()
}

// wait returns when all that the listener started has ended. It has been closed.
func (l *listener) wait() {
	<-l.ended
	<-l.conns.drain()
}

// drain stops accepting, lets requests and then tunnels finish until ctx ends, closes the rest, and returns when all have
// ended.
func (l *listener) drain(ctx context.Context) {
	_ = l.server.Shutdown(ctx)
	l.idle()
	select {
	case <-l.conns.drain():
	case <-ctx.Done():
	}
	l.close()
	l.wait()
}
