package crawltest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// hit is a request that the site has seen.
type hit struct {
	at     time.Time
	path   string
	source string // the address that it came from
	status int
}

// site is a web site of pages that link to each other as in a tree, which bans addresses.
type site struct {
	server *httptest.Server
	pages  int

	mu     sync.Mutex // also while something happens: nobody is served meanwhile
	hits   []hit
	banned map[string]int // the status for whom, by source
	events map[int]func() // what happens before which hit
}

func newSite(pages int) *site {
	s := &site{pages: pages, banned: map[string]int{}, events: map[int]func(){}}
	s.server = httptest.NewServer(s)
	return s
}

func (s *site) url(page int) string { return fmt.Sprintf("%s/%d.html", s.server.URL, page) }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	source, _, _ := net.SplitHostPort(r.RemoteAddr)
	status := s.see(hit{at: time.Now(), path: r.URL.Path, source: source})
	w.Header().Set("Content-Type", "text/html")
	if status == captcha {
		fmt.Fprint(w, "<html>Are you human?</html>")
		return
	}
	w.WriteHeader(status)
	if status == http.StatusOK {
		s.write(w, r.URL.Path)
	}
}

// captcha is not sent: the page then asks with status 200 whether one is human.
const captcha = 1

// see notes a request, and returns the status for it.
func (s *site) see(h hit) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if happens := s.events[len(s.hits)+1]; happens != nil {
		delete(s.events, len(s.hits)+1)
		happens()
	}
	status := http.StatusOK
	var page int
	if _, err := fmt.Sscanf(h.path, "/%d.html", &page); err != nil || page < 1 || page > s.pages {
		status = http.StatusNotFound
	}
	if ban := s.banned[h.source]; ban != 0 {
		status = ban
	}
	h.status = status
	s.hits = append(s.hits, h)
	return status
}

// write writes a page with links to two others, and some text.
func (s *site) write(w http.ResponseWriter, path string) {
	var page int
	_, _ = fmt.Sscanf(path, "/%d.html", &page)
	fmt.Fprintf(w, "<html><title>Page %d</title>", page)
	for _, next := range []int{2 * page, 2*page + 1} {
		if next <= s.pages {
			fmt.Fprintf(w, `<a href="/%d.html">%d</a> `, next, next)
		}
	}
	fmt.Fprint(w, strings.Repeat("<p>Lorem ipsum.</p>", 500), "</html>")
}
