package serving_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
)

// pair is a certificate with its key, as the contents of files, and what trusts it.
type pair struct {
	cert, key []byte
	roots     *x509.CertPool
}

func newPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{
		cert:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		roots: x509.NewCertPool(),
	}
	p.roots.AppendCertsFromPEM(p.cert)
	return p
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve runs a server until the end of the test.
func serve(t *testing.T, cfg serving.Config) *serving.Server {
	t.Helper()
	cfg.Address, cfg.Logger = "127.0.0.1:0", slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := serving.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	handler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }
	go func() { ended <- s.Run(ctx, http.HandlerFunc(handler)) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// get asks on a connection of its own, and returns the protocol.
func get(t *testing.T, url string, roots *x509.CertPool) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
	if err != nil {
		return "", err
	}
	answer.Body.Close()
	return answer.Proto, nil
}

func TestCertificateIsReadAgain(t *testing.T) {
	first, second := newPair(t), newPair(t)
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write(t, certFile, first.cert)
	write(t, keyFile, first.key)
	s := serve(t, serving.Config{CertFile: certFile, KeyFile: keyFile})
	shows := func(p pair) {
		t.Helper()
		if proto, err := get(t, s.URL(), p.roots); err != nil || proto != "HTTP/2.0" {
			t.Errorf("got %q, %v", proto, err)
		}
	}
	shows(first)
	write(t, certFile, second.cert)
	shows(first) // the key is still the other one's
	write(t, keyFile, second.key)
	shows(second)
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	shows(second)
	write(t, keyFile, first.key)
	write(t, certFile, first.cert)
	shows(first)
	if _, err := get(t, s.URL(), second.roots); err == nil {
		t.Error("the certificate of before is still shown")
	}
}

func TestWithoutTLS(t *testing.T) {
	s := serve(t, serving.Config{})
	if proto, err := get(t, s.URL(), nil); err != nil || proto != "HTTP/1.1" || !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("%s answers %q, %v", s.URL(), proto, err)
	}
}

func TestListenRefusals(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	taken := serve(t, serving.Config{})
	_, err := serving.Listen(serving.Config{Address: strings.TrimPrefix(taken.URL(), "http://"), Logger: log})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("an address in use: %v", err)
	}
	if _, err := serving.Listen(serving.Config{Address: "127.0.0.1:0", CertFile: "/nowhere", KeyFile: "/nowhere", Logger: log}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no certificate: %v", err)
	}
}
