package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
)

// The secrets of this test, each of which is found nowhere else by chance. What is granted contains the passwords.
func secrets() map[string]string {
	return map[string]string{
		"the password of a proxy":                "Q1password-of-here",
		"the password of a proxy in the cloud":   "Q2password-of-toy",
		"the password of an External proxy":      "Q3password-of-office",
		"the password of a file":                 "Q4password-of-file",
		"a cloud-init":                           "Q5cloud-init",
		"a Secret that nobody refers to":         "Q6nobody",
		"the token of the API":                   "Q7token-of-the-api",
		"a token that is wrong":                  "Q8token-that-is-wrong",
		"the password of the collector of spans": "Q9password-of-the-collector",
	}
}

// forms are those in which a secret may be written.
func forms(text string) []string {
	all := []string{text, url.QueryEscape(text), hex.EncodeToString([]byte(text))}
	for _, login := range []string{text, "crawler:" + text, ":" + text} {
		all = append(all, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(login)), "="))
	}
	return all
}

// findings says which secrets are in a text.
func findings(where string, text []byte) (found []string) {
	for what, secret := range secrets() {
		for _, form := range forms(secret) {
			if bytes.Contains(text, []byte(form)) {
				found = append(found, fmt.Sprintf("%s: %s", where, what))
				break
			}
		}
	}
	return found
}

// secretDocuments declare a proxy for each way that a secret takes.
func secretDocuments(p *place, cloudURL string) []string {
	all := secrets()
	doc := func(name, label, key, value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, labels: {crawl.example.com/%s: \"true\"}}\nstringData: {username: crawler, %s: %q}\n", name, label, key, value)
	}
	managed := func(name, provider, more string) string {
		return fmt.Sprintf("apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: %s}\nspec:\n  provider: %s\n  %s\n", name, provider, more)
	}
	return []string{
		p.configuration() + fmt.Sprintf("- name: toy\n  type: example\n  config: {url: %q, zones: [a]}\nfleetID: secrets\n", cloudURL),
		doc("here", "credentials", "password", all["the password of a proxy"]),
		doc("toy", "credentials", "password", all["the password of a proxy in the cloud"]),
		doc("office", "credentials", "password", all["the password of an External proxy"]),
		doc("init", "cloud-init", "user-data", all["a cloud-init"]),
		doc("spare", "credentials", "password", all["a Secret that nobody refers to"]),
		managed("here", "here", "credentials: {secretRef: {name: here}}"),
		managed("toy", "toy", "credentials: {secretRef: {name: toy}}"),
		managed("file", "toy", "credentials: {secretRef: {name: file}}"),
		managed("init", "toy", "cloudInit: {secretRef: {name: init, key: user-data}}"),
		"apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: office}\nspec:\n  mode: External\n" +
			"  endpoint: {scheme: http, host: 127.0.0.1, port: 9}\n  credentials: {secretRef: {name: office}}\n",
	}
}

// inspector asks a fleet for whatever it tells, and notes which secrets it told.
type inspector struct {
	t     *testing.T
	url   string
	token string
	found []string
}

func (i *inspector) look(where string, text []byte) {
	i.found = append(i.found, findings(where, text)...)
}

