package local

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/proxyfleet/fleet/provider"
)

// login is what is kept of credentials: enough to know them again, and at a cost that makes guessing slow.
type login struct {
	Salt       []byte `json:"salt"`
	Iterations int    `json:"iterations"`
	Hash       []byte `json:"hash"`
}

// iterations is how slow the hash of a new login is: some tens of milliseconds. It is the second line of defence, behind
// a file that only its owner can read and passwords that a machine draws as a rule; and it is paid for each instance made
// and each that is found after a restart.
const iterations = 100_000

// gate lets requests with the right credentials through.
//
// The slow hash is paid once: when it has matched, or when the credentials themselves were at hand, the gate remembers a
// keyed digest of them, and knows by it what is right and what is wrong. Until then requests take turns.
type gate struct {
	login *login // nil: nobody is asked
	key   [32]byte
	known atomic.Pointer[[sha256.Size]byte]
	turn  chan struct{}
}

// newGate returns the gate of a login that was read from a file.
func newGate(l *login) *gate {
	g := &gate{login: l, turn: make(chan struct{}, 1)}
	_, _ = rand.Read(g.key[:])
	return g
}

// newGateFor returns the gate for credentials, with a new login that takes that many iterations.
func newGateFor(c provider.Credentials, iterations int) (*gate, error) {
	if c.IsZero() {
		return newGate(nil), nil
	}
	l := &login{Salt: make([]byte, 16), Iterations: iterations}
	_, _ = rand.Read(l.Salt)
	pair := []byte(c.Username.Reveal() + ":" + c.Password.Reveal())
	var err error
	if l.Hash, err = l.stretch(pair); err != nil {
		return nil, err
	}
	g := newGate(l)
	g.remember(pair)
	return g, nil
}

// admits says whether a request with that Proxy-Authorization header may pass.
func (g *gate) admits(ctx context.Context, header string) bool {
	if g.login == nil {
		return true
	}
	pair, ok := parseBasic(header)
	if !ok {
		return false
	}
	if known := g.known.Load(); known != nil {
		return g.matches(known, pair)
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return false
	}
	if known := g.known.Load(); known != nil {
		return g.matches(known, pair)
	}
	hash, err := g.login.stretch(pair)
	if err != nil || !hmac.Equal(hash, g.login.Hash) {
		return false
	}
	g.remember(pair)
	return true
}

func (l *login) stretch(pair []byte) ([]byte, error) {
	hash, err := pbkdf2.Key(sha256.New, string(pair), l.Salt, l.Iterations, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("hash of the credentials: %w", err)
	}
	return hash, nil
}

func (g *gate) remember(pair []byte) { g.known.Store(new(g.digest(pair))) }

func (g *gate) matches(known *[sha256.Size]byte, pair []byte) bool {
	digest := g.digest(pair)
	return hmac.Equal(known[:], digest[:])
}

func (g *gate) digest(pair []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, g.key[:])
	mac.Write(pair)
	return [sha256.Size]byte(mac.Sum(nil))
}

// parseBasic returns user and password of a header of the Basic scheme, with the colon between them.
func parseBasic(header string) ([]byte, bool) {
	scheme, encoded, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return nil, false
	}
	pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	return pair, err == nil
}
