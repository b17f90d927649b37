package health_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
)

// Every character that has a meaning somewhere between a URL and a header.
const (
	testUser     = "crawl@er/ü%20"
	testPassword = "p:a@ss/w?rd#%41\r\n\"\\ö"
)

// TestProbeThroughEveryProxy probes an http and an https URL through each kind of proxy, with right, wrong and no
// credentials and with unexpected answers.
func TestProbeThroughEveryProxy(t *testing.T) {
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	socks := socksProxy{user: testUser, password: testPassword}.start(t)
	silent := socksProxy{user: testUser, password: testPassword, hangUp: true}.start(t)
	for _, p := range []struct{ name, scheme, address, open string }{
		{"http", "http", forwardProxy(t, false, testUser, testPassword), forwardProxy(t, false, "", "")},
		{"https", "https", forwardProxy(t, true, testUser, testPassword), forwardProxy(t, true, "", "")},
		{"socks5", "socks5", socks, socksProxy{}.start(t)},
		{"socks5 that hangs up", "socks5", silent, socksProxy{}.start(t)},
	} {
		for _, o := range []*origin{plain, secure} {
			for name, c := range map[string]struct {
				target health.Target
				party  health.Party
				status int
			}{
				"right credentials":    {withLogin(through(t, p.scheme, p.address, o.URL+"/ok"), testUser, testPassword), "", 204},
				"wrong credentials":    {withLogin(through(t, p.scheme, p.address, o.URL+"/ok"), testUser, "wrong"), health.PartyProxyAuth, 407},
				"no credentials":       {through(t, p.scheme, p.address, o.URL+"/ok"), health.PartyProxyAuth, 407},
				"needless credentials": {withLogin(through(t, p.scheme, p.open, o.URL+"/ok"), testUser, testPassword), "", 204},
				"open":                 {through(t, p.scheme, p.open, o.URL+"/ok"), "", 204},
				"target by name":       {through(t, p.scheme, p.open, named(t, plain.URL, "localhost")+"/ok"), "", 204},
				"unexpected status":    {through(t, p.scheme, p.open, o.URL+"/teapot"), health.PartyStatus, 418},
			} {
				t.Run(strings.Join([]string{p.name, o.URL[:strings.Index(o.URL, ":")], name}, "/"), func(t *testing.T) {
					if c.status == 407 && p.scheme == "socks5" {
						c.status = 0
					}
					r := health.HTTPProber{}.Probe(t.Context(), c.target)
					if r.OK != (c.party == "") || r.Party != c.party || r.StatusCode != c.status {
						t.Errorf("got %+v, want party %q and status %d", r, c.party, c.status)
					}
					if r.At.IsZero() || r.Latency <= 0 || (r.Message == "") != r.OK {
						t.Errorf("incomplete: %+v", r)
					}
				})
			}
		}
	}
}

// TestRequestsThatTargetsSee says what a target learns of a probe, and that nothing of the proxy's business leaks to it.
func TestRequestsThatTargetsSee(t *testing.T) {
	for _, c := range []struct {
		scheme string
		secure bool
	}{{"http", false}, {"http", true}, {"socks5", false}, {"socks5", true}} {
		t.Run(fmt.Sprintf("%s secure=%v", c.scheme, c.secure), func(t *testing.T) {
			o := newOrigin(t, c.secure)
			address := socksProxy{}.start(t)
			if c.scheme == "http" {
				address = forwardProxy(t, false, "", "")
			}
			one := withLogin(through(t, c.scheme, address, o.URL+"/a%2Fb/?q=a%20b#part"), testUser, testPassword)
			if r := (health.HTTPProber{}).Probe(t.Context(), one); !r.OK {
				t.Fatal(r)
			}
			request := o.seen()[0]
			if request.Method != http.MethodGet || request.RequestURI != "/a%2Fb/?q=a%20b" || "://"+request.Host != o.URL[strings.Index(o.URL, ":"):] {
				t.Errorf("the target saw %s %s of %s", request.Method, request.RequestURI, request.Host)
			}
			for name := range request.Header {
				if !slices.Contains([]string{"User-Agent", "Accept", "Cache-Control", "Connection"}, name) && name != "X-Forwarded-For" && name != "Accept-Encoding" {
					t.Errorf("the target saw the header %s", name)
				}
			}
			if got := request.Header.Get("Cache-Control"); got != "no-cache" {
				t.Errorf("Cache-Control is %q", got)
			}
		})
	}
}

