package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestEmbedded fetches pages through three proxies, of which one is dead and one wants a password.
func TestEmbedded(t *testing.T) {
	var proxies []string
	for _, name := range []string{"one", "two", "three"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name == "two" && r.Header.Get("Proxy-Authorization") == "" {
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			fmt.Fprintf(w, "%s through %s\n", r.Host, name)
		}))
		defer server.Close()
		proxies = append(proxies, strings.Replace(server.URL, "http://", "http://user:p%40ss@", 1))
		if name == "three" {
			server.Close()
		}
	}
	var out bytes.Buffer
	pages := []string{"http://a.test/", "http://b.test/", "http://c.test/", "http://d.test/"}
	if err := run(t.Context(), proxies, pages, &out); err != nil {
		t.Fatal(err)
	}
	want := `200 OK http://a.test/ through proxy-1
a.test through one
200 OK http://b.test/ through proxy-2
b.test through two
200 OK http://c.test/ through proxy-1
c.test through one
200 OK http://d.test/ through proxy-2
d.test through two
`
	if out.String() != want {
		t.Errorf("it printed:\n%s", out.String())
	}
}

func TestBadProxies(t *testing.T) {
	for _, text := range []string{"", "http://user:planted@/", "http://user:planted@host", "http://user:planted@host:port"} {
		if err := run(t.Context(), []string{text}, nil, &bytes.Buffer{}); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
