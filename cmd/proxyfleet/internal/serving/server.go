// Package serving runs the HTTP server of the binary: with a bound on whatever a peer can spend, with a certificate that may
// change while it runs, and with an end within a stated time.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// What a peer may take. Answers that may take longer than writeTimeout move their deadline on themselves.
const (
	headerTimeout  = 10 * time.Second
	readTimeout    = 30 * time.Second
	briefTimeout   = 2 * time.Second // to read, of a brief server
	writeTimeout   = time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	maxConnections = 4096
)

// Config is what a [Server] is made of.
type Config struct {
	// Address is where it listens: host:port. Port 0 takes a free one. Required.
	Address string
	// CertFile and KeyFile hold the certificate, as PEM; they are read again when they change. Defaults to none: the server
	// then speaks HTTP without TLS.
	CertFile, KeyFile string
	// MaxConnections is how many connections are open at once; more wait for one to end. Defaults to 4096. A server that says
	// nothing gets half of the files that the process may open at most, and one that does an eighth, so that the peers of
	// both together cannot take them all.
	MaxConnections int
	// Brief has each connection serve one request, which must come at once: so those that somebody leaves open do not take the
	// places of others. Defaults to connections that are kept for more.
	Brief bool
	// Drain is how long requests may go on when the server is to end. Defaults to not at all.
	Drain time.Duration
	// Logger hears of peers and certificates that make trouble. Required.
	Logger *slog.Logger
}

// connections is how many are open at once where the process may open so many files.
func (c Config) connections(files int) int {
	if c.MaxConnections == 0 {
		return min(maxConnections, max(1, files/2))
	}
	return min(c.MaxConnections, max(1, files/8))
}

// Server has an address, and serves when it is run.
type Server struct {
	cfg    Config
	cert   *certificate // nil: no TLS
	socket net.Listener
	scheme string
}

// Listen takes the address, so that whoever starts a process learns at once that it is in use. Connections wait for
// [Server.Run].
func Listen(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, scheme: "http"}
	if cfg.CertFile != "" {
		var err error
		if s.cert, err = openCertificate(cfg.CertFile, cfg.KeyFile, cfg.Logger); err != nil {
			return nil, err
		}
	}
	socket, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve at %s: %w", cfg.Address, reason(err))
	}
	s.socket = bound(socket, cfg.connections(maxOpenFiles()))
	if s.cert != nil {
		s.scheme = "https"
		s.socket = tls.NewListener(s.socket, &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.current(), nil },
		})
	}
	return s, nil
}

// reason leaves out the address, which the caller names as it was given.
func reason(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// URL is where the server is.
func (s *Server) URL() string { return s.scheme + "://" + s.socket.Addr().String() }

// Close gives the address back. It is for a server that is not run.
func (s *Server) Close() error { return s.socket.Close() }

// Run serves until ctx ends, and returns when the last request has been answered or the time for that is over. It works
// once.
func (s *Server) Run(ctx context.Context, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	if s.cfg.Brief {
		server.ReadHeaderTimeout, server.ReadTimeout = briefTimeout, briefTimeout
		server.SetKeepAlivesEnabled(false)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.socket) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the HTTP server ended: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		s.cfg.Logger.Warn("requests were cut off: they took too long to end", "drain", s.cfg.Drain.String())
		return server.Close()
	}
	return nil
}
