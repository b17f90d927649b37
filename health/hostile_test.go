package health_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
)

// A misdeed is what a hostile peer does once the prober has sent something. It lasts until the prober hangs up.
type misdeed func(context.Context, net.Conn)

// silence says nothing.
func silence(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// drip says a text a byte at a time, a text so long that no probe waits for its end.
func drip(text string) misdeed {
	return func(ctx context.Context, c net.Conn) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, b := range []byte(text + strings.Repeat("x", 10_000)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// endless says a beginning and then a text again and again.
func endless(beginning, again string) misdeed {
	return func(_ context.Context, c net.Conn) {
		text := strings.Repeat(again, 100)
		_, err := io.WriteString(c, beginning+text)
		for err == nil {
			_, err = io.WriteString(c, text)
		}
	}
}

// after lets a peer behave until the prober has sent as many messages as there are answers, and one more.
func after(m misdeed, answers ...string) misdeed {
	return func(ctx context.Context, c net.Conn) {
		for _, a := range append(answers, "") {
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				return
			}
			if _, err := io.WriteString(c, a); err != nil {
				return
			}
		}
		m(ctx, c)
	}
}

// insideTLS puts a peer behind a handshake with the certificate that tests trust.
func insideTLS(t *testing.T, m misdeed) misdeed {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}, MinVersion: tls.VersionTLS12}
	return func(ctx context.Context, c net.Conn) { m(ctx, tls.Server(c, cfg)) }
}

