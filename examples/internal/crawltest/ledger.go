package crawltest

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// entry is a lease that the fleet has granted.
type entry struct {
	host, name     string // of its proxy
	granted, ended time.Time
	reports        []string
}

// ledger stands between a crawler and the API of its fleet, and notes what is leased when.
type ledger struct {
	server *httptest.Server

	mu      sync.Mutex
	entries map[string]*entry // by lease
}

func newLedger(fleet string) (*ledger, error) {
	to, err := url.Parse(fleet)
	if err != nil {
		return nil, err
	}
	l := &ledger{entries: map[string]*entry{}}
	through := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: l.answered,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	l.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked(r)
		through.ServeHTTP(w, r)
	}))
	return l, nil
}

// asked notes a release when it is asked for: nothing may be sent under the lease from then on.
func (l *ledger) asked(r *http.Request) {
	id, report := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/leases/"), "/report")
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	switch {
	case e == nil:
	case r.Method == http.MethodDelete && e.ended.IsZero():
		e.ended = time.Now()
	case report:
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var said struct{ Result string }
		_ = json.Unmarshal(body, &said)
		e.reports = append(e.reports, said.Result)
	}
}

// answered notes what was granted, before the crawler knows.
func (l *ledger) answered(resp *http.Response) error {
	if resp.Request.URL.Path != "/v1/leases" || resp.StatusCode != http.StatusCreated {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	type lease struct {
		LeaseID string
		Proxy   struct{ Host, Namespace, Name string }
	}
	var granted struct {
		lease
		Leases []lease
	}
	if err := json.Unmarshal(body, &granted); err != nil {
		return err
	}
	if len(granted.Leases) == 0 {
		granted.Leases = []lease{granted.lease}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range granted.Leases {
		l.entries[g.LeaseID] = &entry{host: g.Proxy.Host, name: g.Proxy.Namespace + "/" + g.Proxy.Name, granted: time.Now()}
	}
	return nil
}
