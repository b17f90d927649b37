package pod_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// gateway stands before an API server and disturbs the requests that match a fault.
type gateway struct {
	URL string

	mu     sync.Mutex
	faults []*fault
	served []string // method and path of each request
}

// fault is what happens to requests of a method whose path contains a text.
type fault struct {
	method, path string
	times        int    // how often; 0 is always
	skip         int    // how many are let through before
	status       int    // answered instead of asking the API server
	body         string // with status; defaults to what a load balancer says
	header       http.Header
	first        func() // called before; the API server is asked then if nothing else is said
	lose         bool   // the API server is asked, and its answer lost
	hang         bool   // nobody is asked, and nothing answered
}

// before starts a gateway before the API server of a configuration.
func before(t testing.TB, config *rest.Config) *gateway {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if query := r.Out.URL.Query(); query.Get("limit") == "500" { // pages are small, so that there are some
			query.Set("limit", "2")
			r.Out.URL.RawQuery = query.Encode()
		}
	}}
	g := &gateway{}
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, forward, stop) }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	g.URL = server.URL
	return g
}

// inject adds a fault.
func (g *gateway) inject(f fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, &f)
}

// requests returns the requests so far that begin with a text such as "POST /api".
func (g *gateway) requests(prefix string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, r := range g.served {
		if strings.HasPrefix(r, prefix) {
			all = append(all, r)
		}
	}
	return all
}

// fault returns the one that hits a request, or nil.
func (g *gateway) fault(r *http.Request) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.served = append(g.served, r.Method+" "+r.URL.Path)
	for i, f := range g.faults {
		if f.method != "" && f.method != r.Method || !strings.Contains(r.URL.Path, f.path) {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		if f.times--; f.times == 0 {
			g.faults = append(g.faults[:i:i], g.faults[i+1:]...)
		}
		return f
	}
	return nil
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request, forward http.Handler, stop <-chan struct{}) {
	f := g.fault(r)
	if f != nil && f.first != nil {
		f.first()
	}
	switch {
	case f == nil || f.status == 0 && !f.hang && !f.lose:
		forward.ServeHTTP(w, r)
	case f.hang:
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	case f.lose:
		forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		maps.Copy(w.Header(), f.header)
		w.WriteHeader(f.status)
		body := f.body
		if body == "" {
			body = "<html>upstream connect error</html>"
		}
		_, _ = w.Write([]byte(body))
	}
}

// kubeconfig writes a file that leads to a server without TLS and credentials.
func kubeconfig(t testing.TB, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