// TestHostilePeers says what a probe makes of peers that want to keep it busy: it ends by its deadline, or earlier where
// what it reads is bounded, and its message names the phase in which it was kept. That it reads no more than its bound is
// the test of readAnswer.
func TestHostilePeers(t *testing.T) {
	const (
		established = "HTTP/1.1 200 OK\r\n\r\n"
		greeted     = "\x05\x00"
		connected   = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
		plain       = "http://127.0.0.1"
		secure      = "https://127.0.0.1"
	)
	dripAnswer, dripHello := drip("HTTP/1.1 204 No Content\r\nX: "), drip("\x16\x03\x03\x40\x00\x02")
	endlessStatus := endless("HTTP/1.1 204 ", "No Content ")
	endlessHeader := endless("HTTP/1.1 204 No Content\r\nX: ", "x")
	endlessHeaders := endless("HTTP/1.1 204 No Content\r\n", "X: x\r\n")
	endlessInterim := endless("", "HTTP/1.1 102 Processing\r\n\r\n")
	interimWithHeaders := endless("", "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 20_000)+"\r\n\r\n")
	endlessBody := endless("HTTP/1.1 204 OK\r\nContent-Length: 999999999\r\n\r\n", "x")
	endlessNoise := endless("", "\x00\xff\x17")
	inTunnel := func(m misdeed) misdeed { return after(m, greeted, connected) }
	for name, c := range map[string]struct {
		scheme, url string
		does        misdeed
		party       health.Party
		message     string
	}{
		"http proxy: silence":           {"http", plain, silence, health.PartyTimeout, "timeout while waiting for the answer through the proxy"},
		"http proxy: drip":              {"http", plain, after(dripAnswer), health.PartyTimeout, "timeout while waiting for the answer through the proxy"},
		"http proxy: status line":       {"http", plain, after(endlessStatus), health.PartyProxyProtocol, "too long"},
		"http proxy: header":            {"http", plain, after(endlessHeader), health.PartyProxyProtocol, "too long"},
		"http proxy: headers":           {"http", plain, after(endlessHeaders), health.PartyProxyProtocol, "too long"},
		"http proxy: 1xx":               {"http", plain, after(endlessInterim), health.PartyProxyProtocol, "too many 1xx"},
		"http proxy: long 1xx":          {"http", plain, after(interimWithHeaders), health.PartyProxyProtocol, "too long"},
		"http proxy: body":              {"http", plain, after(endlessBody), "", ""},
		"http proxy: noise":             {"http", plain, after(endlessNoise), health.PartyProxyProtocol, "too long"},
		"http proxy, CONNECT: silence":  {"http", secure, silence, health.PartyTimeout, "timeout while waiting for the proxy's answer to CONNECT"},
		"http proxy, CONNECT: drip":     {"http", secure, after(dripAnswer), health.PartyTimeout, "timeout while waiting for the proxy's answer to CONNECT"},
		"http proxy, CONNECT: status":   {"http", secure, after(endlessStatus), health.PartyProxyProtocol, "too long"},
		"http proxy, CONNECT: header":   {"http", secure, after(endlessHeader), health.PartyProxyProtocol, "too long"},
		"http proxy, CONNECT: 1xx":      {"http", secure, after(endlessInterim), health.PartyProxyProtocol, "too many 1xx"},
		"http proxy, CONNECT: body":     {"http", secure, after(endlessBody), health.PartyProxyProtocol, "more than its answer"},
		"https proxy, TLS: silence":     {"https", plain, silence, health.PartyTimeout, "timeout while in the TLS handshake with the proxy"},
		"https proxy, TLS: drip":        {"https", plain, after(dripHello), health.PartyTimeout, "timeout while in the TLS handshake with the proxy"},
		"https proxy, TLS: noise":       {"https", plain, after(endlessNoise), health.PartyProxyTLS, "TLS handshake with the proxy"},
		"https proxy, answer: silence":  {"https", plain, insideTLS(t, silence), health.PartyTimeout, "timeout while waiting for the answer through the proxy"},
		"https proxy, answer: drip":     {"https", plain, insideTLS(t, after(dripAnswer)), health.PartyTimeout, "timeout while waiting for the answer through the proxy"},
		"https proxy, answer: header":   {"https", plain, insideTLS(t, after(endlessHeader)), health.PartyProxyProtocol, "too long"},
		"https proxy, CONNECT: silence": {"https", secure, insideTLS(t, silence), health.PartyTimeout, "timeout while waiting for the proxy's answer to CONNECT"},
		"socks5 proxy: silence":         {"socks5", plain, silence, health.PartyTimeout, "timeout while waiting for the proxy's answer to the SOCKS5 greeting"},
		"socks5 proxy: request":         {"socks5", plain, after(silence, greeted), health.PartyTimeout, "timeout while waiting for the proxy's answer to the SOCKS5 request"},
		"socks5 proxy: half an address": {"socks5", plain, after(silence, greeted, "\x05\x00\x00\x03\xff"), health.PartyTimeout, "answer to the SOCKS5 request"},
		"socks5 proxy: login":           {"socks5", plain, after(silence, "\x05\x02"), health.PartyTimeout, "timeout while waiting for the proxy's answer to user name and password"},
		"target TLS: silence":           {"http", secure, after(silence, established), health.PartyTimeout, "timeout while in the TLS handshake with the target"},
		"target TLS: drip":              {"http", secure, after(dripHello, established), health.PartyTimeout, "timeout while in the TLS handshake with the target"},
		"target TLS: noise":             {"http", secure, after(endlessNoise, established), health.PartyTLS, "TLS handshake with the target"},
		"target TLS in TLS: silence":    {"https", secure, insideTLS(t, after(silence, established)), health.PartyTimeout, "timeout while in the TLS handshake with the target"},
		"target TLS in SOCKS: silence":  {"socks5", secure, inTunnel(silence), health.PartyTimeout, "timeout while in the TLS handshake with the target"},
		"target: silence":               {"socks5", plain, inTunnel(silence), health.PartyTimeout, "timeout while waiting for the target's answer"},
		"target: drip":                  {"socks5", plain, inTunnel(dripAnswer), health.PartyTimeout, "timeout while waiting for the target's answer"},
		"target: status line":           {"socks5", plain, inTunnel(endlessStatus), health.PartyTarget, "too long"},
		"target: header":                {"socks5", plain, inTunnel(endlessHeader), health.PartyTarget, "too long"},
		"target: 1xx":                   {"socks5", plain, inTunnel(endlessInterim), health.PartyTarget, "too many 1xx"},
		"target: body":                  {"socks5", plain, inTunnel(endlessBody), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := through(t, c.scheme, serve(t, c.does), c.url)
			if c.party == health.PartyTimeout {
				one.Timeout = time.Second
			}
			if strings.HasSuffix(name, "login") {
				one = withLogin(one, testUser, testPassword)
			}
			r := health.HTTPProber{}.Probe(t.Context(), one)
			if r.Party != c.party || !strings.Contains(r.Message, c.message) {
				t.Errorf("got %+v, want party %q and a message with %q", r, c.party, c.message)
			}
			// Scheduling on a busy machine is all that may come on top of the deadline.
			if r.Latency > one.Timeout+patience/4 {
				t.Errorf("the probe took %v, its timeout was %v", r.Latency, one.Timeout)
			}
		})
	}
}
