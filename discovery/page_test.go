package discovery_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// records is a store of proxies that no other store would take.
type records struct {
	proxy.Store
	all []*proxy.Proxy
}

func (r records) List(context.Context) ([]*proxy.Proxy, error) { return r.all, nil }

func (r records) Get(_ context.Context, k proxy.Key) (*proxy.Proxy, error) {
	for _, p := range r.all {
		if p.Key == k {
			return p, nil
		}
	}
	return nil, proxy.ErrNotFound
}

// look is what a browser gets for a path.
func look(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := request(t, "GET "+path, "")
	r.SetBasicAuth("anybody", demoToken)
	got := serve(t, h, r)
	if kind := got.Header().Get("Content-Type"); kind != "text/html; charset=utf-8" {
		t.Errorf("GET %s is %s: %s", path, kind, got.Body)
	}
	return got
}

// read returns the text of an element as somebody reads it, in one line; blanks stand between elements.
func read(t testing.TB, got *httptest.ResponseRecorder, pattern string) string {
	t.Helper()
	element := regexp.MustCompile(`(?s)<` + pattern).FindString(got.Body.String())
	if element == "" {
		t.Errorf("nothing is %s:\n%s", pattern, got.Body)
	}
	text := regexp.MustCompile(`<[^>]*>?`).ReplaceAllString(element, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

const (
	mainElement = `main>.*</main>`
	listElement = `div id="list".*?</div>`
)

func TestFleetPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := look(t, handler(t, newDemo(t).config), "/")
		text := read(t, got, mainElement)
		for _, want := range []string{
			"13 of 16 proxies are ready Ready 13 Provisioning 1 Unhealthy 1 Failed 1 " +
				"The sweeper’s brake holds back 4 instances of rack. proxyfleet gc --dry-run says which and why. " +
				"Open leases 45 of 130 Median latency 146 ms Cooldowns 17 " +
				"Providers Provider Check Ready Trouble " +
				"rack 1 of 3 targets not ready 0/2 kvm-2: Unreachable for 4 min ssh: no route to host 192.0.2.2 " +
				"gcp 1 target ready 12/13 " +
				"Proxies Find Find 16 proxies Name Namespace Phase Provider Address Latency Leases Why " +
				"rack-2 crawl Failed rack – – 0/10 PermanentError for 3 h ImageNotFound: pool default has no volume debian-13.qcow2 " +
				"rack-1 crawl Unhealthy rack 192.0.2.14:3128 – 0/10 ProbeFailed for 4 min dial: no answer from 192.0.2.14:3128 within 10s " +
				"madrid-1 crawl Provisioning gcp – – 0/10 Provisioning for 40 s " +
				"amsterdam-1 crawl Ready gcp 203.0.113.10:3128 38 ms 3/10 amsterdam-2",
			"warsaw-3 crawl Ready gcp 203.0.113.21:3128 401 ms 0/10 residential research Ready External gate.example.net:3128 412 ms 0/10",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page does not say\n%s\nbut\n%s", want, text)
			}
		}
		if got := read(t, got, `title>.*?</title>`); got != "13/16 ready · crawl-eu" {
			t.Errorf("title %q", got)
		}
	})
}

