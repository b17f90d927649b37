package discovery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

func TestRequestsThatCannotBeUnderstood(t *testing.T) {
	const selector = `selector must be an object whose values are strings, such as {"region": "eu"}`
	const selectorLength = "selector must have keys of at most 63 characters and values of at most 256"
	tests := []struct {
		name   string
		target string
		body   string
		want   string // message
	}{
		{"no body", "POST /v1/leases", ``, "the body must be a JSON object; where nothing is to be said it is {}"},
		{"no body of a renewal", "POST /v1/leases/x/renew", ` `, "the body must be a JSON object; where nothing is to be said it is {}"},
		{"null", "POST /v1/leases", `null`, "the body must be a JSON object; where nothing is to be said it is {}"},
		{"a list", "POST /v1/leases", `[]`, "the body must be a JSON object; where nothing is to be said it is {}"},
		{"a form", "POST /v1/leases", `target=example.com`, "the body must be a JSON object; where nothing is to be said it is {}"},
		{"half an object", "POST /v1/leases", `{"target":`, "the body is no JSON: it ends too early"},
		{"no JSON", "POST /v1/leases", `{target: 1}`, "the body is no JSON: invalid character 't' looking for beginning of object key string, at byte 2"},
		{"something behind", "POST /v1/leases", `{} {}`, "the body must be one JSON object, with nothing behind it"},
		{"garbage behind", "POST /v1/leases", `{}}`, "the body must be one JSON object, with nothing behind it"},
		{"unknown field", "POST /v1/leases", `{"ttl":300}`, `unknown field "ttl"`},
		{"unknown field of a renewal", "POST /v1/leases/x/renew", `{"ttl":300}`, `unknown field "ttl"`},
		{"unknown field of a report", "POST /v1/leases/x/report", `{"outcome":"ok"}`, `unknown field "outcome"`},
		{"field in another case", "POST /v1/leases", `{"ttlseconds":300}`, `unknown field "ttlseconds"`},
		{"field in another case of a report", "POST /v1/leases/x/report", `{"result":"ok","Target":"example.com"}`, `unknown field "Target"`},
		{"field twice", "POST /v1/leases", `{"target":"a","ttlSeconds":1,"target":"b"}`, "target must be given once"},
		{"field twice, escaped", "POST /v1/leases/x/renew", `{"ttlSeconds":1,"ttl\u0053econds":2}`, "ttlSeconds must be given once"},
		{"selector twice", "POST /v1/leases", `{"selector":{"a":"b"},"selector":null}`, "selector must be given once"},
		{"selector with an attribute twice", "POST /v1/leases", `{"selector":{"region":"eu","region":"us"}}`, "selector must have each attribute once"},
		{"long target", "POST /v1/leases", `{"target":"` + long(257) + `"}`, "target must be at most 256 bytes long, not 257"},
		{"long target of a report", "POST /v1/leases/x/report", `{"result":"ok","target":"` + long(257) + `"}`, "target must be at most 256 bytes long, not 257"},
		{"long request ID", "POST /v1/leases", `{"requestID":"` + long(257) + `"}`, "requestID must be at most 256 bytes long, not 257"},
		{"long session", "POST /v1/leases", `{"session":"` + strings.Repeat("ä", 129) + `"}`, "session must be at most 256 bytes long, not 258"},
		{"wide selector", "POST /v1/leases", selectorOf(65), "selector must have at most 64 attributes, not 65"},
		{"selector with a long key", "POST /v1/leases", `{"selector":{"` + long(64) + `":"v"}}`, selectorLength},
		{"selector with a long value", "POST /v1/leases", `{"selector":{"k":"` + long(257) + `"}}`, selectorLength},
		{"selector that is a list", "POST /v1/leases", `{"selector":["eu"]}`, selector},
		{"selector with a number", "POST /v1/leases", `{"selector":{"tier":1}}`, selector},
		{"selector with a null", "POST /v1/leases", `{"selector":{"tier":null}}`, selector},
		{"selector that is text", "POST /v1/leases", `{"selector":"region=eu"}`, selector},
		{"ttl as text", "POST /v1/leases", `{"ttlSeconds":"300"}`, "ttlSeconds must be a whole number, not string"},
		{"ttl with a fraction", "POST /v1/leases", `{"ttlSeconds":1.5}`, "ttlSeconds must be a whole number, not number 1.5"},
		{"ttl beyond all numbers", "POST /v1/leases", `{"ttlSeconds":99999999999999999999}`, "ttlSeconds must be a whole number, not number 99999999999999999999"},
		{"target as a number", "POST /v1/leases", `{"target":7}`, "target must be a string, not number"},
		{"negative count", "POST /v1/leases", `{"count":-1}`, "count must be at least 1, not -1"},
		{"negative wait", "POST /v1/leases", `{"waitSeconds":-1}`, "waitSeconds must be 0 to 60, not -1"},
		{"long wait", "POST /v1/leases", `{"waitSeconds":61}`, "waitSeconds must be 0 to 60, not 61"},
		{"parameters where none belong", "POST /v1/leases?ttlSeconds=300", `{}`, `unknown query parameter "ttlSeconds"`},
		{"parameters of a release", "DELETE /v1/leases/x?force=true", ``, `unknown query parameter "force"`},

		{"attribute without its prefix", "GET /v1/proxies?region=eu", ``, `unknown query parameter "region"`},
		{"attribute of another prefix", "GET /v1/proxies?attrs.region=eu", ``, `unknown query parameter "attrs.region"`},
		{"attribute without a name", "GET /v1/proxies?attr.=eu", ``, `unknown query parameter "attr."`},
		{"attribute twice", "GET /v1/proxies?attr.region=eu&attr.region=us", ``, `query parameter "attr.region" must be given once`},
		{"healthy twice", "GET /v1/proxies?healthy=true&healthy=false", ``, `query parameter "healthy" must be given once`},
		{"healthy or not", "GET /v1/proxies?healthy=yes", ``, `healthy must be true or false, not "yes"`},
		{"no namespace", "GET /v1/proxies?namespace=", ``, "namespace must not be empty; leave it out for all namespaces"},
		{"limit of nothing", "GET /v1/proxies?limit=0", ``, `limit must be a whole number from 1 to 1000, not "0"`},
		{"limit above the maximum", "GET /v1/proxies?limit=1001", ``, `limit must be a whole number from 1 to 1000, not "1001"`},
		{"limit in words", "GET /v1/proxies?limit=all", ``, `limit must be a whole number from 1 to 1000, not "all"`},
		{"invented continue", "GET /v1/proxies?continue=2", ``, "continue must be what an earlier list returned as continue"},
		{"continue of no key", "GET /v1/proxies?continue=Lw", ``, "continue must be what an earlier list returned as continue"},
		{"empty continue", "GET /v1/proxies?continue=", ``, "continue must be what an earlier list returned as continue"},
		{"bad escape", "GET /v1/proxies?attr.region=%zz", ``, `the query string cannot be read: invalid URL escape "%zz"`},
	}
	h := handler(t, config(t))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := serve(t, h, request(t, test.target, test.body))
			if got.Code != http.StatusBadRequest {
				t.Errorf("status %d, want 400", got.Code)
			}
			var body struct{ Error, Message string }
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if body.Error != "invalid_request" {
				t.Errorf("code %q", body.Error)
			}
			if diff := cmp.Diff(test.want, body.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// selectorOf is a request with a selector of n attributes.
func selectorOf(n int) string {
	var attributes []string
	for i := range n {
		attributes = append(attributes, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return `{"selector":{` + strings.Join(attributes, ",") + `}}`
}

func TestTheLongestRequestIsServed(t *testing.T) {
	h := handler(t, config(t))
	for name, body := range map[string]string{
		"texts":            fmt.Sprintf(`{"target":%q,"requestID":%[1]q,"session":%[1]q}`, strings.Repeat("ä", 128)),
		"attributes":       selectorOf(64),
		"attribute":        fmt.Sprintf(`{"selector":{%q:%q}}`, strings.Repeat("ä", 63), strings.Repeat("ä", 256)),
		"nothing":          `{"selector":null,"target":null,"count":null}`,
		"another's fields": `{"selector":{"selector":"target","target":"selector"}}`,
	} {
		if got := serve(t, h, request(t, "POST /v1/leases", body)); got.Code != http.StatusCreated {
			t.Errorf("%s: status %d: %s", name, got.Code, got.Body)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	h := handler(t, config(t))
	body := func(length int) string { return "{" + strings.Repeat(" ", length-len("{}")) + "}" }

	if got := serve(t, h, request(t, "POST /v1/leases", body(64<<10))); got.Code != http.StatusCreated {
		t.Errorf("64 KiB got %d: %s", got.Code, got.Body)
	}
	got := serve(t, h, request(t, "POST /v1/leases", body(64<<10+1)))
	want := failure("body_too_large", "the body must not be longer than 65536 bytes")
	if diff := cmp.Diff(want, plain(t, got.Body.String())); got.Code != http.StatusRequestEntityTooLarge || diff != "" {
		t.Errorf("one byte more got %d (-want +got):\n%s", got.Code, diff)
	}
}

// TestPages reads a list page by page while proxies come and go.
func TestPages(t *testing.T) {
	m := proxy.NewMemory(proxy.MemoryConfig{})
	declare := func(name string) {
		t.Helper()
		d := proxy.Declaration{Spec: proxy.Spec{Provider: "local"}}
		if _, err := m.Put(t.Context(), proxy.Key{Namespace: "default", Name: name}, d, "test"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		declare(fmt.Sprintf("p%d", i))
	}
	c := config(t)
	c.Proxies = m
	h := handler(t, c)

	type page struct {
		Proxies  []struct{ Name string }
		Count    int
		Continue string
	}
	read := func(after string) (p page) {
		t.Helper()
		target := "GET /v1/proxies?limit=4"
		if after != "" {
			target += "&continue=" + url.QueryEscape(after)
		}
		if err := json.Unmarshal(serve(t, h, request(t, target, "")).Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := read("")
	// The last one that was shown goes, one comes before it and one behind it.
	if err := m.Delete(t.Context(), proxy.Key{Namespace: "default", Name: "p3"}); err != nil {
		t.Fatal(err)
	}
	declare("p0a")
	declare("p5a")
	second := read(first.Continue)
	third := read(second.Continue)

	var got []string
	for _, p := range slices.Concat(first.Proxies, second.Proxies, third.Proxies) {
		got = append(got, p.Name)
	}
	want := []string{"p0", "p1", "p2", "p3", "p4", "p5", "p5a", "p6", "p7", "p8", "p9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if first.Count != 10 || third.Count != 11 || third.Continue != "" {
		t.Errorf("counts %d and %d, last continue %q; want 10, 11 and none", first.Count, third.Count, third.Continue)
	}
}

func TestListIsBoundedByDefault(t *testing.T) {
	m := proxy.NewMemory(proxy.MemoryConfig{})
	for i := range 501 {
		d := proxy.Declaration{Spec: proxy.Spec{Provider: "local"}}
		if _, err := m.Put(t.Context(), proxy.Key{Namespace: "default", Name: fmt.Sprintf("p%d", i)}, d, "test"); err != nil {
			t.Fatal(err)
		}
	}
	c := config(t)
	c.Proxies = m
	var page struct {
		Proxies  []any
		Continue string
	}
	if err := json.Unmarshal(serve(t, handler(t, c), request(t, "GET /v1/proxies", "")).Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Proxies) != 500 || page.Continue == "" {
		t.Errorf("a page has %d proxies, continue %q; want 500 and one", len(page.Proxies), page.Continue)
	}
}

// FuzzRequest sends anything to anything: the answer is never a failure of the server, and an error is always JSON with a
// code.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/v1/leases", "", `{"selector":{"region":"eu"},"target":"example.com","ttlSeconds":300}`)
	f.Add("POST", "/v1/leases", "", `{"count":2,"waitSeconds":1,"session":"s","requestID":"r"}`)
	f.Add("POST", "/v1/leases/x/renew", "", `{"ttlSeconds":-9223372036854775808}`)
	f.Add("POST", "/v1/leases/x/report", "", `{"result":"banned"}`)
	f.Add("DELETE", "/v1/leases/%2E%2E", "", ``)
	f.Add("GET", "/v1/proxies", "attr.region=eu&healthy=true&limit=1&continue=ZGVmYXVsdC9iZXJsaW4", ``)
	f.Add("GET", "/v1/proxies/default/berlin", "", ``)
	f.Add("POST", "/v1/proxies/default/berlin/retry", "", `{}`)
	f.Add("OPTIONS", "*", "%zz", "\x00")
	leases, err := lease.NewMemory(lease.Config{})
	if err != nil {
		f.Fatal(err)
	}
	leases.Set(lease.Candidate{Key: "default/berlin", Endpoint: oneLease("").Proxy, MaxLeases: 10, Healthy: true})
	c := config(f)
	c.Leases, c.ActiveLeases = leases, leases.Counts
	h := handler(f, c)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r := request(t, "GET /", body)
		u, err := url.Parse(path)
		if err != nil || method == "" {
			t.Skip("no request that a server could read")
		}
		r.Method, r.URL.Path, r.URL.RawPath, r.URL.RawQuery = method, u.Path, u.RawPath, query
		got := serve(t, h, r)
		if got.Code >= 500 && got.Code != http.StatusNotImplemented {
			t.Fatalf("status %d: %s", got.Code, got.Body)
		}
		if got.Code < 400 {
			return
		}
		var e struct{ Error, Message string }
		if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil || e.Error == "" || e.Message == "" {
			t.Fatalf("status %d with body %q: %v", got.Code, got.Body, err)
		}
	})
}
