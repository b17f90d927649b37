package crawltest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
)

// forward is a forward proxy of our own, so that it can die as a machine does. Its requests leave from the address on which it
// listens.
type forward struct {
	address string // host:port
	server  *http.Server
	kill    func()
}

// newForward starts a proxy on an address of this machine.
func newForward(host string) (*forward, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp4", address)
	}}
	relay := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: transport,
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &forward{address: l.Addr().String(), server: &http.Server{Handler: relay, ReadHeaderTimeout: patience}}
	served := make(chan struct{})
	go func() { _ = f.server.Serve(l); close(served) }()
	f.kill = sync.OnceFunc(func() {
		_ = f.server.Close() // and all connections, whatever is under way
		transport.CloseIdleConnections()
		<-served
	})
	return f, nil
}
