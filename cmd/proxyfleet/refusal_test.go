package main

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Whatever is wrong at the start is told in a line that says what, and nothing is left behind or touched.
func TestRefusals(t *testing.T) {
	p := newPlace(t)
	ok := p.configuration() + "---\n" + login("a")
	with := func(document string) string { return ok + "---\n" + document }
	proxy := func(more string) string { return with(declared{name: "one", more: more}.String()) }
	const lasting = "apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nproviders:\n" +
		"- {name: here, type: example, config: {url: 'http://127.0.0.1:1', zones: [a]}}\n"
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	p.write("good.yaml", proxy(""))
	s := launch(t, "-f", p.path("good.yaml"), "--state", p.path("locked.db")).serving()
	if r := s.cli("backup", p.path("other.db")); r.code != 0 {
		t.Fatal(r.stderr)
	}
	whole, err := os.ReadFile(p.path("other.db"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"empty": "", "blank": "\n", "token": "secret\n", "phrase": "open sesame\n", "json.db": `{"proxies": []}`, "truncated.db": string(whole[:5000])}
	for name, content := range files {
		if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // not in the place, all of whose files are read in the end
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		document string   // defaults to a good one
		args     []string // defaults to run with the document, which is {file}; {dir} is the place
		code     int      // defaults to 1
		want     string
	}{
		{name: "no file is named", args: []string{"run"}, code: 2, want: "-f FILE is required"},
		{name: "missing file", args: []string{"run", "-f", "{dir}/nowhere.yaml"}, want: "nowhere.yaml: cannot be read: no such file or directory"},
		{name: "a directory", args: []string{"run", "-f", "{dir}"}, want: "is a directory"},
		{name: "not YAML", document: "kind: [Proxy", want: "{file}:1: document 1: "},
		{name: "unknown kind", document: with("apiVersion: v1\nkind: Pod\n"), want: `kind: must be Proxy, Secret or FleetConfiguration, not "Pod"`},
		{name: "unknown field", document: proxy("prot: 3128"), want: "spec.prot: unknown field"},
		{name: "duplicate name", document: proxy("") + "---\n" + declared{name: "one"}.String(), want: "Proxy default/one: is declared twice"},
		{name: "negative duration", document: proxy("healthCheck: {interval: -5s}"), want: "spec.healthCheck.interval: must be"},
		{name: "port 70000", document: with(declared{name: "one", port: 70000}.String()), want: "spec.port: must be"},
		{name: "attributes that are no strings", document: proxy("attributes: {region: 1}"), want: "spec.attributes.region: must be a string"},
		{name: "unknown type of provider", document: strings.Replace(ok, "type: local", "type: lokal", 1), want: `provider "here": type: "lokal" is not known; the types are example, gcp, kvm, kvm2, local, pod`},
		{name: "unknown field of a provider", document: strings.Replace(ok, "addresses:", "adresses:", 1), want: "config.adresses: there is no such field"},
		{name: "no identity for what lasts", document: lasting, want: `fleetID is required: instances of provider "here" outlive this process`},
		{name: "identity of another fleet", document: strings.Replace(ok, "kind: FleetConfiguration", "kind: FleetConfiguration\nfleetID: other", 1),
			args: []string{"run", "-f", "{file}", "--state", "{dir}/other.db"}, want: `belongs to fleet "`},

		{name: "empty token file", args: []string{"run", "-f", "{file}", "--token-file", "{dir}/empty"}, want: "token file {dir}/empty is empty"},
		{name: "blank token file", args: []string{"run", "-f", "{file}", "--token-file", "{dir}/blank"}, want: "token file {dir}/blank is empty"},
		{name: "token that no header can carry", args: []string{"run", "-f", "{file}", "--token-file", "{dir}/phrase"}, want: "token file {dir}/phrase holds characters that a header cannot carry"},
		{name: "token file is a pipe", args: []string{"run", "-f", "{file}", "--token-file", "{pipe}"}, want: "{pipe}: is not a regular file"},
		{name: "open to others without a token", args: []string{"run", "-f", "{file}", "--listen", ":0"}, code: 2, want: "--listen :0 lets other machines in, and there is no token"},
		{name: "no address", args: []string{"run", "-f", "{file}", "--listen", "8090"}, code: 2, want: "--listen 8090: address 8090: missing port"},
		{name: "address in use", args: []string{"run", "-f", "{file}", "--listen", taken.Addr().String()}, want: "cannot serve at " + taken.Addr().String() + ": bind: address already in use"},
		{name: "half of TLS", args: []string{"run", "-f", "{file}", "--tls-cert-file", "{dir}/token"}, code: 2, want: "--tls-cert-file and --tls-key-file go together"},
		{name: "certificate is a pipe", args: []string{"run", "-f", "{file}", "--tls-cert-file", "{pipe}", "--tls-key-file", "{dir}/token"}, want: "{pipe}: is not a regular file"},
		{name: "CA file is a pipe", args: []string{"get", "proxies", "--ca-file", "{pipe}"}, want: "{pipe}: is not a regular file"},
		{name: "no certificate", args: []string{"run", "-f", "{file}", "--tls-cert-file", "{dir}/token", "--tls-key-file", "{dir}/token"}, want: "TLS certificate {dir}/token with key {dir}/token: "},

		{name: "state is a directory", args: []string{"run", "-f", "{file}", "--state", "{dir}"}, want: "state file {dir}: "},
		{name: "lease file is a document", args: []string{"run", "-f", "{file}", "--leases", "{file}"}, want: "lease file {file}: is not a lease file"},
		{name: "lease file is the state file", args: []string{"run", "-f", "{file}", "--state", "{dir}/x.db", "--leases", "{dir}/x.db"}, code: 2, want: "--leases and --state must be two files"},
		{name: "state is truncated", args: []string{"run", "-f", "{file}", "--state", "{dir}/truncated.db"}, want: "state file {dir}/truncated.db: "},
		{name: "state is JSON", args: []string{"run", "-f", "{file}", "--state", "{dir}/json.db"}, want: "state file {dir}/json.db: "},
		{name: "state is locked", args: []string{"run", "-f", "{file}", "--state", "{dir}/locked.db"}, want: "state file {dir}/locked.db: is in use by another process"},

		{name: "flag that is negative", args: []string{"run", "-f", "{file}", "--drift-poll", "-5s"}, code: 2, want: "must be positive"},
		{name: "flag that is no duration", args: []string{"run", "-f", "{file}", "--drift-poll", "5"}, code: 2, want: "must be a duration such as 30s"},
		{name: "a longest rest below the first", args: []string{"run", "-f", "{file}", "--cooldown-window", "7h"}, code: 2, want: "--max-cooldown 6h is below --cooldown-window 7h"},
		{name: "rests that shrink", args: []string{"run", "-f", "{file}", "--cooldown-factor", "0.5"}, code: 2, want: "--cooldown-factor must be 1 to 1000, not 0.5"},
		{name: "no policy", args: []string{"run", "-f", "{file}", "--lease-policy", "cheapest"}, code: 2, want: "must be one of fastest, fewest-active, random, spread"},
		{name: "flags that contradict", args: []string{"run", "-f", "{file}", "--lease-ttl", "2h"}, code: 2, want: "--lease-ttl 2h is above --max-lease-ttl 1h"},
		{name: "a log that holds what libraries send", args: []string{"run", "-f", "{file}", "--log-level", "debug-4"}, code: 2, want: "--log-level must be debug, info, warn or error"},
		{name: "checks at all times", args: []string{"run", "-f", "{file}", "--provider-check-interval", "5s"}, code: 2, want: "--provider-check-interval must be at least 10s, or 0 for off"},
		{name: "checks longer than their interval", args: []string{"run", "-f", "{file}", "--provider-check-timeout", "2m"}, code: 2, want: "--provider-check-timeout 2m is above --provider-check-interval 1m"},
		{name: "sweeps at all times", args: []string{"run", "-f", "{file}", "--gc-interval", "0"}, code: 2, want: "must be positive"},
		{name: "metrics at a port that is taken", args: []string{"run", "-f", "{file}", "--metrics-listen", taken.Addr().String()}, want: "cannot serve at " + taken.Addr().String()},
		{name: "unknown flag", args: []string{"run", "--colour"}, code: 2, want: "unknown flag: --colour"},
		{name: "unknown command", args: []string{"rum"}, code: 2, want: `unknown command "rum"`},

		{name: "unknown thing to get", args: []string{"get", "pods"}, code: 2, want: `unknown command "pods" for "proxyfleet get"`},

		{name: "selector without a value", args: []string{"lease", "acquire", "--selector", "region"}, code: 2, want: "region must be formatted as key=value"},
		{name: "nobody answers", args: []string{"get", "proxies", "--server", "http://127.0.0.1:1"}, want: `connection refused: is "proxyfleet run" running there?`},
		{name: "no URL", args: []string{"get", "proxies", "--server", "localhost"}, code: 2, want: "--server: "},
		{name: "a lease without an ID", args: []string{"lease", "release"}, code: 2, want: "accepts 1 arg(s), received 0"},
		{name: "backup over a file", args: []string{"backup", "{dir}/token"}, want: "{dir}/token exists: choose another name, or say --force to replace it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "fleet.yaml")
			if err := os.WriteFile(file, []byte(cmp.Or(test.document, ok)), 0o600); err != nil {
				t.Fatal(err)
			}
			fill := strings.NewReplacer("{file}", file, "{dir}", p.dir, "{pipe}", pipe).Replace
			args := []string{"run", "-f", file}
			if test.args != nil {
				args = args[:0]
				for _, arg := range test.args {
					args = append(args, fill(arg))
				}
			}
			if args[0] == "run" { // on any address, unless the test has one of its own
				args = slices.Insert(args, 1, "--listen", "127.0.0.1:0")
			}
			got := call(t, args...)
			if want := max(test.code, 1); got.code != want || got.stdout != "" {
				t.Errorf("the exit code is %d and stdout %q, want %d and nothing", got.code, got.stdout, want)
			}
			if !complaint.MatchString(got.stderr) || !strings.Contains(got.stderr, fill(test.want)) {
				t.Errorf("stderr is %q, want one line that says %q", got.stderr, test.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
				t.Errorf("a start that was refused leaves %q", left)
			}
			if test.args == nil {
				if got.code = call(t, "validate", "-f", file).code; got.code != 1 {
					t.Errorf("validate exits with %d", got.code)
				}
			}
		})
	}
}

// complaint is one line of the program about what is wrong.
var complaint = regexp.MustCompile(`^proxyfleet: [^\n]+\n$`)
