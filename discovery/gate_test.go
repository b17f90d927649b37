package discovery_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/secret"
)

func TestToken(t *testing.T) {
	const token = "correct-horse"
	bearer := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", s) }
	}
	basic := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	none := func(*http.Request) {}
	tests := []struct {
		name   string
		target string
		with   func(*http.Request)
		status int
	}{
		{"none", "GET /v1/proxies", none, 401},
		{"none, to change something", "POST /v1/leases", none, 401},
		{"none, for the whole state", "GET /v1/backup", none, 401},
		{"none, to an unknown path", "GET /v2", none, 401},
		{"none, with another method", "POST /healthz", none, 401},
		{"none, where none is needed", "GET /healthz", none, 200},
		{"none, for readiness", "GET /readyz", none, 200},
		{"right", "GET /v1/proxies", bearer("Bearer " + token), 200},
		{"right, to change something", "POST /v1/leases", bearer("Bearer " + token), 201},
		{"scheme in small letters", "POST /v1/leases", bearer("bearer  " + token), 201},
		{"wrong", "GET /v1/proxies", bearer("Bearer wrong"), 401},
		{"beginning of it", "GET /v1/proxies", bearer("Bearer " + token[:5]), 401},
		{"more than it", "GET /v1/proxies", bearer("Bearer " + token + "1"), 401},
		{"empty", "GET /v1/proxies", bearer("Bearer "), 401},
		{"without a scheme", "GET /v1/proxies", bearer(token), 401},
		{"another scheme", "GET /v1/proxies", bearer("Token " + token), 401},
		{"password of Basic", "GET /v1/proxies", basic("anybody", token), 200},
		{"password of Basic, to change something", "POST /v1/leases", basic("anybody", token), 401},
		{"user of Basic", "GET /v1/proxies", basic(token, ""), 401},
		{"wrong password of Basic", "GET /v1/proxies", basic("anybody", "wrong"), 401},
		{"two", "GET /v1/proxies", func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer wrong", "Bearer " + token}
		}, 401},
	}
	c := config(t)
	c.Token = secret.New(token)
	h := handler(t, c)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, test.target, "{}")
			r.Host = "fleet.example.com" // with a token, from anywhere
			test.with(r)
			got := serve(t, h, r)
			if got.Code != test.status {
				t.Errorf("status %d, want %d: %s", got.Code, test.status, got.Body)
			}
			if got.Code != http.StatusUnauthorized {
				return
			}
			want := []string{`Bearer realm="proxyfleet"`}
			if strings.HasPrefix(test.target, "GET") {
				want = append(want, `Basic realm="proxyfleet", charset="UTF-8"`)
			}
			if diff := cmp.Diff(want, got.Header().Values("WWW-Authenticate")); diff != "" {
				t.Errorf("WWW-Authenticate (-want +got):\n%s", diff)
			}
			body := failure("unauthorized", "this needs the token of the fleet: Authorization: Bearer TOKEN")
			if diff := cmp.Diff(body, plain(t, got.Body.String())); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutToken(t *testing.T) {
	tests := []struct {
		name   string
		target string
		host   string
		header [2]string
		status int
		code   string
	}{
		{name: "localhost", target: "POST /v1/leases", host: "localhost:8090", status: 201},
		{name: "localhost without a port", target: "POST /v1/leases", host: "LOCALHOST", status: 201},
		{name: "IPv4", target: "POST /v1/leases", host: "127.0.0.1:8090", status: 201},
		{name: "all of 127/8", target: "POST /v1/leases", host: "127.9.9.9", status: 201},
		{name: "IPv6", target: "POST /v1/leases", host: "[::1]:8090", status: 201},
		{name: "IPv6 without a port", target: "POST /v1/leases", host: "[::1]", status: 201},
		{name: "IPv4 in IPv6", target: "POST /v1/leases", host: "[::ffff:127.0.0.1]:8090", status: 201},
		{name: "a name that somebody resolves to here", target: "POST /v1/leases", host: "evil.example.com:8090", status: 403, code: "host_not_allowed"},
		{name: "a name that begins well", target: "POST /v1/leases", host: "localhost.example.com", status: 403, code: "host_not_allowed"},
		{name: "a name that begins like an address", target: "POST /v1/leases", host: "127.0.0.1.example.com", status: 403, code: "host_not_allowed"},
		{name: "another address", target: "POST /v1/leases", host: "192.0.2.1:8090", status: 403, code: "host_not_allowed"},
		{name: "no host", target: "POST /v1/leases", host: "", status: 403, code: "host_not_allowed"},
		{name: "every change", target: "DELETE /v1/leases/x", host: "evil.example.com", status: 403, code: "host_not_allowed"},
		{name: "every annotation", target: "POST /v1/proxies/default/berlin/retry", host: "evil.example.com", status: 403, code: "host_not_allowed"},
		{name: "the whole state", target: "GET /v1/backup", host: "evil.example.com", status: 403, code: "host_not_allowed"},
		{name: "what asks all providers", target: "GET /v1/gc/plan", host: "evil.example.com", status: 403, code: "host_not_allowed"},
		{name: "a list", target: "GET /v1/proxies", host: "fleet.example.com", status: 200},
		{name: "a probe", target: "GET /readyz", host: "10.0.0.7:8090", status: 200},

		{name: "a page of another site", target: "POST /v1/leases", host: "localhost:8090", header: [2]string{"Sec-Fetch-Site", "cross-site"}, status: 403, code: "cross_origin"},
		{name: "a page of another port", target: "POST /v1/leases", host: "localhost:8090", header: [2]string{"Sec-Fetch-Site", "same-site"}, status: 403, code: "cross_origin"},
		{name: "an old browser", target: "POST /v1/leases", host: "localhost:8090", header: [2]string{"Origin", "https://evil.example.com"}, status: 403, code: "cross_origin"},
		{name: "a page of the fleet", target: "POST /v1/leases", host: "localhost:8090", header: [2]string{"Sec-Fetch-Site", "same-origin"}, status: 201},
		{name: "an image on another site that asks all providers", target: "GET /v1/gc/plan", host: "localhost:8090",
			header: [2]string{"Sec-Fetch-Site", "cross-site"}, status: 403, code: "cross_origin"},
		{name: "a page of another site that reads the whole state", target: "GET /v1/backup", host: "localhost:8090",
			header: [2]string{"Origin", "https://evil.example.com"}, status: 403, code: "cross_origin"},
		{name: "an address that somebody types in", target: "GET /v1/gc/plan", host: "localhost:8090",
			header: [2]string{"Sec-Fetch-Site", "none"}, status: 501},
		{name: "a link on another site", target: "GET /v1/proxies", host: "localhost:8090", header: [2]string{"Sec-Fetch-Site", "cross-site"}, status: 200},
	}
	h := handler(t, config(t))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, test.target, "{}")
			r.Host = test.host
			if test.header[0] != "" {
				r.Header.Set(test.header[0], test.header[1])
			}
			got := serve(t, h, r)
			if got.Code != test.status {
				t.Errorf("status %d, want %d: %s", got.Code, test.status, got.Body)
			}
			if test.code != "" && !strings.HasPrefix(got.Body.String(), `{"error":"`+test.code+`","message":"`) {
				t.Errorf("body %s, want code %s", got.Body, test.code)
			}
		})
	}
}

func TestAnyHost(t *testing.T) {
	c := config(t)
	c.AnyHost = true
	h := handler(t, c)
	for _, test := range []struct {
		name   string
		origin string
		status int
	}{
		{name: "another host", status: 201},
		{name: "a page of another site", origin: "https://evil.example.com", status: 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, "POST /v1/leases", "{}")
			r.Host = "fleet.example.com:8090"
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if got := serve(t, h, r); got.Code != test.status {
				t.Errorf("status %d, want %d: %s", got.Code, test.status, got.Body)
			}
		})
	}
}

func TestCrossOriginWithToken(t *testing.T) {
	c := config(t)
	c.Token = secret.New("correct-horse")
	r := request(t, "POST /v1/leases", "{}")
	r.Header.Set("Authorization", "Bearer correct-horse")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := serve(t, handler(t, c), r); got.Code != http.StatusForbidden {
		t.Errorf("status %d, want 403", got.Code)
	}
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	_, err := discovery.New(discovery.Config{Token: secret.New("correct horse\n")})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Proxies", "Leases", "Token"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "horse") {
		t.Errorf("the error quotes the token: %v", err)
	}
}