func TestProbeOpensFreshConnections(t *testing.T) {
	o := newOrigin(t, true)
	address := forwardProxy(t, false, "", "")
	one := through(t, "http", address, o.URL)
	one.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 2 {
		if r := (health.HTTPProber{}).Probe(t.Context(), one); !r.OK {
			t.Fatal(r)
		}
	}
	seen := o.seen()
	if seen[0].RemoteAddr == seen[1].RemoteAddr {
		t.Error("two probes shared a connection to the target")
	}
	if seen[1].TLS.DidResume {
		t.Error("the second probe resumed the TLS session of the first and so verified nothing")
	}
}

func TestProbeIsConcurrent(t *testing.T) {
	o := newOrigin(t, true)
	one := through(t, "http", forwardProxy(t, false, "", ""), o.URL)
	results := make(chan health.Result)
	for range 16 {
		go func() { results <- health.HTTPProber{}.Probe(t.Context(), one) }()
	}
	for range 16 {
		if r := <-results; !r.OK {
			t.Error(r)
		}
	}
}

func TestTLS(t *testing.T) {
	secure := newOrigin(t, true)
	open := forwardProxy(t, false, "", "")
	overTLS := forwardProxy(t, true, "", "")
	// It wants a certificate, be it as a proxy or as a target.
	cfg := &tls.Config{
		Certificates: []tls.Certificate{testCertificate(t)}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
	}
	demanding := serve(t, func(ctx context.Context, c net.Conn) {
		_ = tls.Server(c, cfg).HandshakeContext(ctx)
		_, _ = io.Copy(io.Discard, c) // until the prober goes, so that the alert arrives before the end
	})
	for name, c := range map[string]struct {
		scheme, address string
		change          func(*health.Target)
		party           health.Party
		message         string
	}{
		"target of an unknown authority": {"http", open, func(t *health.Target) { t.TLS = nil }, health.PartyTLS, "unknown authority"},
		"target with another name": {"http", open, func(t *health.Target) { t.TLS.ServerName = "other.test" },
			health.PartyTLS, "not valid for other.test"},
		"target with a given name": {"http", open, func(t *health.Target) { t.TLS.ServerName = "example.com" }, "", ""},
		"target whose time is over": {"http", open, func(t *health.Target) {
			t.TLS.Time = func() time.Time { return time.Now().AddDate(200, 0, 0) }
		}, health.PartyTLS, "expired"},
		"target that wants a certificate": {"http", open, func(t *health.Target) { t.URL = "https://" + demanding }, health.PartyTLS, "certificate required"},
		"target through an https proxy":   {"https", overTLS, func(*health.Target) {}, "", ""},
		"bad target through an https proxy": {"https", overTLS, func(t *health.Target) { t.TLS = nil },
			health.PartyTLS, "unknown authority"},
		"proxy of an unknown authority": {"https", overTLS, func(t *health.Target) { t.ProxyTLS = nil },
			health.PartyProxyTLS, "unknown authority"},
		"proxy with another name": {"https", overTLS, func(t *health.Target) { t.ProxyTLS.ServerName = "other.test" },
			health.PartyProxyTLS, "not valid for other.test"},
		"proxy that wants a certificate": {"https", demanding, func(*health.Target) {}, health.PartyProxyTLS, "certificate required"},
		"proxy without TLS":              {"https", open, func(*health.Target) {}, health.PartyProxyTLS, "does not look like a TLS handshake"},
		"target without TLS": {"http", open, func(target *health.Target) {
			target.URL = strings.Replace(newOrigin(t, false).URL, "http:", "https:", 1)
		}, health.PartyTLS, "does not look like a TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			one := through(t, c.scheme, c.address, secure.URL)
			c.change(&one)
			r := health.HTTPProber{}.Probe(t.Context(), one)
			if r.Party != c.party || !strings.Contains(r.Message, c.message) {
				t.Errorf("got %+v, want party %q and a message with %q", r, c.party, c.message)
			}
		})
	}
}

