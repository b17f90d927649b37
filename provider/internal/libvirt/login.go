package libvirt

import (
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Login is how the fleet proves who it is, and who the host is.
type Login struct {
	// KeyFile holds a private key without a passphrase, and KnownHostsFile the keys of hosts, both as OpenSSH has them.
	KeyFile, KnownHostsFile string
	// Keep reads each file once. Without it they are read at each dial, so that new ones count at once.
	Keep bool

	mu     sync.Mutex
	signer ssh.Signer
	known  ssh.HostKeyCallback
}

// config is how one host is logged in to.
func (l *Login) config(h Host) (*ssh.ClientConfig, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	signer, known := l.signer, l.known
	if signer == nil {
		var err error
		if signer, known, err = l.read(); err != nil {
			return nil, err
		}
	}
	if l.Keep {
		l.signer, l.known = signer, known
	}
	return &ssh.ClientConfig{
		User: h.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: known, HostKeyAlgorithms: algorithms(known, h.Address),
	}, nil
}

func (l *Login) read() (ssh.Signer, ssh.HostKeyCallback, error) {
	pem, err := os.ReadFile(l.KeyFile)
	if err != nil {
		return nil, nil, &DialError{Reason: KeyUnreadable, Err: err}
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		return nil, nil, dialError(KeyEncrypted, "%s is protected by a passphrase; a key without one is needed", l.KeyFile)
	}
	if err != nil {
		return nil, nil, dialError(KeyUnreadable, "%s holds no private key: %w", l.KeyFile, err)
	}
	known, err := knownhosts.New(l.KnownHostsFile)
	if err != nil {
		return nil, nil, &DialError{Reason: KnownHostsUnreadable, Err: err}
	}
	return signer, known, nil
}

// algorithms returns those of the keys by which a host is known. Else a host that has several keys would show one that is not
// known, and seem to be another host. It returns nil, for all, where no key is known.
func algorithms(known ssh.HostKeyCallback, address string) []string {
	probe, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil
	}
	mismatch, ok := errors.AsType[*knownhosts.KeyError](known(address, &net.TCPAddr{IP: net.IPv4zero}, probe))
	if !ok {
		return nil
	}
	var all []string
	for _, key := range mismatch.Want {
		algorithm := key.Key.Type()
		if algorithm == ssh.KeyAlgoRSA {
			all = append(all, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		}
		all = append(all, algorithm)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
