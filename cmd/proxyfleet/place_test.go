package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
)

// planted is in every password of these tests. It must be in no log, no list and no state.
const planted = "Planted-"

// place is a folder in which a fleet lives, with addresses for its proxies and a target for its probes.
type place struct {
	t       *testing.T
	dir     string
	network string // a prefix of loopback addresses
	target  *target
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), target: newTarget(t)}
	p.network = fmt.Sprintf("127.%d.%d.%d/28", 2+rand.IntN(250), rand.IntN(256), 16*rand.IntN(16))
	t.Cleanup(p.search)
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// search looks for planted passwords in all files but the documents.
func (p *place) search() {
	err := filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) == ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(planted)) {
			p.t.Errorf("%s holds a password in clear", path)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// write replaces a file at once, as editors do that are worth their name.
func (p *place) write(name string, documents ...string) {
	p.t.Helper()
	temporary := p.path("." + name + ".yaml")
	if err := os.WriteFile(temporary, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(temporary, p.path(name)); err != nil {
		p.t.Fatal(err)
	}
}

// quick are intervals for those who do not want to wait.
func quick() []string {
	return []string{"--documents-poll", "50ms", "--requeue-interval", "50ms", "--deletion-poll", "50ms", "--provisioning-poll", "50ms",
		"--drift-poll", "500ms", "--first-retry", "100ms", "--drain-timeout", "5s"}
}

// launch starts the fleet of fleet.yaml.
func (p *place) launch(args ...string) *server {
	p.t.Helper()
	return launch(p.t, append(append(quick(), "-f", p.path("fleet.yaml")), args...)...)
}

// start runs it and returns when it serves.
func (p *place) start(args ...string) *server {
	p.t.Helper()
	return p.launch(args...).serving()
}

func (p *place) configuration() string {
	return fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: here
  type: local
  config: {addresses: [%q], sourceAddresses: [%q], allowedDestinations: [127.0.0.1]}
`, p.target.plain.URL+"/healthz", p.network, p.network)
}

func login(password string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: login, labels: {crawl.example.com/credentials: "true"}}
stringData: {username: crawler, password: %q}
`, planted+password)
}

// declared is a document of a proxy.
type declared struct {
	name     string
	provider string // "" is here
	port     int    // 0 is 3128
	more     string // fields of the spec
}

func (d declared) String() string {
	return fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: %s}
spec:
  provider: %s
  port: %d
  credentials: {secretRef: {name: login}}
  %s
`, d.name, cmp.Or(d.provider, "here"), cmp.Or(d.port, 3128), d.more)
}

// incarnations returns those of the local provider's instances, by the UID of their proxy.
func (p *place) incarnations() map[string]string {
	p.t.Helper()
	files, err := filepath.Glob(p.path("fleet.d/here/*.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it went while we looked
		}
		var record struct{ UID, Incarnation string }
		if err := json.Unmarshal(text, &record); err != nil {
			p.t.Fatalf("%s: %v", path, err)
		}
		found[record.UID] = record.Incarnation
	}
	return found
}

// target is a web site that counts its callers by the address that they come from.
type target struct {
	plain, secure *httptest.Server

	mu      sync.Mutex
	probes  map[string]int
	headers http.Header // of all that ever came
}

func newTarget(t *testing.T) *target {
	g := &target{probes: map[string]int{}, headers: http.Header{}}
	g.plain = httptest.NewServer(g)
	g.secure = httptest.NewTLSServer(g)
	t.Cleanup(g.plain.Close)
	t.Cleanup(g.secure.Close)
	return g
}

func (g *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	g.note(r.Header)
	if r.URL.Path != "/healthz" {
		fmt.Fprint(w, from)
		return
	}
	g.mu.Lock()
	g.probes[from]++
	g.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (g *target) note(h http.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.Copy(g.headers, h)
}

// header returns a header that somebody sent.
func (g *target) header(name string) (value string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.headers.Get(name), g.headers.Values(name) != nil
}

// probed returns how often a proxy was probed.
func (g *target) probed(address string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.probes[address]
}

// crawl asks the target through a proxy, over http and over https, and returns the address that the requests came from.
func (g *target) crawl(t *testing.T, through *url.URL) (from string) {
	t.Helper()
	for _, site := range []string{g.plain.URL, g.secure.URL} {
		var err error
		if from, err = g.get(site, through); err != nil {
			t.Fatalf("%s through %s: %v", site, through.Redacted(), err)
		}
	}
	return from
}

// get asks the target through a proxy once.
func (g *target) get(site string, through *url.URL) (from string, err error) {
	roots := x509.NewCertPool()
	roots.AddCert(g.secure.Certificate())
	transport := &http.Transport{Proxy: http.ProxyURL(through), TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	crawler := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	answer, err := crawler.Get(site)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(text), err
}

// listens says whether somebody accepts connections at an address.
func listens(p client.Proxy) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.Host, fmt.Sprint(p.Port)), 5*time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