// TestRefusals answers for a proxy that understood and declined.
func TestRefusals(t *testing.T) {
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	// speak reads a request's start and answers it.
	speak := func(answers ...string) string {
		return serve(t, func(_ context.Context, c net.Conn) {
			for _, a := range answers {
				if _, err := c.Read(make([]byte, 4096)); err != nil {
					return
				}
				_, _ = io.WriteString(c, a)
			}
			_, _ = io.Copy(io.Discard, c)
		})
	}
	closed := serve(t, func(context.Context, net.Conn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	for name, c := range map[string]struct {
		scheme, address, url string
		party                health.Party
		status               int
		message              string
	}{
		"dial":                  {"http", nobody, secure.URL, health.PartyDial, 0, "connecting to the proxy: connection refused"},
		"closes at once":        {"http", closed, secure.URL, health.PartyProxyProtocol, 0, "CONNECT"},
		"closes at once, plain": {"http", closed, plain.URL, health.PartyProxyProtocol, 0, "answer through the proxy"},
		"closes at once, TLS":   {"https", closed, plain.URL, health.PartyProxyTLS, 0, "TLS handshake with the proxy"},
		"closes at once, SOCKS": {"socks5", closed, plain.URL, health.PartyProxyProtocol, 0, "SOCKS5 greeting"},
		"CONNECT 403":           {"http", speak("HTTP/1.1 403 no\r\n\r\n"), secure.URL, health.PartyProxyRefusal, 403, "403"},
		"CONNECT 502":           {"http", speak("HTTP/1.0 502 no\r\n\r\n"), secure.URL, health.PartyProxyRefusal, 502, "502"},
		"CONNECT 401":           {"http", speak("HTTP/1.1 401 no\r\n\r\n"), secure.URL, health.PartyProxyAuth, 401, "refused with 401"},
		"plain 401":             {"http", speak("HTTP/1.1 401 no\r\nServer: nginx\r\n\r\n"), plain.URL, health.PartyStatus, 401, "401"},
		"CONNECT 101":           {"http", speak("HTTP/1.1 101 no\r\n\r\n"), secure.URL, health.PartyProxyRefusal, 101, "101"},
		"CONNECT garbage":       {"http", speak("SSH-2.0-OpenSSH_9.2\r\n"), secure.URL, health.PartyProxyProtocol, 0, "not HTTP"},
		"CONNECT status 099":    {"http", speak("HTTP/1.1 099 x\r\n\r\n"), secure.URL, health.PartyProxyProtocol, 0, "not HTTP"},
		"CONNECT 200 and more":  {"http", speak("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), secure.URL, health.PartyProxyProtocol, 0, "more than its answer"},
		"tunnel closes":         {"http", speakThenClose(t, "HTTP/1.1 200 OK\r\n\r\n"), secure.URL, health.PartyTLS, 0, "TLS handshake with the target: the connection was closed"},
		"plain 503":             {"http", speak("HTTP/1.1 503 no\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\n\r\n"), plain.URL, health.PartyStatus, 503, "503, expected is 204"},
		"plain garbage":         {"http", speak("what?\r\n\r\n"), plain.URL, health.PartyProxyProtocol, 0, "not HTTP"},
		"plain SOCKS answer":    {"http", speak("\x05\xff"), plain.URL, health.PartyTimeout, 0, ""},
		"SOCKS refusal":         {"socks5", speak("\x05\x00", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"), plain.URL, health.PartyProxyRefusal, 0, "not allowed by the rules"},
		"SOCKS unknown refusal": {"socks5", speak("\x05\x00", "\x05\x63\x00\x01\x00\x00\x00\x00\x00\x00"), plain.URL, health.PartyProxyRefusal, 0, "code 99"},
		"SOCKS dead target":     {"socks5", socksProxy{}.start(t), "http://" + nobody, health.PartyProxyRefusal, 0, "connection refused"},
		"SOCKS4":                {"socks5", speak("\x00\x5a"), plain.URL, health.PartyProxyProtocol, 0, "not SOCKS5"},
		"HTTP for SOCKS":        {"socks5", speak("HTTP/1.1 400 Bad Request\r\n\r\n"), plain.URL, health.PartyProxyProtocol, 0, "not SOCKS5"},
		"SOCKS unoffered login": {"socks5", speak("\x05\x02"), plain.URL, health.PartyProxyProtocol, 0, "not offered"},
		"SOCKS address type":    {"socks5", speak("\x05\x00", "\x05\x00\x00\x09\x00\x00\x00\x00\x00\x00"), plain.URL, health.PartyProxyProtocol, 0, "keep to the protocol"},
		"SOCKS request broken":  {"socks5", speak("\x05\x00", "\x04\x00\x00\x01\x00\x00\x00\x00\x00\x00"), plain.URL, health.PartyProxyProtocol, 0, "not SOCKS5"},
		"target garbage":        {"socks5", speak("\x05\x00", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", "+OK POP3\r\n"), plain.URL, health.PartyTarget, 0, "not HTTP"},
		"target 407":            {"socks5", speak("\x05\x00", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", "HTTP/1.1 407 x\r\n\r\n"), plain.URL, health.PartyStatus, 407, "407"},
		"target after 1xx":      {"socks5", speak("\x05\x00", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", "HTTP/1.1 103 x\r\nLink: x\r\n\r\nHTTP/1.1 204 x\r\n\r\n"), plain.URL, "", 204, ""},
	} {
		t.Run(name, func(t *testing.T) {
			one := through(t, c.scheme, c.address, c.url)
			if c.party == health.PartyTimeout {
				one.Timeout = 200 * time.Millisecond
			}
			r := health.HTTPProber{}.Probe(t.Context(), one)
			if r.Party != c.party || r.StatusCode != c.status || !strings.Contains(r.Message, c.message) {
				t.Errorf("got %+v, want party %q, status %d and a message with %q", r, c.party, c.status, c.message)
			}
		})
	}
}

func speakThenClose(t *testing.T, answer string) string {
	t.Helper()
	return serve(t, func(_ context.Context, c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(c, answer)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
}

// TestNoSecretInMessages has every phase fail beside peers that send back what they got.
func TestNoSecretInMessages(t *testing.T) {
	const password = "hunter2hunter2"
	echo := serve(t, func(_ context.Context, c net.Conn) {
		got := make([]byte, 4096)
		n, _ := c.Read(got)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\n%s: %s\r\n\r\n%s", password, password, password, got[:n])
	})
	header := serve(t, func(_ context.Context, c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = fmt.Fprintf(c, "HTTP/1.1 403 %s\r\nX-Error: %s\r\n\r\n", password, password)
	})
	socks := socksProxy{user: "other", password: "other"}.start(t)
	for _, scheme := range []string{"http", "https", "socks5"} {
		for _, address := range []string{echo, header, socks} {
			for _, rawURL := range []string{"http://a.test", "https://a.test", "http://u:" + password + "@a.test", "http://" + password + "\x00"} {
				one := withLogin(through(t, scheme, address, rawURL), "user", password)
				r := health.HTTPProber{}.Probe(t.Context(), one)
				if r.OK || strings.Contains(r.Message, password) {
					t.Errorf("%s to %s for %q: %+v", scheme, address, rawURL, r)
				}
				if strings.Contains(fmt.Sprintf("%+v %#v", one.User, one.Password), password) {
					t.Error("the target shows its password")
				}
			}
		}
	}
}

func TestLoginTooLongForSOCKS(t *testing.T) {
	one := withLogin(through(t, "socks5", socksProxy{user: "u", password: "p"}.start(t), "http://a.test"), "user", strings.Repeat("x", 256))
	if r := (health.HTTPProber{}).Probe(t.Context(), one); r.Party != health.PartyProxyAuth || !strings.Contains(r.Message, "255 bytes") {
		t.Errorf("got %+v", r)
	}
}

func TestInvalidTarget(t *testing.T) {
	r := health.HTTPProber{}.Probe(t.Context(), health.Target{})
	if r.OK || r.Party != health.PartyConfig || !strings.Contains(r.Message, "Host") || strings.Contains(r.Message, "\n") {
		t.Errorf("got %+v", r)
	}
}

// TestProbeEndsWithItsContext stalls the probe in several phases and ends it from outside.
func TestProbeEndsWithItsContext(t *testing.T) {
	for _, c := range []struct {
		scheme string
		party  health.Party
	}{
		{"http", health.PartyTimeout}, {"https", health.PartyTimeout}, {"socks5", health.PartyTimeout},
		{"http", health.PartyCanceled}, {"https", health.PartyCanceled}, {"socks5", health.PartyCanceled},
	} {
		t.Run(c.scheme+" "+string(c.party), func(t *testing.T) {
			reached := make(chan struct{})
			address := serve(t, func(ctx context.Context, c net.Conn) {
				close(reached)
				<-ctx.Done()
			})
			// The target's own timeout is far away.
			one := through(t, c.scheme, address, "https://a.test")
			ctx, cancel := context.WithCancel(t.Context())
			if c.party == health.PartyTimeout {
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			} else {
				go func() { <-reached; cancel() }()
			}
			defer cancel()
			if r := (health.HTTPProber{}).Probe(ctx, one); r.Party != c.party || r.Latency > patience/2 {
				t.Errorf("got %+v, want party %q soon", r, c.party)
			}
		})
	}
}

func TestDialTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one := through(t, "http", l.Addr().String(), "https://a.test")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if r := (health.HTTPProber{}).Probe(ctx, one); r.Party != health.PartyTimeout || !strings.Contains(r.Message, "connecting to the proxy") {
		t.Errorf("got %+v", r)
	}
}

func TestNameThatDoesNotResolve(t *testing.T) {
	one := target(key)
	one.Host, one.Timeout = "proxy.invalid", patience
	r := health.HTTPProber{}.Probe(t.Context(), one)
	// A resolver that is out of reach may take its time.
	if r.Party != health.PartyDial && r.Party != health.PartyTimeout || !strings.Contains(r.Message, "connecting to the proxy") {
		t.Errorf("got %+v", r)
	}
}