func TestFleetPageHeadline(t *testing.T) {
	phases := func(phases ...proxy.Phase) []*proxy.Proxy {
		var all []*proxy.Proxy
		for i, phase := range phases {
			all = append(all, &proxy.Proxy{Key: proxy.Key{Namespace: "default", Name: fmt.Sprint(i)}, Status: proxy.Status{Phase: phase}})
		}
		return all
	}
	leaving := phases(proxy.Ready, proxy.Ready)
	leaving[0].Deleting = true
	tests := []struct {
		name  string
		all   []*proxy.Proxy
		ready error
		want  string
	}{
		{"none", nil, nil, "No proxies yet"},
		{"one", phases(proxy.Ready), nil, "The proxy is ready Ready 1"},
		{"all", phases(proxy.Ready, proxy.Ready), nil, "All 2 proxies are ready Ready 2"},
		{"not one", phases(proxy.Failed, proxy.Failed), nil, "None of 2 proxies is ready Failed 2"},
		{"one of several", phases(proxy.Ready, proxy.Probing), nil, "1 of 2 proxies is ready Ready 1 Probing 1"},
		{"one that was never looked at", phases(""), nil, "The proxy is not ready Pending 1"},
		{"one that leaves is not ready", leaving, nil, "1 of 2 proxies is ready Ready 1 Deleting 1"},
		{"the process is not", phases(proxy.Ready), errors.New("the log is being read"), "Not ready the log is being read Ready 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := config(t)
			c.Proxies = records{all: test.all}
			c.Ready = func(context.Context) error { return test.ready }
			if got := read(t, look(t, handler(t, c), "/"), `h1>.*?<dl`); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestFleetPageShowsWhatIsAskedFor(t *testing.T) {
	tests := []struct{ query, want string }{
		{"", "4 proxies … gateway old new berlin"},
		{"?phase=&q=&page=", "4 proxies … gateway old new berlin"},
		{"?phase=Ready", "1 proxy, Ready Show all … berlin"},
		{"?phase=unhealthy", "1 proxy, Unhealthy Show all … gateway"},
		{"?phase=Failed", "0 proxies, Failed Show all …"},
		{"?phase=Deleting", "1 proxy, Deleting Show all … old"},
		{"?q=BERL", "1 proxy, with “BERL” Show all … berlin"},
		{"?q=default/", "2 proxies, with “default/” Show all … gateway berlin"},
		{"?q=+region%3Deu++gcp+", "1 proxy, with “region=eu gcp” Show all … berlin"},
		{"?q=refused+credentials", "1 proxy, with “refused credentials” Show all … gateway"},
		{"?q=gw.example.net:1080", "1 proxy, with “gw.example.net:1080” Show all … gateway"},
		{"?phase=Ready&q=gateway", "0 proxies, Ready , with “gateway” Show all …"},
		{"?page=99", "4 proxies … gateway old new berlin"},
	}
	h := handler(t, config(t))
	for _, test := range tests {
		t.Run(test.query, func(t *testing.T) {
			got := look(t, h, "/"+test.query)
			text := read(t, got, `p class="range".*?</p>`) + " …"
			for _, name := range regexp.MustCompile(`href="./proxies/[a-z]+/([a-z]+)"`).FindAllStringSubmatch(got.Body.String(), -1) {
				text += " " + name[1]
			}
			if strings.ReplaceAll(text, " ,", ",") != strings.ReplaceAll(test.want, " ,", ",") {
				t.Errorf("%q, want %q", text, test.want)
			}
		})
	}
}

// TestFleetPageIsBounded has ten thousand proxies of as many providers, of each of which as much is known as can be.
func TestFleetPageIsBounded(t *testing.T) {
	c := config(t)
	long := strings.Repeat("what is wrong is a long story. ", 100)
	var all []*proxy.Proxy
	for i := range 10_000 {
		all = append(all, &proxy.Proxy{
			Key:  proxy.Key{Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("proxy-%056d", i)},
			Spec: proxy.Spec{Provider: fmt.Sprint("provider-", i), Attributes: map[string]string{"note": long}},
			Status: proxy.Status{
				Phase:      proxy.Ready,
				Conditions: []proxy.Condition{{Type: proxy.Healthy, Status: proxy.False, Reason: long, Message: long}},
				Instance:   proxy.Instance{Host: long, Port: 3128},
			},
		})
	}
	all[7777].Status.Phase = proxy.Failed
	c.Proxies = records{all: all}
	c.Providers = func() []monitor.Result {
		targets := make([]monitor.Target, 1000)
		for i := range targets {
			targets[i] = monitor.Target{TargetStatus: provider.TargetStatus{Target: long, Reason: long, Message: long}}
		}
		return []monitor.Result{{Provider: "provider-0", CanCheck: true, Targets: targets}}
	}
	got := look(t, handler(t, c), "/?q=proxy-")
	if size := got.Body.Len(); size > 256<<10 {
		t.Errorf("the page has %d bytes", size)
	}
	if text := read(t, got, listElement); !strings.HasPrefix(text, "1–100 of 10,000 proxies") {
		t.Errorf("the list begins with %.100q", text)
	}
	if first := read(t, got, `(?s)th role="rowheader" scope="row"><a href="./proxies/.*?</th>`); !strings.HasSuffix(first, "7777") {
		t.Errorf("the one that failed does not come first, but %s", first)
	}
}

func TestFleetPageLeadsToEveryProxy(t *testing.T) {
	c := config(t)
	var all []*proxy.Proxy
	for i := range 250 {
		phase := [...]proxy.Phase{proxy.Ready, proxy.Unhealthy}[i%2]
		all = append(all, &proxy.Proxy{Key: proxy.Key{Namespace: "default", Name: fmt.Sprintf("p%03d", i)}, Status: proxy.Status{Phase: phase}})
	}
	c.Proxies = records{all: all}
	h := handler(t, c)
	for direction, path := range map[string]string{"next": "/?phase=ready&q=p", "prev": "/?phase=ready&q=p&page=2"} {
		seen := map[string]bool{}
		link := regexp.MustCompile(`rel="` + direction + `" href="\.(/[^"#]*)#proxies"`)
		for path != "" {
			body := look(t, h, path).Body.String()
			for _, name := range regexp.MustCompile(`href="./proxies/default/(p\d+)"`).FindAllStringSubmatch(body, -1) {
				if seen[name[1]] {
					t.Errorf("%s is there twice", name[1])
				}
				seen[name[1]] = true
			}
			path = ""
			if found := link.FindStringSubmatch(body); found != nil {
				path = html.UnescapeString(found[1])
			}
		}
		if len(seen) != 125 {
			t.Errorf("%s leads to %d proxies, want 125", direction, len(seen))
		}
	}
}

func TestProxyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := read(t, look(t, handler(t, newDemo(t).config), "/proxies/crawl/rack-1"), mainElement)
		want := "crawl / rack-1 Unhealthy ProbeFailed for 4 min dial: no answer from 192.0.2.14:3128 within 10s " +
			"Record Address 192.0.2.14:3128 Open leases 0 of 10 Mode Managed Provider rack " +
			"Instance hosts/kvm-2/domains/proxy-w7c2dq5xkz3mvn4b Incarnation 0b0e1c5e-6a35-4a55-9d4b-3f6f0d2b7c11 Attempt 1 26 h ago UID … " +
			"At the provider State Running Incarnation 0b0e1c5e-6a35-4a55-9d4b-3f6f0d2b7c11 Host 192.0.2.14 " +
			"Last pass get: transient: ssh: no route to host 192.0.2.2 Ended after 210 ms 15 s ago Next due in 45 s " +
			"Conditions Condition Status Since Why Healthy False 4 min ago ProbeFailed dial: no answer from 192.0.2.14:3128 within 10s " +
			"Provisioned True 26 h ago Created Resolved True 26 h ago Resolved " +
			"Last probes Probe Result Took Message 9 s ago dial 10.0 s no answer from 192.0.2.14:3128 within 10s " +
			"39 s ago dial 10.0 s no answer from 192.0.2.14:3128 within 10s 69 s ago ok 204 83 ms " +
			"Open leases Target Granted Expires shop.example.com 3 min ago in 2 min any target – in 4 min " +
			"Cooldowns Target State Until news.example.org cooling down in 7 min maps.example.com on trial 1 min ago"
		want = strings.Replace(want, "69 s ago", "1 min ago", 1)
		text = regexp.MustCompile(`UID [0-9a-f-]{36}`).ReplaceAllString(text, "UID …")
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("page (-want +got):\n%s", diff)
		}
	})
}

