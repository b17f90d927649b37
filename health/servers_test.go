package health_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
)

// These tests probe through the proxy servers that Debian packages: squid, tinyproxy and dante-server.

const (
	realUser     = "crawler"
	realPassword = "p:a@s/w d%41"
	realHash     = "$6$proxyfleet$1kmnO1nC5kPE7ZvLd04ZGG4Bt1f785U/EfjbcANGzfLml5XxgKg/q5xvAKqaD2jpRP.a/5c/PgTMuY4mRA1UE/" // of realPassword, for crypt(3)
)

// program returns the path of a server. A test without its server is skipped, but not in CI, where all are installed.
func program(t *testing.T, path, debianPackage string) string {
	t.Helper()
	switch _, err := os.Stat(path); {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing: install the package %s", path, debianPackage)
	default:
		t.Skipf("%s is missing: install the package %s to run this test", path, debianPackage)
	}
	return ""
}

// daemon runs a server with a configuration, which may hold the placeholders PORT and DIR, and returns its address once it
// has said that it is ready. It ends with the test.
func daemon(t *testing.T, ready, config, path string, args ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // another process may take the port now; the server then says so and the test fails
	_, port, _ := net.SplitHostPort(address)
	dir := t.TempDir()
	// A server that was started by root reads its files as somebody else.
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config = strings.NewReplacer("PORT", port, "DIR", dir).Replace(config)
	file := filepath.Join(dir, "server.conf")
	passwords := realUser + ":" + realHash + "\n"
	for name, content := range map[string]string{file: config, filepath.Join(dir, "passwords"): passwords} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(path, append(args, file)...)
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	command.Stdout, command.Stderr = input, input
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string)
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = output.Close()
		for range said { // until the reader has ended
		}
	})
	go listen(output, ready, said)
	select {
	case text := <-said:
		if !strings.Contains(text, ready) {
			t.Fatalf("%s ended: %s", path, text)
		}
	case <-time.After(patience):
		t.Fatalf("%s did not say %q within %v", path, ready, patience)
	}
	reach(t, address)
	return address
}

// reach waits until a server accepts connections. Squid says so just before it does.
func reach(t *testing.T, address string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-deadline:
			t.Fatalf("nobody listens: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// listen passes on what a server said up to the line that says it is ready, or up to its end, and drains the rest.
func listen(output io.Reader, ready string, said chan<- string) {
	defer close(said)
	var text bytes.Buffer
	for lines := bufio.NewScanner(output); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), ready) {
			break
		}
	}
	said <- text.String()
	_, _ = io.Copy(io.Discard, output)
}

func squid(t *testing.T) string {
	t.Helper()
	const helper = "/usr/lib/squid/basic_ncsa_auth"
	path := program(t, "/usr/sbin/squid", "squid")
	return daemon(t, "Accepting HTTP Socket connections", `
http_port 127.0.0.1:PORT
auth_param basic program `+program(t, helper, "squid")+` DIR/passwords
auth_param basic children 1 startup=1
acl known proxy_auth REQUIRED
acl forbidden dstdomain forbidden.test
http_access deny forbidden
http_access allow known
http_access deny all
visible_hostname localhost
pid_filename none
netdb_filename none
cache_log /dev/null
access_log none
cache_store_log none
cache_mem 8 MB
coredump_dir DIR
`, path, "-N", "-d1", "-f")
}

func tinyproxy(t *testing.T) string {
	t.Helper()
	return daemon(t, "Accepting connections", `
Listen 127.0.0.1
Port PORT
Timeout 60
MaxClients 20
BasicAuth crawler sesame
`, program(t, "/usr/bin/tinyproxy", "tinyproxy"), "-d", "-c")
}

func dante(t *testing.T) string {
	t.Helper()
	return daemon(t, "running", `
logoutput: stderr
internal: 127.0.0.1 port = PORT
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks block { from: 0.0.0.0/0 to: 192.0.2.0/24 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`, program(t, "/usr/sbin/danted", "dante-server"), "-f")
}

