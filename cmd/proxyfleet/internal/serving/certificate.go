package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/smallfile"
)

// certificate is a pair of files and what was last understood of them.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	seen   content
	parsed *tls.Certificate
}

// content is what the files hold, or why they cannot be read.
type content struct{ cert, key, problem string }

func openCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	if _, err := c.update(); err != nil {
		return nil, err
	}
	return c, nil
}

// current looks at the files for each connection, for a handshake costs a hundred times as much. It goes by their content:
// times of files are coarse, and a Secret that Kubernetes mounts is swapped by a link. A pair that cannot be used, such as
// one of which only the first half was written yet, leaves the last one in use.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch changed, err := c.update(); {
	case err != nil:
		c.log.Error("the TLS certificate changed and cannot be used: the last one stays in use", "err", err)
	case changed:
		c.log.Info("the TLS certificate changed and is in use", "file", c.certFile)
	}
	return c.parsed
}

// update takes over the files if they differ from the last look. Whatever is wrong with them is an error only once.
func (c *certificate) update() (changed bool, err error) {
	cert, certErr := smallfile.Read(c.certFile)
	key, keyErr := smallfile.Read(c.keyFile)
	err = errors.Join(certErr, keyErr)
	now := content{string(cert), string(key), fmt.Sprint(err)}
	if now == c.seen {
		return false, nil
	}
	c.seen = now
	if err != nil {
		return false, fmt.Errorf("TLS certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("TLS certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.parsed = &pair
	return true, nil
}
