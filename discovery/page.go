package discovery

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds what stands in one line, in characters.
const maxWord = 24

//go:embed page
var pageFiles embed.FS

// pages renders what people look at in a browser. A page is one document: its style and its script are in it, it asks no
// other host for anything, and everything on it can be read without the script.
type pages struct {
	fleet     string // its name
	templates *template.Template
	style     template.CSS
	script    template.JS
	policy    string // Content-Security-Policy: nothing runs or loads but what is ours
}

// frame is what all pages have around what they show.
type frame struct {
	// Title is for the tab of the browser.
	Title string
	// Root is the way to the page of the fleet. Links are relative, so that a page works below the path of a reverse proxy.
	Root string
	// Name is the fleet's. The renderer sets it, and what follows Refresh.
	Name string
	// Refresh is after how many seconds the page asks for its next state.
	Refresh int
	// AsOf is when the page was true.
	AsOf   moment
	Style  template.CSS
	Script template.JS
}

// framed is a view of a page.
type framed interface{ around() *frame }

func (f *frame) around() *frame { return f }

func newPages(fleet string) *pages {
	style, script := pageFile("page.css"), pageFile("page.js")
	return &pages{
		fleet:     clip(fleet, 63),
		templates: template.Must(template.ParseFS(pageFiles, "page/*.html")),
		style:     template.CSS(style),
		script:    template.JS(script),
		policy: "default-src 'none'; style-src '" + digest(style) + "'; script-src '" + digest(script) + "'; img-src data:; " +
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	}
}

// pageFile returns a file that is built in.
func pageFile(name string) string {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err)
	}
	return string(content)
}

// digest names an inline style or script in a policy.
func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// write answers with a page.
func (p *pages) write(w http.ResponseWriter, status int, name string, view framed) error {
	text, err := p.render(name, view)
	if err == nil {
		p.send(w, status, text)
	}
	return err
}

// render returns a page as it is sent.
func (p *pages) render(name string, view framed) ([]byte, error) {
	f := view.around()
	f.Name, f.AsOf, f.Style, f.Script = p.fleet, at(time.Now()), p.style, p.script
	var body bytes.Buffer
	if err := p.templates.ExecuteTemplate(&body, name, view); err != nil {
		return nil, fmt.Errorf("page %s: %w", name, err)
	}
	return harmless(body.Bytes()), nil
}

// send answers with a page that is rendered.
func (p *pages) send(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// harmless replaces what has no place in a text: control characters, and marks that nobody sees and that may turn the order
// of what is read around. Messages quote what proxies and clouds answer.
func harmless(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r != '\n' && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// showing serves a page, and its errors as pages.
func (a *api) showing(serve endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := serve(w, r)
		if err == nil {
			return
		}
		p := a.problem(r, err)
		view := &problemPage{frame: frame{Title: http.StatusText(p.status), Root: way(r), Refresh: 10}, Message: p.message}
		if err := a.pages.write(w, p.status, "problem.html", view); err != nil {
			panic(err)
		}
	}
}

// problemPage says why there is no other page.
type problemPage struct {
	frame
	Message string
}

// way is the relative path from a page to that of the fleet.
func way(r *http.Request) string {
	return "./" + strings.Repeat("../", strings.Count(r.URL.Path, "/")-1)
}

// moment is a time as pages show it.
type moment struct {
	Machine string // for programs
	Clock   string // 15:04:05 UTC
	Full    string // with the date
	Age     string // 3 min
	When    string // 3 min ago, or in 3 min
}

// at makes a moment of a time. Nothing comes of one that is not known.
func at(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t = t.UTC()
	m := moment{
		Machine: t.Format(time.RFC3339),
		Clock:   t.Format("15:04:05 MST"),
		Full:    t.Format("2 January 2006, 15:04:05 MST"),
		Age:     span(time.Since(t)),
	}
	m.When = m.Age + " ago"
	if ahead := time.Until(t); ahead > 0 {
		m.When = "in " + span(ahead)
	}
	return m
}

// span is a duration in one word and its unit, as exact as anybody wants to read it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// millis is a latency. 0 is not known.
func millis(ms int64) string {
	switch {
	case ms <= 0:
		return ""
	case ms < 10_000:
		return grouped(ms) + " ms"
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

// grouped writes a number with its thousands apart.
func grouped[N ~int | ~int32 | ~int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// clip bounds a text that somebody else wrote.
func clip(text string, runes int) string {
	end := 0 // of what stays where the text is too long
	for i := range text {
		switch runes--; runes {
		case 0:
			end = i
		case -1:
			return strings.TrimRightFunc(text[:end], unicode.IsSpace) + "…"
		}
	}
	return text
}