func TestProxyPageWithoutExplanations(t *testing.T) {
	text := read(t, look(t, handler(t, config(t)), "/proxies/default/berlin"), mainElement)
	for want, is := range map[string]bool{
		"default / berlin Ready": true, "Attributes region=eu, tier=": true, "Created runs since 03:04": true,
		"Open leases 2 of 10": true, "Last probes": false, "Cooldowns": false, "At the provider": false,
	} {
		if strings.Contains(text, want) != is {
			t.Errorf("that the page says %q must be %v:\n%s", want, is, text)
		}
	}
}

func TestPageProblems(t *testing.T) {
	tests := []struct {
		name   string
		path   string
		with   func(*discovery.Config)
		status int
		want   string
	}{
		{name: "an unknown proxy", path: "/proxies/default/nobody", status: 404, want: "Not Found default/nobody: proxy not found"},
		{name: "an unknown phase", path: "/?phase=Happy", status: 400, want: `there is no phase "Happy"`},
		{name: "no page", path: "/?page=0", status: 400, want: `page must be a whole number from 1, not "0"`},
		{name: "half a page", path: "/?page=1.5", status: 400, want: `not "1.5"`},
		{name: "a long search", path: "/?q=" + strings.Repeat("x", 257), status: 400, want: "q must be at most 256 bytes"},
		{name: "an unknown parameter", path: "/?colour=red", status: 400, want: `unknown query parameter "colour"`},
		{name: "a parameter of a proxy", path: "/proxies/default/berlin?x=1", status: 400, want: `unknown query parameter "x"`},
		{
			name: "a broken store", path: "/", with: func(c *discovery.Config) { c.Proxies = brokenStore{} },
			status: 500, want: "Internal Server Error the server failed; its log says why",
		},
		{
			name: "an unknown proxy to explain", path: "/proxies/default/nobody", status: 404, want: "proxy not found",
			with: func(c *discovery.Config) {
				c.Explain = func(context.Context, proxy.Key) (discovery.Explanation, error) {
					return discovery.Explanation{}, proxy.ErrNotFound
				}
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			c := config(t)
			c.Logger = logTo(&log)
			if test.with != nil {
				test.with(&c)
			}
			got := look(t, handler(t, c), test.path)
			if text := read(t, got, mainElement); got.Code != test.status || !strings.Contains(text, test.want) {
				t.Errorf("status %d, %q; want %d, %q", got.Code, text, test.status, test.want)
			}
			if logged := strings.Contains(log.String(), "level=ERROR"); logged != (test.status == 500) {
				t.Errorf("the log says\n%s", log.String())
			}
		})
	}
}

