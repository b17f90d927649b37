package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"time"
)

// authority is the one that all certificates of a cluster are signed by.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

func newAuthority() (*authority, error) {
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := lasting("cluster", nil)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.certificate, err = x509.ParseCertificate(der)
	return a, err
}

// lasting is a certificate that is valid for longer than any test takes.
func lasting(name string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		serial = big.NewInt(1) // rand.Reader does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
	}
}

// sign returns a new key and its certificate, both as PEM.
func (a *authority) sign(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

// user returns the certificate and the key of a user of the API, with the groups that they are in.
func (a *authority) user(name string, groups ...string) (certificate, key []byte, err error) {
	template := lasting(name, groups)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

// client writes them to path.crt and path.key.
func (a *authority) client(path, name string, groups ...string) error {
	certificate, key, err := a.user(name, groups...)
	return errors.Join(err, writePair(path, certificate, key))
}

// server writes the certificate of a server with these names and addresses to path.crt, and the key to path.key.
func (a *authority) server(path, name string, groups []string, hosts ...string) error {
	template := lasting(name, groups)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, key, err := a.sign(template)
	return errors.Join(err, writePair(path, certificate, key))
}

// write writes the authority's own certificate.
func (a *authority) write(path string) error { return os.WriteFile(path, a.pem, 0o600) }

// tls is how to talk to a server of the cluster without being anybody.
func (a *authority) tls() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
}

func writePair(path string, certificate, key []byte) error {
	return errors.Join(os.WriteFile(path+".crt", certificate, 0o600), os.WriteFile(path+".key", key, 0o600))
}

// writeKey writes a new key to a file.
func writeKey(path string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := encodeKey(private)
	return errors.Join(err, os.WriteFile(path, key, 0o600))
}

func encodeKey(private *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}