// probing is a case of a test against a real server.
type probing struct {
	name   string
	target health.Target
	party  health.Party
}

func (c probing) run(t *testing.T) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		if r := (health.HTTPProber{}).Probe(t.Context(), c.target); r.Party != c.party || r.OK != (c.party == "") {
			t.Errorf("got %+v, want party %q", r, c.party)
		}
	})
}

// logins are the cases of a server that demands credentials.
func logins(t *testing.T, scheme, address, user, password string) (cases []probing) {
	t.Helper()
	for kind, o := range map[string]*origin{"http": newOrigin(t, false), "https": newOrigin(t, true)} {
		one := through(t, scheme, address, o.URL)
		cases = append(cases,
			probing{kind + " target", withLogin(one, user, password), ""},
			probing{kind + " target, wrong password", withLogin(one, user, "wrong"), health.PartyProxyAuth},
			probing{kind + " target, wrong user", withLogin(one, "nobody", password), health.PartyProxyAuth},
			probing{kind + " target, no credentials", one, health.PartyProxyAuth})
	}
	return cases
}

func TestSquid(t *testing.T) {
	address := squid(t)
	login := func(t health.Target) health.Target { return withLogin(t, realUser, realPassword) }
	for _, c := range append(logins(t, "http", address, realUser, realPassword),
		probing{"forbidden target", login(through(t, "http", address, "https://forbidden.test")), health.PartyProxyRefusal},
		probing{"forbidden target in clear", login(through(t, "http", address, "http://forbidden.test")), health.PartyStatus},
		probing{"dead target", login(through(t, "http", address, "https://127.0.0.1:1")), health.PartyProxyRefusal},
		probing{"not TLS", login(through(t, "https", address, "https://a.test")), health.PartyProxyTLS},
	) {
		c.run(t)
	}
	t.Run("no answer from its cache", func(t *testing.T) {
		o := newOrigin(t, false)
		proxyURL := &url.URL{Scheme: "http", Host: address, User: url.UserPassword(realUser, realPassword)}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxyURL), DisableKeepAlives: true}, Timeout: patience}
		for range 2 {
			response, err := client.Get(o.URL + "/page")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		if got := len(o.seen()); got != 1 {
			t.Fatalf("the target saw %d ordinary requests, so the cache does not work as the test needs it", got)
		}
		one := login(through(t, "http", address, o.URL+"/page"))
		one.ExpectedStatus = []int{http.StatusOK}
		if r := (health.HTTPProber{}).Probe(t.Context(), one); !r.OK {
			t.Error(r)
		}
		if got := len(o.seen()); got != 2 {
			t.Errorf("the target saw %d requests, want 2: the probe was answered from the cache", got)
		}
	})
}

func TestTinyproxy(t *testing.T) {
	address := tinyproxy(t)
	for _, c := range append(logins(t, "http", address, realUser, "sesame"),
		probing{"dead target", withLogin(through(t, "http", address, "https://127.0.0.1:1"), realUser, "sesame"), health.PartyProxyRefusal},
	) {
		c.run(t)
	}
	t.Run("behind TLS", func(t *testing.T) {
		for _, c := range logins(t, "https", terminator(t, address), realUser, "sesame") {
			c.run(t)
		}
	})
}

func TestDante(t *testing.T) {
	address := dante(t)
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	for _, c := range []probing{
		{"http target", through(t, "socks5", address, plain.URL), ""},
		{"https target", through(t, "socks5", address, secure.URL), ""},
		{"needless credentials", withLogin(through(t, "socks5", address, secure.URL), realUser, realPassword), ""},
		{"forbidden target", through(t, "socks5", address, "https://192.0.2.1"), health.PartyProxyRefusal},
		{"dead target", through(t, "socks5", address, "https://127.0.0.1:1"), health.PartyProxyRefusal},
		{"not HTTP", through(t, "http", address, secure.URL), health.PartyProxyProtocol},
	} {
		c.run(t)
	}
}
