package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Relay is a way to the API server of its own, which can fail while others do not: one for each of two replicas, say.
type Relay struct {
	cluster  *Cluster
	listener net.Listener

	mu      sync.Mutex
	state   relayState
	changed chan struct{}     // closed and made anew with each change of state
	conns   map[net.Conn]bool // of clients
	tries   int
	group   sync.WaitGroup
}

type relayState int

const (
	passing relayState = iota
	frozen
	cut
)

// Relay opens a way to the API server at a free port of 127.0.0.1. It ends with Close, which comes before that of the cluster.
func (c *Cluster) Relay() (*Relay, error) { return c.relayAt("127.0.0.1:0") }

func (c *Cluster) relayAt(address string) (*Relay, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	r := &Relay{cluster: c, listener: listener, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	r.group.Go(r.accept)
	return r, nil
}

// Address is where the relay listens.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Kubeconfig writes one like that at path, which is of this cluster, that takes this way, and returns its path.
func (r *Relay) Kubeconfig(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(r.Address())
	if err != nil {
		return "", err
	}
	through := strings.ReplaceAll(string(data), "https://"+r.cluster.address, "https://"+r.Address())
	path = r.cluster.path(fmt.Sprintf("%s.%s", port, filepath.Base(path)))
	return path, os.WriteFile(path, []byte(through), 0o600)
}

// Cut closes every connection, and each new one at once, until Mend.
func (r *Relay) Cut() { r.set(cut) }

// Freeze lets no byte through in either direction until Mend, which lets through what has come meanwhile. New connections are taken
// and get no answer.
func (r *Relay) Freeze() { r.set(frozen) }

// Mend has the way pass everything again. What was cut stays so.
func (r *Relay) Mend() { r.set(passing) }

// Open returns how many connections there are.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// Tries returns how many connections anybody has ever asked for, those that were cut at once included.
func (r *Relay) Tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries
}

// Close ends the way and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.set(cut)
	r.group.Wait()
}

func (r *Relay) set(state relayState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
	close(r.changed)
	r.changed = make(chan struct{})
	if state == cut {
		for conn := range r.conns {
			_ = conn.Close()
		}
		clear(r.conns)
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.tries++
		refused := r.state == cut
		if !refused {
			r.conns[client] = true
		}
		r.mu.Unlock()
		if refused {
			_ = client.Close()
			continue
		}
		r.group.Go(func() {
			r.relay(client)
			_ = client.Close()
			r.mu.Lock()
			delete(r.conns, client)
			r.mu.Unlock()
		})
	}
}

// relay serves one client until either end has no more to say.
func (r *Relay) relay(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.cluster.address)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		_, _ = io.Copy(gate{r, client, to}, from)
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
}

// gate is one direction of a client's connection.
type gate struct {
	relay  *Relay
	client net.Conn
	to     io.Writer
}

// Write waits for as long as the relay is frozen. What waits when the connection is cut goes nowhere.
func (g gate) Write(p []byte) (int, error) {
	for {
		g.relay.mu.Lock()
		open, state, changed := g.relay.conns[g.client], g.relay.state, g.relay.changed
		g.relay.mu.Unlock()
		switch {
		case !open:
			return 0, net.ErrClosed
		case state == passing:
			return g.to.Write(p)
		}
		<-changed
	}
}
