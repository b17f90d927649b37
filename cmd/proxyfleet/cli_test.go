package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// validate warns of what would be declared and not come up.
func TestValidate(t *testing.T) {
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration(), login("a"),
		declared{name: "good"}.String(),
		declared{name: "slip", provider: "hear"}.String(),
		declared{name: "zoned", more: "placement: {zone: a}"}.String(),
		strings.Replace(declared{name: "keyless"}.String(), "name: login", "name: logout", 1))
	got := call(t, "validate", "-f", p.path("fleet.yaml"))
	want := result{
		stdout: "valid: proxies 4, Secrets 1, providers 1\n",
		stderr: `proxyfleet: warning: Proxy default/keyless: no Secret default/logout that is labelled crawl.example.com/credentials: "true": secret not found
proxyfleet: warning: Proxy default/slip: spec.provider: no provider "hear" is configured
proxyfleet: warning: Proxy default/zoned: plan: UnsupportedField: placement.zone cannot be honoured by this provider; remove it
`,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("validate (-want +got):\n%s", diff)
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) != 1 {
		t.Errorf("validate leaves %v, %v", left, err)
	}
}

// An operator sees and mends a proxy that cannot be made, and can give up one that cannot be deleted.
func TestOperator(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.MkdirAll(p.path("secrets/crawl/login"), 0o700); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"username": "crawler", "password": planted + "dir"} {
		if err := os.WriteFile(filepath.Join(p.dir, "secrets/crawl/login", key+".yaml"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	odd := strings.Replace(declared{name: "odd", provider: "gone"}.String(), "name: odd", "name: odd, namespace: crawl", 1)
	odd = strings.Replace(odd, "name: login", "name: login, usernameKey: username.yaml, passwordKey: password.yaml", 1)
	p.write("fleet.yaml", p.configuration(), login("a"), declared{name: "one"}.String(), odd)
	s := p.start("--secrets-dir", p.path("secrets"), "--state", p.path("state.db"))
	s.awaitPhases(map[string]string{"one": "Ready", "odd": "Failed"})

	lines := func(args ...string) []string {
		t.Helper()
		r := s.cli(args...)
		if r.code != 0 || r.stderr != "" {
			t.Fatalf("%v: %+v", args, r)
		}
		return strings.Split(strings.TrimSpace(r.stdout), "\n")
	}
	fields := func(line string) string { return strings.Join(strings.Fields(line), " ") }

	all := lines("get", "proxies", "-A")
	if fields(all[0]) != "NAMESPACE NAME PHASE PROVIDER ADDRESS LATENCY LEASES REASON" || len(all) != 3 {
		t.Errorf("get proxies -A:\n%s", strings.Join(all, "\n"))
	}
	if want := `crawl odd Failed gone - - 0/10 UnknownProvider: `; !strings.HasPrefix(fields(all[1]), want) {
		t.Errorf("get proxies -A: %q, want it to begin with %q", all[1], want)
	}
	if got := lines("get", "proxies"); len(got) != 2 || !strings.HasPrefix(fields(got[1]), "one Ready here 127.") {
		t.Errorf("get proxies:\n%s", strings.Join(got, "\n"))
	}
	if got := strings.Join(lines("get", "proxy", "odd", "-n", "crawl"), "\n"); !strings.Contains(got, "crawl/odd") || !strings.Contains(got, "UnknownProvider: ") {
		t.Errorf("get proxy:\n%s", got)
	}
	var list struct {
		Proxies []struct{ Name string }
		Count   int
	}
	text := strings.Join(lines("get", "proxies", "-o", "json", "-l", "no=such"), "\n")
	if err := json.Unmarshal([]byte(text), &list); err != nil || list.Proxies == nil || list.Count != 0 {
		t.Errorf("get proxies -o json: %s", text)
	}
	if got := lines("retry", "odd", "-n", "crawl"); got[0] != "crawl/odd is tried again" {
		t.Errorf("retry: %q", got)
	}
	if r := s.cli("retry", "odd"); r.code != 1 || r.stderr != "proxyfleet: default/odd: proxy not found (404 unknown_proxy): \"proxyfleet get proxies --all-namespaces\" lists those that there are\n" {
		t.Errorf("retry in another namespace: %+v", r)
	}

	// The provider goes out of the configuration: what it made cannot be deleted any more, and somebody must say so.
	s.kill()
	p.write("fleet.yaml", strings.Replace(p.configuration(), "name: here", "name: there", 1), login("a"))
	s = p.start("--state", p.path("state.db"))
	s.awaitPhases(map[string]string{"one": "Deleting"})
	if got := lines("skip-cleanup", "one"); !strings.HasPrefix(got[0], "default/one is forgotten; instance listeners/proxy-") {
		t.Errorf("skip-cleanup: %q", got)
	}
	s.awaitPhases(map[string]string{})
}

// Every command says what it is for, and nobody is greeted by an error.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"get", "--help"}, {"lease", "--help"}, {"run", "--help"}, {"help", "lease", "acquire"}, {"version"}} {
		if r := call(t, args...); r.code != 0 || r.stdout == "" || r.stderr != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
