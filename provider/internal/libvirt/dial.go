package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Host says where a libvirtd is and how it is reached.
type Host struct {
	// Name is what proxies call the host by.
	Name string
	// Address of its SSH server, with a port.
	Address string
	User    string
	// Socket is the path of libvirtd's socket on the host, and URI what it is asked for.
	Socket string
	URI    string
}

// dialTime bounds a dial that has no other budget.
const dialTime = 10 * time.Second

// DialError is why a host cannot be used.
type DialError struct {
	// Reason is a stable word in CamelCase.
	Reason string
	Err    error
}

// The reasons of a DialError.
const (
	KeyUnreadable        = "KeyUnreadable"        // the key file cannot be read, or holds no key
	KeyEncrypted         = "KeyEncrypted"         // the key needs a passphrase
	KnownHostsUnreadable = "KnownHostsUnreadable" // the file of known hosts cannot be read
	HostUnreachable      = "HostUnreachable"      // no SSH server answers in time
	HostKeyUnknown       = "HostKeyUnknown"       // the file of known hosts has no key of this host
	HostKeyChanged       = "HostKeyChanged"       // the host shows another key than the known one
	AuthenticationFailed = "AuthenticationFailed" // the SSH server does not take the key
	SocketRefused        = "SocketRefused"        // the SSH server does not lead to libvirtd's socket
	LibvirtSilent        = "LibvirtSilent"        // libvirtd does not answer in time
	LibvirtRefused       = "LibvirtRefused"       // libvirtd answers, and refuses
	ConnectionLost       = "ConnectionLost"       // the connection broke
)

// Error returns the cause.
func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

func dialError(reason, format string, args ...any) *DialError {
	return &DialError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Dial connects to the libvirtd of a host. It gives up when ctx ends, and leaves nothing behind then. The error is a [DialError]
// or that of ctx. The budgets and the watch are of the calls of the connection; watch may be nil.
func Dial(ctx context.Context, h Host, login *Login, budgets Budgets, watch Watch) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(budgets.Dial, dialTime))
	defer cancel()
	config, err := login.config(h)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	raw, err := dialer.DialContext(ctx, "tcp", h.Address)
	if err != nil {
		return nil, dialError(HostUnreachable, "%w", err)
	}
	// Neither the handshake nor libvirtd's first answers have a deadline of their own.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := &Conn{host: h, raw: raw, budgets: budgets, watch: watch, closed: make(chan struct{})}
	err = c.handshake(ctx, config)
	if !stop() && err == nil {
		c.Close()
		err = dialError(HostUnreachable, "%w", ctx.Err())
	}
	if err != nil {
		_ = raw.Close()
		return nil, timedOut(ctx, err)
	}
	return c, nil
}

// timedOut says of an error that came of a context's end what did not answer in time.
func timedOut(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	silent, reason := "the SSH server", HostUnreachable
	if e, ok := errors.AsType[*DialError](err); ok && e.Reason == ConnectionLost {
		silent, reason = "libvirtd", LibvirtSilent
	}
	return dialError(reason, "%s did not answer in time: %w", silent, ctx.Err())
}

// handshake opens SSH on a connection and libvirt on that. The caller closes the raw connection after an error.
func (c *Conn) handshake(ctx context.Context, config *ssh.ClientConfig) error {
	sshConn, channels, requests, err := ssh.NewClientConn(c.raw, c.host.Address, config)
	if err != nil {
		return refusal(err)
	}
	c.client = ssh.NewClient(sshConn, channels, requests)
	forwarded, err := c.client.DialContext(ctx, "unix", c.host.Socket)
	if err != nil {
		_ = c.client.Close()
		return dialError(SocketRefused, "%s is not reachable for user %s: look whether libvirtd runs, whether the user may use that "+
			"socket (group libvirt), and whether sshd has AllowStreamLocalForwarding: %w", c.host.Socket, c.host.User, err)
	}
	c.libvirt = golibvirt.NewWithDialer(dialers.NewAlreadyConnected(&framedConn{Conn: forwarded}))
	if err := c.libvirt.ConnectToURI(golibvirt.ConnectURI(c.host.URI)); err != nil {
		_ = c.client.Close()
		return opening(err)
	}
	go c.closeWithLibvirt()
	// The version is asked for at once: this also orders what go-libvirt wrote while it connected before what its reader reads
	// when it ends.
	version, err := call(ctx, c, Call{RPC: "ConnectGetLibVersion"}, func(l *golibvirt.Libvirt) (uint64, error) { return l.ConnectGetLibVersion() })
	if err != nil {
		c.Close()
		return opening(err)
	}
	c.version = fmt.Sprintf("%d.%d.%d", version/1_000_000, version/1_000%1_000, version%1_000)
	return nil
}

// opening is why libvirtd did not open what the URI says.
func opening(err error) *DialError {
	if _, ok := errors.AsType[golibvirt.Error](err); ok {
		return &DialError{Reason: LibvirtRefused, Err: err}
	}
	return dialError(ConnectionLost, "libvirtd closed the connection: %w", err)
}

// refusal is why a handshake failed. The library has no type for a login that was refused.
func refusal(err error) *DialError {
	if unknown, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(unknown.Want) == 0 {
			return dialError(HostKeyUnknown, "the file of known hosts has no key of this host: %w", err)
		}
		return dialError(HostKeyChanged, "the host shows another key than the file of known hosts has; it may be another host: %w", err)
	}
	if _, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return &DialError{Reason: HostKeyChanged, Err: err}
	}
	if strings.Contains(err.Error(), "unable to authenticate") {
		return &DialError{Reason: AuthenticationFailed, Err: err}
	}
	return &DialError{Reason: HostUnreachable, Err: err}
}
