package leasehttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

// These tests send requests through the proxy servers that Debian packages: squid, tinyproxy and dante-server.

// program returns the path of a server. A test without its server is skipped, but not in CI, where all are installed.
func program(t *testing.T, path, debianPackage string) string {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: install the package %s", path, debianPackage)
	}
	t.Skipf("%s is missing: install the package %s to run this test", path, debianPackage)
	return ""
}

// daemon runs a server with a configuration, in which PORT and DIR are replaced, and returns its port once it has said that
// it is ready. It ends with the test.
func daemon(t *testing.T, ready, config, path string, args ...string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // another process may take it now; the server then says so and the test fails
	dir := t.TempDir()
	file := filepath.Join(dir, "server.conf")
	_, text, _ := net.SplitHostPort(l.Addr().String())
	config = strings.NewReplacer("PORT", text, "DIR", dir).Replace(config)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} { // a server that root has started reads its files as somebody else
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, file)...)
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = input, input
	err = cmd.Start()
	_ = input.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = output.Close()
	})
	_ = output.SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewScanner(output)
	var said strings.Builder
	for !strings.Contains(said.String(), ready) {
		if !lines.Scan() {
			t.Fatalf("%s is not ready: %s", path, said.String())
		}
		said.WriteString(lines.Text() + "\n")
	}
	_ = output.SetReadDeadline(time.Time{})
	go func() { _, _ = io.Copy(io.Discard, output) }()
	reach(t, l.Addr().String())
	return port
}

// reach waits until a server accepts connections. Squid says so just before it does.
func reach(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return
		}
	}
	t.Fatalf("nobody listens on %s", address)
}

func squid(t *testing.T) lease.Endpoint {
	t.Helper()
	port := daemon(t, "Accepting HTTP Socket connections", `
http_port 127.0.0.1:PORT
acl forbidden dstdomain forbidden.test
http_access deny forbidden
http_access allow all
visible_hostname localhost
pid_filename none
netdb_filename none
cache deny all
cache_log /dev/null
access_log none
cache_store_log none
cache_mem 8 MB
coredump_dir DIR
`, program(t, "/usr/sbin/squid", "squid"), "-N", "-d1", "-f")
	return lease.Endpoint{Name: "real", Scheme: "http", Host: "127.0.0.1", Port: port}
}

func tinyproxy(t *testing.T) lease.Endpoint {
	t.Helper()
	port := daemon(t, "Accepting connections", `
Listen 127.0.0.1
Port PORT
Timeout 60
MaxClients 20
BasicAuth crawler sesame
`, program(t, "/usr/bin/tinyproxy", "tinyproxy"), "-d", "-c")
	return lease.Endpoint{
		Name: "real", Scheme: "http", Host: "127.0.0.1", Port: port, User: secret.New("crawler"), Password: secret.New("sesame"),
	}
}

func dante(t *testing.T) lease.Endpoint {
	t.Helper()
	port := daemon(t, "running", `
logoutput: stderr
internal: 127.0.0.1 port = PORT
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`, program(t, "/usr/sbin/danted", "dante-server"), "-f")
	return lease.Endpoint{Name: "real", Scheme: "socks5", Host: "127.0.0.1", Port: port}
}

// TestRealProxies makes sure that real servers work, and that their ways to say no are understood.
func TestRealProxies(t *testing.T) {
	plain, secure := newTarget(t, false, site).URL, newTarget(t, true, site).URL
	type party = leasehttp.Party
	for name, test := range map[string]struct {
		start func(*testing.T) lease.Endpoint
		login bool
		fails map[string]party // by URL
	}{
		"squid": {squid, false, map[string]party{
			"http://forbidden.test/": leasehttp.Proxy, "https://forbidden.test/": leasehttp.Proxy,
			"http://127.0.0.1:1/": leasehttp.Target, "https://127.0.0.1:1/": leasehttp.Target,
		}},
		"tinyproxy": {tinyproxy, true, map[string]party{"http://127.0.0.1:1/": leasehttp.Target, "https://127.0.0.1:1/": leasehttp.Target}},
		"dante":     {dante, false, map[string]party{"https://127.0.0.1:1/": leasehttp.Proxy}},
	} {
		t.Run(name, func(t *testing.T) {
			e := test.start(t)
			store := newStore(t, map[string]lease.Endpoint{"real": e})
			rt := newTransport(t, leasehttp.Config{Store: store})
			for _, url := range []string{plain, secure} {
				if resp, _, err := get(t, rt, url); err != nil || leasehttp.Served(resp) != "real" {
					t.Errorf("%s: %v", url, err)
				}
			}
			for url, by := range test.fails {
				_, _, err := get(t, rt, url)
				if failure, ok := errors.AsType[*leasehttp.Error](err); !ok || failure.By != by {
					t.Errorf("%s: %v, want a failure of %s", url, err, by)
				}
			}
			if test.login {
				e.Password = secret.New("wrong")
				store.set("real", e)
				for _, url := range []string{plain, secure} {
					_, _, err := get(t, rt, url)
					failure, ok := errors.AsType[*leasehttp.Error](err)
					if !ok || failure.By != leasehttp.Proxy || failure.Status < 400 {
						t.Errorf("%s with a wrong password: %v", url, err)
					}
				}
			}
			store.empty(t)
		})
	}
}