// ask makes a request and returns the body of the answer, which is looked through unless it is that of a grant.
func (i *inspector) ask(method, path, body string, granted bool) string {
	i.t.Helper()
	r, err := http.NewRequestWithContext(i.t.Context(), method, i.url+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+i.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	switch {
	case granted && answer.StatusCode == http.StatusCreated:
		return string(text)
	case granted:
		i.t.Fatalf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	i.look(fmt.Sprintf("%s %s answers %s", method, path, answer.Status), fmt.Appendf(text, "%v", answer.Header))
	return string(text)
}

// Whatever the fleet writes (its log down to debug, spans, metrics, every answer and page of the API, its state file and what
// the commands print) holds no secret. Only a granted lease has the credentials of its proxy.
func TestSecretsStayHidden(t *testing.T) {
	all := secrets()
	c := collectSpans(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+all["the password of the collector of spans"]+",broken-"+all["the password of the collector of spans"])
	toy, cloudURL := cloudtest.Start(t, cloud.Config{Boot: 10 * time.Millisecond, Stop: 10 * time.Millisecond})
	for range 2 { // answers that repeat what was asked, password and all
		if err := toy.Inject(cloud.Fault{Op: "create", Status: 500}); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlace(t)
	p.write("fleet.yaml", secretDocuments(p, cloudURL)...)
	files := map[string]string{"token": all["the token of the API"], "secrets/default/file/username": "crawler",
		"secrets/default/file/password": all["the password of a file"]}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := p.launch("--token-file", p.path("token"), "--secrets-dir", p.path("secrets"), "--metrics-listen", "127.0.0.1:0",
		"--trace-health-probes", "--gc-min-age", minAge.String()).servingWith(all["the token of the API"])
	s.awaitPhases(map[string]string{"here": "Ready", "toy": "Ready", "file": "Ready", "init": "Failed", "office": "Unhealthy"})

	i := &inspector{t: t, url: s.url, token: all["the token of the API"]}
	i.tour()
	i.commands(s, p.path("token"))
	i.look("/metrics", []byte(s.get(s.log.find("serving metrics", "url"))))
	c.await(t, "Reconcile Proxy > reconcile.managed > provider.create")
	c.await(t, "health.probe")
	s.signal(syscall.SIGTERM)
	s.wait()
	i.look("the log", []byte(s.log.String()))
	c.mu.Lock()
	i.look("the spans", c.raw.Bytes())
	c.mu.Unlock()
	for _, name := range []string{"fleet.db", "copy.db"} {
		text, err := os.ReadFile(p.path(name))
		if err != nil {
			t.Error(err)
		}
		i.look(name, text)
	}
	for _, found := range i.found {
		t.Error(found)
	}
}

// tour asks for everything, rightly and wrongly.
func (i *inspector) tour() {
	i.t.Helper()
	for _, name := range []string{"here", "toy", "file", "init", "office", "nobody"} {
		i.ask("GET", "/v1/proxies/default/"+name, "", false)
		i.ask("GET", "/v1/proxies/default/"+name+"/explain", "", false)
		i.ask("GET", "/proxies/default/"+name, "", false)
		i.ask("POST", "/v1/proxies/default/"+name+"/retry", "", false)
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/v1/proxies", "/v1/providers", "/v1/gc/plan", "/v1/backup", "/nowhere"} {
		i.ask("GET", path, "", false)
	}
	i.ask("POST", "/v1/gc/sweep", "", false)
	i.ask("POST", "/v1/gc/allow", `{"provider":"toy","max":1}`, false)
	i.ask("POST", "/v1/leases", `{"target":"example.com", "what is this": true}`, false)
	i.ask("POST", "/v1/leases", `{"selector":{"region":"nowhere"}}`, false)

	granted := i.ask("POST", "/v1/leases", `{"target":"example.com"}`, true)
	if told := findings("the grant", []byte(granted)); len(told) != 1 {
		i.t.Errorf("a grant holds one password, that of its proxy: %v", told)
	}
	_, rest, _ := strings.Cut(granted, `"leaseID":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if told := i.ask("GET", "/v1/proxies/default/here/explain", "", false); !strings.Contains(told, `"probes"`) || strings.Contains(told, id) {
		i.t.Errorf("it does not explain, or tells the ID of the lease: %s", told)
	}
	i.ask("POST", "/v1/leases/"+id+"/renew", "", false)
	i.ask("POST", "/v1/leases/"+id+"/report", `{"result":"banned"}`, false)
	i.ask("DELETE", "/v1/leases/"+id, "", false)
	i.ask("POST", "/v1/leases/"+id+"/renew", "", false)
	i.ask("GET", "/", "", false)

	right := i.token
	i.token = secrets()["a token that is wrong"]
	i.ask("GET", "/v1/proxies", "", false)
	i.ask("POST", "/v1/leases", "{}", false)
	i.token = right
}

// commands looks through what the program prints as a client.
func (i *inspector) commands(s *server, token string) {
	i.t.Helper()
	for _, args := range [][]string{
		{"get", "proxies"}, {"get", "proxies", "-o", "json"}, {"get", "proxy", "toy"}, {"get", "providers"}, {"explain", "toy"},
		{"explain", "init", "-o", "json"}, {"gc", "--dry-run"}, {"gc", "-o", "json"}, {"retry", "init"},
		{"backup", filepath.Join(filepath.Dir(token), "copy.db")}, {"get", "proxies", "--server", "http://127.0.0.1:1"},
	} {
		r := s.cli(append(args, "--token-file", token)...)
		i.look("proxyfleet "+strings.Join(args, " "), []byte(r.stdout+r.stderr))
	}
}
