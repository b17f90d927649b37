package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flags that would have no effect, and those that cannot work, are refused by name before anything is looked for.
func TestClusterFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--state x", "-"},
		{"--kubernetes --state x", "--state has a meaning only without --kubernetes"},
		{"--kubernetes --leases x --secrets-dir x --allow-delete 3 --documents-poll 2s",
			"--secrets-dir, --leases, --allow-delete, --documents-poll have a meaning only without --kubernetes"},
		{"--kubeconfig x --namespace x --fleet-id x --advertise-address x:1 --gc-allow-namespaced",
			"--kubeconfig, --namespace, --fleet-id, --advertise-address, --gc-allow-namespaced have a meaning only with --kubernetes"},
		{"--leader-elect=false", "--leader-elect has a meaning only with --kubernetes"},
		{"--leader-election-id x --leader-election-namespace y", "--leader-election-id, --leader-election-namespace have a meaning only with --kubernetes"},
		{"--kubernetes --namespace A", `--namespace "A": `},
		{"--kubernetes --leader-election-namespace a.b", `--leader-election-namespace "a.b": `},
		{"--kubernetes --leader-election-id=", `--leader-election-id "": `},
		{"--kubernetes --fleet-id a_b", `--fleet-id "a_b": must be 1 to 63 of a-z, 0-9 and -`},
		{"--kubernetes --gc-allow-namespaced", "--gc-allow-namespaced has a meaning only with --namespace"},
		{"--kubernetes --listen :8090", "--listen :8090 is no address that others can ask for: say --advertise-address HOST:PORT"},
		{"--kubernetes --listen [::]:8090", "is no address that others can ask for"},
		{"--kubernetes --advertise-address x", "--advertise-address x must be HOST:PORT"},
		{"--kubernetes --advertise-address :8090", "--advertise-address :8090 must be HOST:PORT"},
		{"--kubernetes --advertise-address 0.0.0.0:8090", "must be HOST:PORT"},
		{"--kubernetes --advertise-address x:0", "must be HOST:PORT"},
		{"--kubernetes --listen 127.0.0.1:0", "-"},
		{"--kubernetes --listen :8090 --advertise-address [::1]:8090", "-"},
		{"--kubernetes --listen :8090 --advertise-address ::1", "-"},
		{"--kubernetes --listen :0 --advertise-address 192.0.2.1", "-"},
		{"--kubernetes --listen :8090 --advertise-address ::", "must be HOST:PORT"},
		{"--kubernetes --listen :8090 --leader-elect=false", "-"},
		{"--kubernetes --namespace a --gc-allow-namespaced", "-"},
	} {
		t.Run(test.args, func(t *testing.T) {
			missing := filepath.Join(t.TempDir(), "fleet.yaml") // what is valid fails for want of it
			t.Setenv("PROXYFLEET_TOKEN", "sesame")
			cmd := newRun(nil)
			cmd.SetArgs(append(strings.Fields(test.args), "-f", missing))
			cmd.SetErr(io.Discard)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.Execute()
			_, refused := errors.AsType[*usageError](err)
			switch {
			case test.want == "-" && (err == nil || refused || !strings.Contains(err.Error(), "no such file")):
				t.Errorf("it ends with %v, and not for want of the documents", err)
			case test.want != "-" && (!refused || !strings.Contains(err.Error(), test.want)):
				t.Errorf("it ends with %v, want %q", err, test.want)
			}
		})
	}
}

// Objects of the cluster are not declared by documents, which would be read once and then forgotten.
func TestDocumentsOfACluster(t *testing.T) {
	const conf = "apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: home\n"
	const one = "---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: one}\nspec: {provider: x}\n"
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {username: a}\n"
	for _, test := range []struct{ name, text, want string }{
		{"a configuration", conf, ""},
		{"a proxy beside it", conf + one, "there is Proxy default/one and 0 more: give it to kubectl apply -f"},
		{"a Secret too", conf + secret + one, "there is Proxy default/one and 1 more"},
		{"a Secret alone", strings.TrimPrefix(secret, "---\n"), "there is Secret default/login and 0 more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "fleet.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			o := runOptions{documents: documents{files: []string{file}}}
			c, err := o.loadConfiguration(nil)
			switch {
			case test.want == "" && (err != nil || c.FleetID != "home"):
				t.Errorf("got %+v, %v", c, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if c, err := (&runOptions{}).loadConfiguration(nil); err != nil || c == nil {
		t.Errorf("without documents: %v, %v", c, err)
	}
}

// A pod knows its own address, of either version of IP, and not where its API listens.
func TestAdvertisedAddress(t *testing.T) {
	for _, test := range []struct{ advertise, want string }{
		{"", "[::]:8090"},
		{"192.0.2.1", "192.0.2.1:8090"},
		{"2001:db8::1", "[2001:db8::1]:8090"},
		{"[2001:db8::1]:80", "[2001:db8::1]:80"},
		{"fleet.example:443", "fleet.example:443"},
	} {
		o := clusterOptions{advertise: test.advertise}
		if got := o.address("[::]:8090"); got != test.want {
			t.Errorf("%q is advertised as %s, want %s", test.advertise, got, test.want)
		}
	}
}
