package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

// What the README shows works with the very file that it names, but for its addresses: they may be taken here.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	text, err := os.ReadFile("../../examples/quickstart/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := string(text)
	for old, replacement := range map[string]string{
		"127.0.0.1:28480":       p.target.plain.Listener.Addr().String(),
		"127.0.0.1:28443":       p.target.secure.Listener.Addr().String(),
		"127.0.0.21-127.0.0.29": p.network,
		"password: open sesame": "password: " + planted + "sesame :/@",
		"interval: 5s":          "interval: 1s",
	} {
		if !strings.Contains(documents, old) {
			t.Fatalf("the documents of the quickstart do not hold %q any more", old)
		}
		documents = strings.ReplaceAll(documents, old, replacement)
	}
	p.write("fleet.yaml", documents)
	f := p.start()
	f.await(3, "Ready")
	for _, path := range []string{"/healthz", "/readyz"} {
		answer, err := http.Get(f.url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", path, answer.Status)
		}
	}

	list := f.cli("get", "proxies")
	if list.code != 0 || strings.Count(list.stdout, "Ready") != 3 || strings.Contains(list.stdout, planted) {
		t.Errorf("get proxies prints %+v", list)
	}

	// Each proxy that is banned is followed by another one.
	banned := map[string]bool{}
	for range 3 {
		granted := f.cli("lease", "acquire", "--target", "shop", "-o", "json")
		var lease struct {
			LeaseID string
			Proxy   struct{ URL, Host string }
		}
		if err := json.Unmarshal([]byte(granted.stdout), &lease); err != nil {
			t.Fatalf("lease acquire prints %+v: %v", granted, err)
		}
		through, err := url.Parse(lease.Proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		if from := p.target.crawl(t, through); from != lease.Proxy.Host {
			t.Errorf("requests through %s come from %s", lease.Proxy.Host, from)
		}
		if banned[lease.Proxy.Host] {
			t.Errorf("%s is leased for a target that banned it", lease.Proxy.Host)
		}
		banned[lease.Proxy.Host] = true
		if r := f.cli("lease", "report", lease.LeaseID, "banned"); r != (result{}) {
			t.Errorf("lease report: %+v", r)
		}
		if r := f.cli("lease", "release", lease.LeaseID); r != (result{}) {
			t.Errorf("lease release: %+v", r)
		}
	}
	r := f.cli("lease", "acquire", "--target", "shop")
	if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "of 3 that match, 0 are not ready, 0 at capacity, 3 in cooldown and 0 eligible; try again in ") {
		t.Errorf("with all proxies cooling, lease acquire: %+v", r)
	}

	// Another target knows nothing of it. What is for a shell is the URL alone; people see the lease too.
	r = f.cli("lease", "acquire", "--target", "news")
	u, err := url.Parse(strings.TrimSuffix(r.stdout, "\n"))
	if err != nil || !banned[u.Hostname()] || !strings.HasPrefix(r.stderr, "lease ") {
		t.Fatalf("lease acquire: %+v", r)
	}
	p.target.crawl(t, u)
	if text, err := p.target.get(f.url+"/v1/proxies", u); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("through a proxy the API of the fleet answers %q, %v; want it out of reach", text, err)
	}
	id := strings.Fields(r.stderr)[1]
	if r := f.cli("lease", "renew", id, "--ttl", "10m"); r.code != 0 || !strings.HasPrefix(r.stdout, "lease "+id) {
		t.Errorf("lease renew: %+v", r)
	}
}
