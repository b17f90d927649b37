package nocloud_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

// machine runs the script that it reads, in file systems of its own, as cloud-init does on a machine whose image has squid
// already. There is no systemd, so the stub of systemctl says what it was asked for, and squid then runs in the foreground.
const machine = `set -eu
for dir in /etc/squid /usr/local/sbin /run /var/log/squid; do mount -t tmpfs tmpfs "$dir"; done
chown proxy:proxy /var/log/squid
printf '#!/bin/sh\necho "systemctl $*"\n' >/usr/local/sbin/systemctl
chmod 755 /usr/local/sbin/systemctl
sh -s
stat -c '%A %U:%G %n' /etc/squid/*
exec squid -N -d 1
`

// setUp runs a proxy as the vendor-data sets it up, and returns its address and what the set-up said.
func setUp(t *testing.T, p nocloud.Proxy) (address, said string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("file systems of one's own need root")
		}
		t.Skip("file systems of one's own need root")
	}
	program(t, "/usr/sbin/squid", "squid")
	p.Port = freePort(t)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", machine)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.Stdin = strings.NewReader(vendorData(t, p).Reveal())
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	cmd.Stdout, cmd.Stderr = input, input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		var text bytes.Buffer
		for lines := bufio.NewScanner(output); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "Accepting HTTP Socket connections") {
				ready <- text.String()
			}
		}
		select {
		case ready <- text.String():
		default:
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = output.SetReadDeadline(time.Now())
		<-ended
		_ = output.Close()
	})
	select {
	case said = <-ready:
	case <-time.After(time.Minute):
		t.Fatal("squid did not start within a minute")
	}
	if !strings.Contains(said, "Accepting HTTP Socket connections") {
		t.Fatalf("the set-up failed:\n%s", said)
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port))
	reach(t, address)
	return address, said
}

// reach waits until a server accepts connections. Squid says so just before it does.
func reach(t *testing.T, address string) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// get requests a URL through a proxy and returns the status and the body, or 0 and the error.
func get(t *testing.T, proxy string, user *url.Userinfo, target string) (int, string) {
	t.Helper()
	transport := &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: user}),
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// headers answers with the headers that it got.
func headers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_ = r.Header.Write(w)
}

func TestSquidAsksForThePassword(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(headers))
	defer target.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(headers))
	defer secure.Close()
	p := sample()
	p.Username = secret.New("crawler é")
	p.AllowedDestinations = prefixes("127.0.0.1/32")
	proxy, said := setUp(t, p)

	for _, want := range []string{"systemctl enable squid", "systemctl restart squid", "-rw-r----- root:proxy /etc/squid/passwd"} {
		if !strings.Contains(said, want) {
			t.Errorf("the set-up did not say %q:\n%s", want, said)
		}
	}
	right := url.UserPassword("crawler é", "hunter2 § ' \"")
	for _, c := range []struct {
		name string
		user *url.Userinfo
		want int
	}{
		{"right", right, http.StatusOK},
		{"none", nil, http.StatusProxyAuthRequired},
		{"wrong password", url.UserPassword("crawler é", "hunter2 § '"), http.StatusProxyAuthRequired},
		{"wrong user", url.UserPassword("crawler", "hunter2 § ' \""), http.StatusProxyAuthRequired},
		{"other case", url.UserPassword("Crawler é", "hunter2 § ' \""), http.StatusProxyAuthRequired},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, body := get(t, proxy, c.user, target.URL); got != c.want {
				t.Errorf("http: %d %s; want %d", got, body, c.want)
			}
			switch got, body := get(t, proxy, c.user, secure.URL); {
			case c.want == http.StatusOK && got != c.want:
				t.Errorf("https: %d %s; want %d", got, body, c.want)
			case c.want != http.StatusOK && !strings.Contains(body, http.StatusText(c.want)):
				t.Errorf("https: %d %s; want the tunnel refused by %d", got, body, c.want)
			}
		})
	}

	t.Run("target learns nothing", func(t *testing.T) {
		_, body := get(t, proxy, right, target.URL)
		got, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\n" + body + "\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		for _, ordinary := range []string{"User-Agent", "Accept-Encoding", "Connection", "Cache-Control"} {
			got.Header.Del(ordinary) // Cache-Control is squid's max-age, which a browser sends too
		}
		if diff := cmp.Diff(http.Header{}, got.Header); diff != "" {
			t.Errorf("headers that the target got (-want +got):\n%s", diff)
		}
	})
}

func TestSquidLeadsIntoNoPrivateNetwork(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(headers))
	defer target.Close()
	_, port, _ := net.SplitHostPort(target.Listener.Addr().String())
	p := sample()
	p.Username, p.Password = secret.Text{}, secret.Text{}
	p.AllowedClients = prefixes("127.0.0.1/32")
	p.AllowedDestinations = prefixes("127.0.0.1/32", "169.254.0.0/16")
	proxy, _ := setUp(t, p)

	if got, body := get(t, proxy, nil, target.URL); got != http.StatusOK {
		t.Errorf("what is allowed: %d %s; want 200", got, body)
	}
	for _, host := range []string{
		"169.254.169.254", "[fe80::1]", "100.100.100.200", "168.63.129.16", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", // never
		"127.0.0.2", "[::1]", "[::ffff:127.0.0.2]", "0.0.0.0", "10.0.0.1", "172.31.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1",
		"[fd00::1]", "[64:ff9b::7f00:2]", "[2002:7f00:2::1]", "224.0.0.1", "255.255.255.255", "[::127.0.0.2]", "[::]",
		"2852039166", "0x7f.2",
	} {
		t.Run(host, func(t *testing.T) {
			if got, _ := get(t, proxy, nil, fmt.Sprintf("http://%s:%s/", host, port)); got != http.StatusForbidden {
				t.Errorf("status %d, want 403", got)
			}
			if _, body := get(t, proxy, nil, fmt.Sprintf("https://%s:%s/", host, port)); !strings.Contains(body, "Forbidden") {
				t.Errorf("a tunnel: %s; want it forbidden", body)
			}
		})
	}
	t.Run("cache manager", func(t *testing.T) {
		if got, body := get(t, proxy, nil, "http://"+proxy+"/squid-internal-mgr/info"); got == http.StatusOK {
			t.Errorf("it answers %d %s", got, body)
		}
	})
}

func TestSquidRefusesStrangers(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(headers))
	defer target.Close()
	p := sample()
	p.AllowedClients = prefixes("10.11.12.0/24")
	p.AllowedDestinations = prefixes("127.0.0.1/32")
	proxy, _ := setUp(t, p)
	if got, body := get(t, proxy, url.UserPassword("crawler", "hunter2 § ' \""), target.URL); got != http.StatusForbidden {
		t.Errorf("a client of another network, with the password: %d %s; want 403", got, body)
	}
}
