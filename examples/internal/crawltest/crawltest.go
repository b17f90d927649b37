// Package crawltest lets a crawler crawl a small site through a fleet that has a bad day, and compares what the three of them
// have seen of it: the crawler, the site, and the fleet that granted the leases.
package crawltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// pages is how many there are to crawl.
const pages = 300

// patience bounds whatever is waited for. It is for machines that have other things to do.
const patience = 90 * time.Second

// Trial is a site and a fleet. The fleet is the binary, with proxies of its own and others that exist already.
//
// While the crawler is at work, one proxy of each kind is banned, one of each is killed, one is asked to slow down, one is
// taken for a robot, and two are added.
type Trial struct {
	t      testing.TB
	ctx    context.Context // ends with the test
	dir    string
	net    string // a prefix of loopback addresses, such as 127.7.8.
	site   *site
	ledger *ledger
	own    map[string]*forward // those that exist already, by name
	log    bytes.Buffer
}

// New starts one, and returns when all proxies are ready. Everything ends with the test.
func New(t testing.TB) *Trial {
	t.Helper()
	r := &Trial{t: t, ctx: t.Context(), dir: t.TempDir(), net: fmt.Sprintf("127.%d.%d.", 2+rand.IntN(250), rand.IntN(256)), site: newSite(pages), own: map[string]*forward{}}
	t.Cleanup(r.site.server.Close)
	for i, name := range []string{"old-1", "old-2", "old-3", "old-4"} {
		r.start(name, i)
	}
	r.declare("made-1", "made-2", "made-3", "made-4")
	fleet := r.run()
	var err error
	if r.ledger, err = newLedger(fleet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.ledger.server.Close)
	r.await("old-1", "old-2", "old-3", "old-4", "made-1", "made-2", "made-3", "made-4")
	r.plan()
	return r
}

// Start is the URL of the first page.
func (r *Trial) Start() string { return r.site.url(1) }

// Fleet is the URL of the fleet's API.
func (r *Trial) Fleet() string { return r.ledger.server.URL }

// start starts a proxy that exists already, as far as the fleet knows.
func (r *Trial) start(name string, i int) {
	f, err := newForward(fmt.Sprintf("%s%d", r.net, 100+i))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.kill)
	r.own[name] = f
}