func TestPagesWantTheToken(t *testing.T) {
	c := config(t)
	c.Token = secret.New(demoToken)
	h := handler(t, c)
	for _, path := range []string{"/", "/proxies/default/berlin", "/proxies/default/nobody"} {
		r := request(t, "GET "+path, "")
		got := serve(t, h, r)
		if got.Code != http.StatusUnauthorized || !strings.Contains(strings.Join(got.Header().Values("WWW-Authenticate"), ", "), "Basic realm=") {
			t.Errorf("GET %s: status %d, %v", path, got.Code, got.Header())
		}
		if strings.Contains(got.Body.String(), "berlin") {
			t.Errorf("GET %s tells of a proxy:\n%s", path, got.Body)
		}
		r.SetBasicAuth("anybody", demoToken)
		if got := serve(t, h, r); got.Code == http.StatusUnauthorized {
			t.Errorf("GET %s with the token: status %d", path, got.Code)
		}
	}
}

// TestPagesAreConfined makes sure that a browser runs and loads nothing for a page but what is ours.
func TestPagesAreConfined(t *testing.T) {
	h := handler(t, newDemo(t).config)
	for _, path := range []string{"/", "/proxies/crawl/rack-1", "/proxies/crawl/nobody"} {
		got := look(t, h, path)
		body := got.Body.String()
		digest := func(element string) string {
			content := regexp.MustCompile(`(?s)<` + element + `>(.*?)</` + element + `>`).FindStringSubmatch(body)
			sum := sha256.Sum256([]byte(content[1]))
			return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src " + digest("style") + "; script-src " + digest("script") + "; img-src data:; " +
				"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Referrer-Policy":        "no-referrer",
			"X-Content-Type-Options": "nosniff",
			"Cache-Control":          "no-store",
		} {
			if got := got.Header().Get(name); got != want {
				t.Errorf("GET %s: %s is\n%s, want\n%s", path, name, got, want)
			}
		}
		if found := regexp.MustCompile(`<[^>]* (on[a-z]+|style)=[^>]*>`).FindString(body); found != "" {
			t.Errorf("GET %s has what the policy forbids: %s", path, found)
		}
		if found := regexp.MustCompile(`(href|src|action)="(https?:)?//[^"]*"`).FindString(body); found != "" {
			t.Errorf("GET %s leads elsewhere: %s", path, found)
		}
		for _, planted := range []string{password, demoToken} {
			if strings.Contains(html.UnescapeString(body), planted) {
				t.Errorf("GET %s tells a secret", path)
			}
		}
	}
}

