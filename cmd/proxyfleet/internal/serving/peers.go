package serving

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// What a peer may take to be spoken to. How long its answer may take is said by each request.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	peerIdleTimeout  = 30 * time.Second
	idlePeers        = 64 // connections to one, for the next requests
)

// Peers returns what carries requests to other replicas of the same server. Where this one serves with TLS, a peer must show
// the very certificate that this one shows at the moment: who has its key may be told what callers tell this one, tokens
// included, and nobody else, whatever else a certificate says.
func (s *Server) Peers() *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     peerIdleTimeout,
		MaxIdleConnsPerHost: idlePeers,
		DisableCompression:  true, // answers pass as they are
	}
	if s.cert != nil {
		t.TLSClientConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // the certificate itself is compared
			VerifyConnection:   s.cert.sameAs,
		}
	}
	return t
}

// sameAs refuses a peer that shows another certificate.
func (c *certificate) sameAs(peer tls.ConnectionState) error {
	if len(peer.PeerCertificates) == 0 || !bytes.Equal(peer.PeerCertificates[0].Raw, c.current().Certificate[0]) {
		return errors.New("it shows another TLS certificate than this replica: both must serve with the same one")
	}
	return nil
}
