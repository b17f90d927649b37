package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/lease"
)

// Proxies that exist already are probed and leased as they are, whatever they speak; one host:port with two users is two
// proxies, and who refuses a login is named.
func TestExternalProxies(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	plain := daemon(t, "tinyproxy", "/usr/bin/tinyproxy", []string{"-d", "-c"}, `
Listen 127.0.0.1
Port PORT
BasicAuth anna `+planted+`a
BasicAuth bert `+planted+`b
`)
	socks := daemon(t, "dante-server", "/usr/sbin/danted", []string{"-f"}, `
logoutput: /dev/null
internal: 127.0.0.1 port = PORT
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.target.secure.Certificate().Raw}))
	secure := fmt.Sprintf(", tls: {ca: %q}", ca)
	p.write("fleet.yaml", p.configuration(), userSecret("anna", "a"), userSecret("bert", "b"), userSecret("eve", "a"),
		external("anna", "http", plain, "anna", ""), external("bert", "http", plain, "bert", ""), external("eve", "http", plain, "eve", ""),
		external("secure", "https", terminator(t, p.target.secure.TLS, plain), "anna", secure), external("socks", "socks5", socks, "", ""))
	s := p.start()
	eventually(t, func() string {
		all := s.list()
		if len(all) != 5 {
			return fmt.Sprintf("there are %+v", all)
		}
		for name, proxy := range all {
			if want := map[bool]string{true: "Unhealthy", false: "Ready"}[name == "eve"]; proxy.Phase != want {
				return fmt.Sprintf("%s should be %s, and is %+v", name, want, proxy)
			}
		}
		return ""
	})
	if list := s.cli("get", "proxies").stdout; !strings.Contains(list, "ProbeFailed: proxy_auth: the proxy refused the credentials") {
		t.Errorf("nobody tells that a login is refused:\n%s", list)
	}
	for _, name := range []string{"anna", "bert", "secure", "socks"} {
		granted, err := s.client.Acquire(t.Context(), lease.Request{Selector: map[string]string{"name": name}})
		if err != nil {
			t.Fatal(err)
		}
		if name != "secure" { // the crawler of this test does not know the CA of that proxy
			p.target.crawl(t, granted.Leases[0].Proxy.RevealURL())
		}
	}
}

func userSecret(user, password string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, labels: {crawl.example.com/credentials: "true"}}
stringData: {username: %s, password: %q}
`, user, user, planted+password)
}

func external(name, scheme, address, secret, more string) string {
	host, port, _ := net.SplitHostPort(address)
	document := fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: %s}
spec:
  mode: External
  endpoint: {scheme: %s, host: %s, port: %s%s}
  attributes: {name: %s}
`, name, scheme, host, port, more, name)
	if secret != "" {
		document += fmt.Sprintf("  credentials: {secretRef: {name: %s}}\n", secret)
	}
	return document
}

// daemon runs a server whose configuration has the placeholder PORT until the end of the test, and returns its address. A
// test without its server is skipped, but not in CI, where all are installed.
func daemon(t *testing.T, debianPackage, path string, args []string, config string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("install the package %s: %v", debianPackage, err)
		}
		t.Skipf("install the package %s to run this test: %v", debianPackage, err)
	}
	address := freeAddress()
	_, port, _ := net.SplitHostPort(address)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(strings.ReplaceAll(config, "PORT", port)); err != nil {
		t.Fatal(err)
	}
	file.Close()
	cmd := exec.Command(path, append(args, file.Name())...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, func() string {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return debianPackage + " does not listen: " + err.Error()
		}
		conn.Close()
		return ""
	})
	return address
}

// terminator takes TLS connections for a server that speaks none, until the end of the test.
func terminator(t *testing.T, config *tls.Config, behind string) string {
	t.Helper()
	socket, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: config.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			go relay(conn, behind)
		}
	}()
	return socket.Addr().String()
}

func relay(conn net.Conn, behind string) {
	defer conn.Close()
	server, err := net.Dial("tcp", behind)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, conn)
	}()
	_, _ = io.Copy(conn, server)
}