// TestPagesCanBeHeard holds what a screen reader goes by, and what a browser without scripts needs.
func TestPagesCanBeHeard(t *testing.T) {
	h := handler(t, newDemo(t).config)
	for path, every := range map[string]int{"/": 5, "/proxies/crawl/rack-1": 15, "/proxies/crawl/nobody": 10} {
		body := look(t, h, path).Body.String()
		for _, once := range []string{
			`<html lang="en">`, `<header`, `<main>`, `<h1>`, `<title>`, `name="viewport" content="width=device-width, initial-scale=1"`,
			fmt.Sprintf(`<noscript><meta http-equiv="refresh" content="%d"></noscript>`, every),
		} {
			if n := strings.Count(body, once); n != 1 {
				t.Errorf("GET %s has %s %d times", path, once, n)
			}
		}
		for _, heading := range regexp.MustCompile(`<th [^>]*>`).FindAllString(body, -1) {
			if !strings.Contains(heading, `scope="`) {
				t.Errorf("GET %s has a heading of nothing: %s", path, heading)
			}
		}
		for _, label := range regexp.MustCompile(`aria-labelledby="([^"]*)"|<label for="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			if id := label[1] + label[2]; strings.Count(body, `id="`+id+`"`) != 1 {
				t.Errorf("GET %s has not one %s", path, id)
			}
		}
	}
}

func TestPagesTellNoSecrets(t *testing.T) {
	h := handler(t, config(t)) // whose records have a password wherever one can be
	for _, path := range []string{"/", "/proxies/default/berlin", "/?q=" + url.QueryEscape(password[:4])} {
		if got := look(t, h, path); strings.Contains(html.UnescapeString(got.Body.String()), password) {
			t.Errorf("GET %s tells a secret", path)
		}
	}
	if text := read(t, look(t, h, "/?q="+url.QueryEscape(password)), `p class="range".*?</p>`); !strings.HasPrefix(text, "0 proxies") {
		t.Errorf("a secret can be looked for: %s", text)
	}
}

// hostile is a text that means harm wherever it is put.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)>` + "</title></style>{{.}}\x1b[2J\x00\u202e\u2028\u200b\xff javascript:alert(1)"

// TestPagesAreHarmless puts a hostile text into every field, and finds it there, as a text.
func TestPagesAreHarmless(t *testing.T) {
	tags := func(body string) []string {
		return regexp.MustCompile(`</?[a-zA-Z!][a-zA-Z0-9]*`).FindAllString(body, -1)
	}
	for _, path := range []string{"/", "/?q=%s", "/proxies/%s/%s", "/?phase=%s"} {
		t.Run(path, func(t *testing.T) {
			fill := func(text string) (string, int) {
				return strings.ReplaceAll(path, "%s", url.PathEscape(text)), strings.Count(path, "%s")
			}
			target, _ := fill("x")
			benign := look(t, handler(t, everywhere(t, "x")), target).Body.String()
			target, _ = fill(hostile)
			got := look(t, handler(t, everywhere(t, hostile)), strings.ReplaceAll(target, "%FF", ""))
			body := got.Body.String()
			if diff := cmp.Diff(tags(benign), tags(body)); diff != "" {
				t.Errorf("the text makes elements (-benign +hostile):\n%s", diff)
			}
			for i, r := range body {
				if r != '\n' && (unicode.Is(unicode.C, r) || r == '\u2028') {
					t.Errorf("there is a %U at %d: %q", r, i, body[max(0, i-50):i])
					break
				}
			}
			if !utf8.ValidString(body) {
				t.Error("the page is no UTF-8")
			}
			if !strings.Contains(html.UnescapeString(body), "<script>alert(1)</script>") {
				t.Error("the text is nowhere")
			}
		})
	}
}

// everywhere is a fleet that has a text in every field that has one.
func everywhere(t *testing.T, text string) discovery.Config {
	c := config(t)
	moment := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &proxy.Proxy{
		Key: proxy.Key{Namespace: strings.ToValidUTF8(text, ""), Name: strings.ToValidUTF8(text, "")}, UID: text,
		Spec: proxy.Spec{Mode: proxy.Mode(text), Provider: text, Attributes: map[string]string{text: text}},
		Status: proxy.Status{
			Phase:      proxy.Unhealthy,
			Conditions: []proxy.Condition{{Type: proxy.Healthy, Status: proxy.ConditionStatus(text), Reason: text, Message: text}},
			Instance:   proxy.Instance{Provider: text, ID: text, Incarnation: text, Host: text, Port: 1, Retiring: text},
		},
	}
	other := p.Clone()
	other.Name, other.Status.Phase, other.Status.Conditions[0].Type = "other", proxy.Phase(text), proxy.ConditionType(text)
	c.Name = text
	c.Proxies = records{all: []*proxy.Proxy{p, other}}
	c.Ready = func(context.Context) error { return errors.New(text) }
	c.Held = func() map[string]int { return map[string]int{text: 1} }
	c.Providers = func() []monitor.Result {
		return []monitor.Result{{Provider: text, Targets: []monitor.Target{
			{TargetStatus: provider.TargetStatus{Target: text, Reason: text, Message: text}},
		}}}
	}
	c.Explain = func(context.Context, proxy.Key) (discovery.Explanation, error) {
		return discovery.Explanation{
			Proxy: p,
			Observed: &discovery.Observation{
				State: text, Incarnation: text, Host: text, Reason: text, Message: text, Err: errors.New(text),
			},
			Probes:    []discovery.Probe{{At: moment, Party: text, Message: text}},
			Leases:    []discovery.OpenLease{{Target: text, Expires: moment}},
			Cooldowns: []discovery.Cooldown{{Target: text, Until: moment}},
			LastPass:  &discovery.Pass{At: moment, Err: errors.New(text)},
		}, nil
	}
	return c
}