// declare writes the documents of the fleet, with these proxies that the fleet makes itself.
func (r *Trial) declare(made ...string) {
	addresses := fmt.Sprintf("%s1-%s20", r.net, r.net)
	documents := []string{fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: here
  type: local
  config: {addresses: [%s], sourceAddresses: [%s], allowedDestinations: [127.0.0.1]}
`, r.site.server.URL+"/healthz", addresses, addresses), `apiVersion: v1
kind: Secret
metadata: {name: login, labels: {crawl.example.com/credentials: "true"}}
stringData: {username: crawler, password: "p:a@s/w d%41-planted"}
`}
	for _, name := range made {
		documents = append(documents, fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: %s}
spec: {provider: here, credentials: {secretRef: {name: login}}}
`, name))
	}
	for name, f := range r.own {
		host, port, _ := net.SplitHostPort(f.address)
		documents = append(documents, fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: %s}
spec: {mode: External, endpoint: {scheme: http, host: %s, port: %s}}
`, name, host, port))
	}
	next := filepath.Join(r.dir, ".next")
	if err := os.WriteFile(next, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(r.dir, "fleet.yaml")); err != nil {
		r.t.Fatal(err)
	}
}

// run builds the binary, starts the fleet and returns the URL of its API.
func (r *Trial) run() string {
	_, here, _, _ := runtime.Caller(0)
	binary := filepath.Join(r.dir, "proxyfleet")
	build := exec.CommandContext(r.ctx, "go", "build", "-o", binary, "./cmd/proxyfleet")
	build.Dir = filepath.Join(filepath.Dir(here), "../../..")
	if output, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, output)
	}
	l, err := net.Listen("tcp", r.net+"99:0")
	if err != nil {
		r.t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // nobody else listens on this host
	cmd := exec.CommandContext(r.ctx, binary, "run", "-f", filepath.Join(r.dir, "fleet.yaml"), "--listen", address,
		"--documents-poll", "50ms", "--requeue-interval", "50ms", "--deletion-poll", "50ms", "--provisioning-poll", "50ms", "--drain-timeout", "5s")
	cmd.Stderr = &r.log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("the fleet says:\n%s", r.log.String())
		}
	})
	return "http://" + address
}

// await waits until these proxies are ready. It runs while the site serves nobody, and on other goroutines than the test's.
func (r *Trial) await(names ...string) {
	var said []known
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		said = r.list()
		n := 0
		for _, p := range said {
			if p.Phase == "Ready" && slices.Contains(names, p.Name) {
				n++
			}
		}
		if n == len(names) {
			return
		}
	}
	r.t.Errorf("waited for %v to be ready, and there are %+v", names, said)
}

// known is a proxy as the fleet shows it. Host is where it listens, and where its requests come from.
type known struct{ Name, Phase, Host string }

// list asks the fleet for its proxies. It has none as long as it does not answer.
func (r *Trial) list() []known {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.ledger.server.URL+"/v1/proxies", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var list struct{ Proxies []known }
	_ = json.NewDecoder(resp.Body).Decode(&list)
	return list.Proxies
}

// addresses returns the addresses of the proxies by name.
func (r *Trial) addresses() map[string]string {
	found := map[string]string{}
	for _, p := range r.list() {
		found[p.Name] = p.Host
	}
	return found
}

// plan says what happens to the proxies, and when.
func (r *Trial) plan() {
	made := r.addresses()
	s := r.site
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[30] = func() { s.banned[made["made-1"]] = http.StatusForbidden }
	s.events[60] = func() { r.own["old-1"].kill() }
	s.events[90] = func() { s.banned[made["old-2"]] = http.StatusTooManyRequests }
	s.events[120] = func() { r.declare("made-1", "made-3", "made-4") } // made-2 is no more
	s.events[150] = func() { s.banned[made["made-3"]] = captcha }
	s.events[180] = func() {
		r.start("new-1", 10)
		r.declare("made-1", "made-3", "made-4", "new-2")
		r.await("new-1", "new-2")
		for name, address := range r.addresses() {
			if name == "old-3" || name == "made-4" { // so that those that are new have work to do
				s.banned[address] = http.StatusForbidden
			}
		}
	}
	s.events[240] = func() { r.own["old-4"].kill() }
}

// Run runs a crawler to its end and returns what it printed.
func (r *Trial) Run(cmd func(ctx context.Context) *exec.Cmd) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := cmd(ctx)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		r.t.Errorf("the crawler: %v", err)
	}
	if stderr.Len() > 0 {
		r.t.Logf("the crawler says:\n%s", stderr.String())
	}
	if strings.Contains(stdout.String()+stderr.String(), "planted") {
		r.t.Error("the crawler tells the password")
	}
	return stdout.String()
}

// Check compares what a crawler printed, a line for each page with status, URL and the name of the proxy, with what the site
// has seen and what the fleet has leased.
func (r *Trial) Check(printed string) {
	r.t.Helper()
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	served := r.pages(printed)
	hosts := map[string]string{} // of proxies, by name
	for _, e := range r.ledger.entries {
		hosts[e.name] = e.host
		if e.ended.IsZero() {
			r.t.Errorf("a lease of %s was not given back", e.name)
		}
	}
	seen := map[string]bool{}
	bySource := map[string]int{}
	for _, h := range r.site.hits {
		bySource[h.source]++
		if h.status == http.StatusOK && hosts[served[h.path]] == h.source {
			seen[h.path] = true
		}
		if !r.leased(h) {
			r.t.Errorf("%s came from %s without a lease", h.path, h.source)
		}
	}
	for path, name := range served {
		if !seen[path] {
			r.t.Errorf("the crawler says that %s came through %s, and the site has not seen it from %s", path, name, hosts[name])
		}
	}
	r.tally(bySource, hosts)
	if len(r.site.events) > 0 {
		r.t.Errorf("%d things did not happen", len(r.site.events))
	}
}

// pages returns the proxy of each page that was printed, by path, and makes sure that all are there.
func (r *Trial) pages(printed string) map[string]string {
	served := map[string]string{}
	for line := range strings.Lines(printed) {
		var status, url, name string
		if _, err := fmt.Sscan(line, &status, &url, &name); err != nil || status != "200" {
			r.t.Errorf("a page failed: %s", line)
			continue
		}
		path := strings.TrimPrefix(url, r.site.server.URL)
		if served[path] != "" {
			r.t.Errorf("%s was crawled twice", path)
		}
		served[path] = name
	}
	if len(served) != pages {
		r.t.Errorf("%d of %d pages were crawled", len(served), pages)
	}
	return served
}

// killed are the proxies that die with requests under way.
func killed() []string { return []string{"default/old-1", "default/old-4", "default/made-2"} }

// leased says whether a lease of the proxy was open when a request came through it. What a proxy sent before it died may come
// after its crawler has noticed and given the lease back.
func (r *Trial) leased(h hit) bool {
	for _, e := range r.ledger.entries {
		ended := e.ended
		if slices.Contains(killed(), e.name) {
			ended = ended.Add(2 * time.Second)
		}
		if e.host == h.source && !h.at.Before(e.granted) && (e.ended.IsZero() || !h.at.After(ended)) {
			return true
		}
	}
	return false
}

// tally compares how often each proxy was leased with how often it was used, and logs it.
func (r *Trial) tally(hits map[string]int, hosts map[string]string) {
	leases, reports := map[string]int{}, map[string]map[string]int{}
	granted := map[string]int{} // by address, which one that is new may have from one that is gone
	for _, e := range r.ledger.entries {
		leases[e.name]++
		granted[e.host]++
		if reports[e.name] == nil {
			reports[e.name] = map[string]int{}
		}
		for _, report := range e.reports {
			reports[e.name][report]++
		}
	}
	for name, n := range leases {
		r.t.Logf("%s at %s: %d leases, %d requests from there, reports %v", name, hosts[name], n, hits[hosts[name]], reports[name])
	}
	for source, n := range hits {
		if n > granted[source] {
			r.t.Errorf("%s was used %d times under %d leases", source, n, granted[source])
		}
	}
	for name, want := range map[string]string{
		"default/made-1": "banned", "default/old-1": "failed", "default/old-2": "rate_limited", "default/made-3": "banned",
		"default/old-3": "banned", "default/new-1": "ok", "default/new-2": "ok", "default/old-4": "failed",
	} {
		if reports[name][want] == 0 {
			r.t.Errorf("nobody reported %s as %s", name, want)
		}
	}
}

// BanAll has the site ban all proxies that there are.
func (r *Trial) BanAll() {
	addresses := r.addresses()
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	for _, address := range addresses {
		r.site.banned[address] = http.StatusForbidden
	}
}
