package hypervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"sync"
)

// Verdict is what a relay does with a call.
type Verdict int

// The verdicts.
const (
	// Pass hands the call on, and its answer back.
	Pass Verdict = iota
	// Refuse answers the call with an error, without handing it on.
	Refuse
	// Lose hands the call on, and closes the connection instead of answering.
	Lose
	// Swallow does nothing with the call, ever.
	Swallow
	// TakeUpload answers an upload as one that went well. It is for libvirt's test driver, which has none.
	TakeUpload
)

// The numbers of some calls.
const (
	ConnectOpen           = 1
	DomainCreate          = 9
	DomainDefineXML       = 11
	DomainDestroy         = 12
	DomainLookupByName    = 23
	StoragePoolRefresh    = 83
	StoragePoolGetInfo    = 87
	StorageVolCreateXML   = 93
	StorageVolDelete      = 94
	StorageVolUpload      = 208
	DomainUndefineFlags   = 231
	ConnectListAllDomains = 273
)

// Relay stands between clients and a libvirtd, and can do with single calls what no libvirtd does on demand.
type Relay struct {
	listener net.Listener
	upstream string

	mu    sync.Mutex
	rule  func(procedure uint32) Verdict
	calls map[uint32]int
	conns map[net.Conn]bool
	group sync.WaitGroup
}

// NewRelay listens on a socket at path, which everybody may use, and hands on to the one at upstream.
func NewRelay(path, upstream string) (*Relay, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // see above
		return nil, err
	}
	r := &Relay{listener: listener, upstream: upstream, calls: map[uint32]int{}, conns: map[net.Conn]bool{}}
	r.group.Go(r.accept)
	return r, nil
}

// Path is that of the socket.
func (r *Relay) Path() string { return r.listener.Addr().String() }

// Rule has each call judged. Nil passes all.
func (r *Relay) Rule(rule func(procedure uint32) Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rule = rule
}

// Calls returns how often each call was made.
func (r *Relay) Calls() map[uint32]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// Open returns how many clients are connected.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns[client] = true
		r.mu.Unlock()
		r.group.Go(func() {
			r.relay(client)
			r.mu.Lock()
			delete(r.conns, client)
			r.mu.Unlock()
		})
	}
}

// relay serves one client.
func (r *Relay) relay(client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(context.Background(), "unix", r.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	s := &session{relay: r, client: client, server: server, lost: map[int32]bool{}, uploads: map[int32]bool{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer client.Close()
		s.answers()
	}()
	s.requests()
	_ = server.Close()
	<-ended
}

// session is one client's connection.
type session struct {
	relay          *Relay
	client, server net.Conn

	mu      sync.Mutex // of what follows, and of writes to the client
	lost    map[int32]bool
	uploads map[int32]bool
}

// message is one of libvirt's protocol.
type message struct {
	procedure, kind, status uint32
	serial                  int32
	raw                     []byte
}

const (
	kindCall   = 0
	kindReply  = 1
	kindStream = 3

	statusOK    = 0
	statusError = 1
)

func readMessage(r io.Reader) (message, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return message{}, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size < 28 || size > 64<<20 {
		return message{}, errors.New("no message")
	}
	raw := make([]byte, size)
	copy(raw, length[:])
	if _, err := io.ReadFull(r, raw[4:]); err != nil {
		return message{}, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(raw[i:]) }
	return message{procedure: word(12), kind: word(16), serial: int32(word(20)), status: word(24), raw: raw}, nil
}

// requests goes through what the client sends.
func (s *session) requests() {
	for {
		m, err := readMessage(s.client)
		if err != nil {
			return
		}
		switch s.judge(m) {
		case Pass:
			_, err = s.server.Write(m.raw)
		case Lose:
			s.mu.Lock()
			s.lost[m.serial] = true
			s.mu.Unlock()
			_, err = s.server.Write(m.raw)
		case Refuse:
			err = s.answer(m, kindReply, statusError, refusal())
		case TakeUpload:
			err = s.takeUpload(m)
		case Swallow:
		}
		if err != nil {
			return
		}
	}
}

func (s *session) judge(m message) Verdict {
	s.mu.Lock()
	upload := s.uploads[m.serial] && m.kind == kindStream
	s.mu.Unlock()
	if upload {
		return TakeUpload
	}
	if m.kind != kindCall {
		return Pass
	}
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	s.relay.calls[m.procedure]++
	if s.relay.rule == nil {
		return Pass
	}
	return s.relay.rule(m.procedure)
}

func (s *session) takeUpload(m message) error {
	switch {
	case m.kind == kindCall:
		s.mu.Lock()
		s.uploads[m.serial] = true
		s.mu.Unlock()
		return s.answer(m, kindReply, statusOK, nil)
	case m.status == statusOK:
		return s.answer(m, kindStream, statusOK, nil)
	case m.status == statusError:
		return s.answer(m, kindStream, statusError, refusal())
	}
	return nil
}

// answers hands back what libvirtd sends.
func (s *session) answers() {
	for {
		m, err := readMessage(s.server)
		if err != nil {
			return
		}
		s.mu.Lock()
		lost := s.lost[m.serial]
		if !lost {
			_, err = s.client.Write(m.raw)
		}
		s.mu.Unlock()
		if lost || err != nil {
			return
		}
	}
}

func (s *session) answer(m message, kind, status uint32, body []byte) error {
	raw := append(bytes.Clone(m.raw[:28]), body...)
	binary.BigEndian.PutUint32(raw, uint32(len(raw)))
	binary.BigEndian.PutUint32(raw[16:], kind)
	binary.BigEndian.PutUint32(raw[24:], status)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.client.Write(raw)
	return err
}

// refusal is libvirt's error number 1, of a backend in trouble.
func refusal() []byte {
	const text = "the relay refuses it"
	var b []byte
	word := func(v uint32) { b = binary.BigEndian.AppendUint32(b, v) }
	word(1)
	word(0)
	word(1)
	word(uint32(len(text)))
	b = append(b, text...) // a multiple of four, as XDR wants it
	word(2)
	for range 7 { // what libvirt leaves out: domain, three texts, two numbers, network
		word(0)
	}
	return b
}
