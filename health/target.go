package health

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/secret"
)

// Verdict is what the probes of a target add up to.
type Verdict string

// The verdicts.
const (
	// Unknown: neither threshold was reached yet. Such a proxy is not to be leased.
	Unknown Verdict = ""
	// Healthy: SuccessThreshold probes in a row succeeded, and FailureThreshold in a row have not failed since.
	Healthy Verdict = "healthy"
	// Unhealthy: FailureThreshold probes in a row failed, and SuccessThreshold in a row have not succeeded since.
	Unhealthy Verdict = "unhealthy"
)

// Target is one proxy and how to probe it. Fields are required unless their comment says what zero means; the package
// has no defaults of its own for them, because the health check of a proxy is declared elsewhere, defaults included.
type Target struct {
	// Key names the proxy: "namespace/name".
	Key string
	// Incarnation tells one proxy under a key from the next. A target whose incarnation changed is another proxy: it
	// starts without counters, verdict or latency. Empty is an incarnation like any other.
	Incarnation string

	// Scheme is the protocol that the proxy speaks: "http", "https" (HTTP inside TLS) or "socks5".
	Scheme string
	// Host is the proxy's name or IP address, without brackets.
	Host string
	// Port is the proxy's port, 1 to 65535.
	Port int
	// User is the name to log in with, in any characters. Without User and Password no credentials are offered.
	User secret.Text
	// Password goes with User, in any characters.
	Password secret.Text
	// ProxyTLS is used towards a proxy whose scheme is "https". Nil verifies the proxy's certificate against the system's
	// roots. Without a ServerName in it, the certificate must be valid for Host.
	ProxyTLS *tls.Config

	// URL is what a probe requests through the proxy: an http or https URL with an ASCII host and without credentials.
	URL string
	// TLS is used inside the tunnel, towards the host of an https URL. Nil verifies the host's certificate against the
	// system's roots. Without a ServerName in it, the certificate must be valid for the URL's host.
	TLS *tls.Config
	// ExpectedStatus are the status codes that make a probe a success.
	ExpectedStatus []int

	// Interval is the time from the start of a probe to the start of the next.
	Interval time.Duration
	// Timeout bounds a whole probe. It may exceed Interval: see [Engine.Run].
	Timeout time.Duration
	// SuccessThreshold is how many probes in a row must succeed for the verdict Healthy, at least 1.
	SuccessThreshold int
	// FailureThreshold is how many probes in a row must fail for the verdict Unhealthy, at least 1.
	FailureThreshold int

	// Seed is the verdict that an earlier process reached on this incarnation. It counts only when the engine does not
	// know the key; its counters are zero, so that turning it takes a full run of a threshold. Unknown seeds nothing.
	Seed Verdict
	// SeedLatency is the latency that was reported with Seed. It may be zero.
	SeedLatency time.Duration
}

// Validate returns everything that is wrong with the target, joined, or nil. No text in it is a credential.
func (t Target) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(t.Key != "", "Key: is missing")
	check(slices.Contains([]string{schemeHTTP, schemeHTTPS, schemeSOCKS5}, t.Scheme),
		"Scheme: %q is not one of http, https and socks5", t.Scheme)
	check(t.Host != "", "Host: is missing")
	check(isPort(t.Port), "Port: %d is not within 1 to 65535", t.Port)
	if _, _, err := parseURL(t.URL); err != nil {
		problems = append(problems, err)
	}
	check(len(t.ExpectedStatus) > 0, "ExpectedStatus: is missing")
	check(t.Interval > 0, "Interval: %v is not positive", t.Interval)
	check(t.Timeout > 0, "Timeout: %v is not positive", t.Timeout)
	check(t.SuccessThreshold >= 1, "SuccessThreshold: %d is less than 1", t.SuccessThreshold)
	check(t.FailureThreshold >= 1, "FailureThreshold: %d is less than 1", t.FailureThreshold)
	check(slices.Contains([]Verdict{Unknown, Healthy, Unhealthy}, t.Seed), "Seed: %q is no verdict", t.Seed)
	check(t.SeedLatency >= 0, "SeedLatency: %v is negative", t.SeedLatency)
	return errors.Join(problems...)
}

// The schemes of proxies and of probed URLs.
const (
	schemeHTTP   = "http"
	schemeHTTPS  = "https"
	schemeSOCKS5 = "socks5"
)

// maxHostLen is the longest name that DNS allows. It also fits the single length byte of SOCKS5.
const maxHostLen = 253

// parseURL reads a URL that can be probed, and its port. Its errors do not quote the URL, which may hold a password by
// mistake.
func parseURL(raw string) (*url.URL, int, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS, u.Hostname() == "":
		return nil, 0, errors.New("URL: is not an absolute http or https URL")
	case u.User != nil:
		return nil, 0, errors.New("URL: must not carry credentials")
	case len(u.Hostname()) > maxHostLen:
		return nil, 0, fmt.Errorf("URL: the host is longer than %d bytes", maxHostLen)
	case !isASCII(u.Host):
		return nil, 0, errors.New("URL: the host is not ASCII; write it in its xn-- form")
	}
	usual := map[string]string{schemeHTTP: "80", schemeHTTPS: "443"}[u.Scheme]
	port, err := strconv.Atoi(cmp.Or(u.Port(), usual))
	if err != nil || !isPort(port) {
		return nil, 0, errors.New("URL: the port is not within 1 to 65535")
	}
	return u, port, nil
}

func isPort(n int) bool { return n >= 1 && n <= 65535 }

func isASCII(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(b byte) bool { return b >= 0x80 })
}
