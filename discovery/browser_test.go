package discovery_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
)

// TestPagesInABrowser does with the pages what people do: logs in, reads, filters, types, follows a link, and waits for
// news. With go test -artifacts it leaves pictures.
func TestPagesInABrowser(t *testing.T) {
	d := newDemo(t)
	var broken atomic.Bool
	pages := handler(t, d.config)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		pages.ServeHTTP(w, r)
	}))
	defer server.Close()
	b := startBrowser(t)
	rack := proxy.Key{Namespace: "crawl", Name: "rack-1"}

	t.Log("without the token there is nothing to see")
	b.view(1280, 900, "light")
	b.open(server.URL)
	if got := strings.Join(b.logged("browser"), "\n"); !strings.Contains(got, "status of 401") {
		t.Errorf("the browser says %q, and nothing of 401", got)
	}

	t.Log("with it there is the whole fleet, whatever is wrong first")
	b.open(strings.Replace(server.URL, "http://", "http://anybody:"+demoToken+"@", 1))
	b.reads("h1", "13 of 16 proxies are ready")
	b.reads("#list tbody tr:first-child", "rack-2")
	b.reads("#list tbody tr:last-child", "residential")
	b.looksWell("fleet")

	t.Log("a phase is a link to its proxies")
	b.click(`a[href*="phase=Unhealthy"]`)
	b.reads(`.tallies [aria-current]`, "Unhealthy")
	b.reads("#list .range", "1 proxy, Unhealthy")
	b.reads("#list tbody", "rack-1")
	b.looksWell("phase")

	t.Log("news appear by themselves, and what is being typed stays")
	b.view(1280, 400, "light")
	b.typeInto("#q", "vienna")
	b.holds(`window.scrollTo(0, 150), window.scrollY === 150`)
	d.become(t, proxy.Key{Namespace: "crawl", Name: "paris-1"}, func(s *proxy.Status) { s.Phase = proxy.Unhealthy })
	b.await(`document.querySelectorAll('#list tbody tr').length === 2`)
	b.holds(`document.title.startsWith('12/16 ready')`)
	b.holds(`document.querySelector('#q').value === 'vienna' && document.activeElement.id === 'q' && window.scrollY === 150`)
	b.view(1280, 900, "light")

	t.Log("what was typed is looked for, among what was filtered")
	b.typeInto("#q", "\ue007") // the key Enter
	b.await(`location.search.includes('q=vienna') && document.readyState === 'complete'`)
	b.reads("#list", "0 proxies, Unhealthy, with “vienna”")
	b.click("#list .range a")
	b.reads("#list .range", "16 proxies")

	t.Log("a proxy is explained")
	b.click(`a[href="./proxies/crawl/rack-1"]`)
	b.reads("h1", "crawl / rack-1")
	for _, want := range []string{"ProbeFailed", "Running", "no route to host", "shop.example.com", "news.example.org", "on trial"} {
		b.reads("main", want)
	}
	b.looksWell("proxy")
	d.become(t, rack, func(s *proxy.Status) { s.Phase = proxy.Ready })
	b.shownAgain()
	b.await(`document.querySelector('.lede').textContent.includes('Ready')`)
	b.quiet(server.Listener.Addr().String())

	t.Log("a page that is old says so, until it is not")
	broken.Store(true)
	b.shownAgain()
	b.await(`!document.querySelector('#stale').hidden`)
	b.reads("#stale", "the fleet does not answer")
	broken.Store(false)
	b.shownAgain()
	b.await(`document.querySelector('#stale').hidden`)

	t.Log("and the way back is in its head")
	b.click(".brand a")
	b.reads("h1", "13 of 16 proxies are ready")
}

// TestLongTextsFitInABrowser has a word that is longer than a phone is wide wherever a text can be.
func TestLongTextsFitInABrowser(t *testing.T) {
	word := strings.Repeat("w", 250)
	server := httptest.NewServer(handler(t, everywhere(t, word)))
	defer server.Close()
	b := startBrowser(t)
	for name, path := range map[string]string{"long-fleet": "/?q=" + word, "long-proxy": "/proxies/" + word + "/" + word, "long-problem": "/?phase=" + word} {
		b.open(server.URL + path)
		b.looksWell(name)
	}
}

// shownAgain does to a page what its tab does when somebody comes back to it: it asks for news at once.
func (b *browser) shownAgain() {
	b.t.Helper()
	b.holds(`document.dispatchEvent(new Event('visibilitychange'))`)
}

// reads makes sure that somebody who looks at an element finds a text there.
func (b *browser) reads(selector, want string) {
	b.t.Helper()
	if got := b.text(selector); !strings.Contains(got, want) {
		b.t.Errorf("%s shows no %q:\n%s", selector, want, got)
	}
}

// holds makes sure that an expression of the page is true.
func (b *browser) holds(expression string) {
	b.t.Helper()
	var ok bool
	if b.eval(expression, &ok); !ok {
		b.t.Errorf("not true: %s", expression)
	}
}

// faint lists the texts of a page that cannot be read well: whose contrast with what is behind them is below 4.5, which is
// what WCAG wants at level AA.
const faint = `(() => {
	const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
	const luminance = (colour) => parts(colour).slice(0, 3).map((v) => v / 255)
		.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const colour = getComputedStyle(e).backgroundColor;
			if (parts(colour)[3] !== 0) return colour;
		}
	};
	return [...document.body.querySelectorAll('*')].filter((e) => e.checkVisibility() &&
		[...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim() !== '')).filter((e) => {
		const [low, high] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((a, b) => a - b);
		return (high + 0.05) / (low + 0.05) < 4.5;
	}).map((e) => e.outerHTML);
})()`

// looksWell makes sure that a page fits and can be read, wide and narrow, in light and dark colours, and takes pictures.
func (b *browser) looksWell(name string) {
	b.t.Helper()
	for _, size := range []struct {
		name          string
		width, height int
	}{{"narrow", 360, 760}, {"wide", 1280, 900}} {
		for _, colours := range []string{"dark", "light"} {
			b.view(size.width, size.height, colours)
			b.screenshot(name + "-" + size.name + "-" + colours)
			var width int
			if b.eval(`document.documentElement.scrollWidth`, &width); width > size.width {
				b.t.Errorf("%s is %d pixels wide in a window of %d", name, width, size.width)
			}
			var texts []string
			if b.eval(faint, &texts); len(texts) > 0 {
				b.t.Errorf("%s has texts that are too faint in %s colours: %s", name, colours, texts)
			}
		}
	}
}

// quiet makes sure that the browser had nothing to complain of, and asked nobody but a host.
func (b *browser) quiet(host string) {
	b.t.Helper()
	for _, message := range b.logged("browser") {
		b.t.Errorf("the browser says: %s", message)
	}
	requests := 0
	for _, entry := range b.logged("performance") {
		var event struct {
			Message struct {
				Method string
				Params struct{ Request struct{ URL string } }
			}
		}
		_, text, _ := strings.Cut(entry, " ")
		if err := json.Unmarshal([]byte(text), &event); err != nil {
			b.t.Fatal(err)
		}
		asked := event.Message.Params.Request.URL
		if event.Message.Method != "Network.requestWillBeSent" || strings.HasPrefix(asked, "data:") {
			continue
		}
		requests++
		if u, err := url.Parse(asked); err != nil || u.Host != host {
			b.t.Errorf("the browser asked somebody else: %s", asked)
		}
	}
	if requests == 0 {
		b.t.Error("no request was seen")
	}
}
