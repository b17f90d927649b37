package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// writeCertificate makes a certificate for loopback, which is its own CA, in cert.pem and key.pem.
func (p *place) writeCertificate() {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(p.path(name), pem.EncodeToMemory(block), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// A fleet that others may reach wants a token, and shows a certificate that may change while it runs.
func TestTokenAndTLS(t *testing.T) {
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration())
	p.writeCertificate()
	if err := os.WriteFile(p.path("token"), []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.start("--token-file", p.path("token"), "--tls-cert-file", p.path("cert.pem"), "--tls-key-file", p.path("key.pem"))
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("it serves at %s", s.url)
	}
	get := func(args ...string) result { return s.cli(append([]string{"get", "proxies"}, args...)...) }
	wants := func(r result, code int, stderr string) {
		t.Helper()
		if r.code != code || !strings.Contains(r.stderr, stderr) {
			t.Errorf("got %+v, want code %d and %q", r, code, stderr)
		}
	}
	wants(get(), 1, "--ca-file names the certificates to trust")
	wants(get("--ca-file", p.path("cert.pem")), 1, "(401 unauthorized): give it by --token-file or PROXYFLEET_TOKEN")
	wants(get("--ca-file", p.path("cert.pem"), "--token-file", p.path("token")), 0, "No proxies found in namespace default; -A lists those of all.")
	t.Setenv("PROXYFLEET_TOKEN", "a-token")
	wants(get("--ca-file", p.path("cert.pem")), 0, "No proxies found in namespace default; -A lists those of all.")
	t.Setenv("PROXYFLEET_TOKEN", "")
	wants(get("--ca-file", p.path("cert.pem")), 1, "PROXYFLEET_TOKEN is set but empty")
	t.Setenv("PROXYFLEET_SERVER", s.url)
	if r := call(t, "get", "proxies", "--ca-file", p.path("cert.pem"), "--token-file", p.path("token")); r.code != 0 {
		t.Errorf("PROXYFLEET_SERVER is not heeded: %+v", r)
	}

	p.writeCertificate()
	wants(get("--ca-file", p.path("cert.pem"), "--token-file", p.path("token")), 0, "No proxies found in namespace default; -A lists those of all.")
	if err := os.WriteFile(p.path("cert.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants(get("--token-file", p.path("token")), 1, "--ca-file names the certificates to trust") // the last good one is in use
	if strings.Contains(s.log.String(), "a-token") {
		t.Error("the log holds the token")
	}
}

// Who may reach a fleet without a token by its name may also change it, if that is what was asked for.
func TestOpenToEverybody(t *testing.T) {
	s := startEmpty(t, "--listen", "0.0.0.0:0", "--insecure-no-token")
	if r := s.cli("lease", "acquire"); r.code != 1 || !strings.Contains(r.stderr, "no proxy matches the selector") {
		t.Errorf("at %s: got %+v", s.url, r)
	}
	local := startEmpty(t, "--insecure-no-token")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, local.url+"/v1/leases", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "rebound.example"
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a fleet of this machine alone answers %s to a name that somebody else resolves", answer.Status)
	}
}

// A token that no request could bear is refused by where it came from.
func TestTokenOfTheEnvironmentIsNamed(t *testing.T) {
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration())
	t.Setenv("PROXYFLEET_TOKEN", "open sesame")
	for _, args := range [][]string{{"run", "-f", p.path("fleet.yaml"), "--listen", "127.0.0.1:0"}, {"get", "proxies"}} {
		r := call(t, args...)
		if r.code != 1 || !strings.HasPrefix(r.stderr, "proxyfleet: PROXYFLEET_TOKEN holds characters that a header cannot carry") {
			t.Errorf("%s: got %+v", args[0], r)
		}
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) != 1 {
		t.Errorf("the start that was refused leaves %v, %v", left, err)
	}
}

// The address for scrapes needs no token, and there is nothing there to do or to lease.
func TestAddressOfMetrics(t *testing.T) {
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration())
	if err := os.WriteFile(p.path("token"), []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.launch("--token-file", p.path("token"), "--metrics-listen", "127.0.0.1:0").servingWith("a-token")
	base := strings.TrimSuffix(s.log.find("serving metrics", "url"), "/metrics")
	eventually(t, func() string {
		if answer := s.get(base + "/readyz"); !strings.HasPrefix(answer, "ok") {
			return answer
		}
		return ""
	})
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/healthz": http.StatusOK, "/": http.StatusNotFound,
		"/v1/proxies": http.StatusNotFound, "/v1/leases": http.StatusNotFound} {
		answer, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s answers %s, want %d", path, answer.Status, want)
		}
	}
}
