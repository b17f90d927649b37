package controller

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// link is a way to an API server that can be cut, and on which news can be held up.
type link struct {
	rest    *rest.Config
	forward http.Handler
	// cut refuses all requests.
	cut atomic.Bool
	// hang answers no request.
	hang atomic.Bool
	// requests counts those that came, also while it was cut.
	requests atomic.Int64
	// tamper may answer a request itself; nil or false: it goes on.
	tamper atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]

	mu     sync.Mutex
	frozen chan struct{} // nil, or closed when what watches have to say goes on
	conns  map[net.Conn]bool
}

func newLink(t testing.TB, cfg *rest.Config) *link {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{conns: map[net.Conn]bool{}}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorLog = log.New(io.Discard, "", 0)
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, syscall.ECONNREFUSED) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusBadGateway)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, ConnState: l.track, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.requests.Add(1)
		if l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if l.hang.Load() {
			<-r.Context().Done()
			return
		}
		if tamper := l.tamper.Load(); tamper != nil && (*tamper)(w, r) {
			return
		}
		if watches(r) {
			w = heldUp{w, r, l}
		}
		forward.ServeHTTP(w, r)
	})}
	l.forward = forward
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		l.thaw()
		_ = server.Close()
	})
	l.rest = &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}
	return l
}

func watches(r *http.Request) bool {
	w := r.URL.Query().Get("watch")
	return w == "true" || w == "1"
}

func (l *link) track(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(l.conns, c)
	} else {
		l.conns[c] = true
	}
}

// sever cuts the link, what is under way included.
func (l *link) sever() {
	l.cut.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// mend takes back what sever did.
func (l *link) mend() { l.cut.Store(false) }

// freeze holds up what watches have to say.
func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

// thaw lets it through.
func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// heldUp is the answer to a watch.
type heldUp struct {
	http.ResponseWriter
	request *http.Request
	link    *link
}

func (h heldUp) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h heldUp) Write(b []byte) (int, error) {
	h.link.mu.Lock()
	frozen := h.link.frozen
	h.link.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-h.request.Context().Done():
		}
	}
	return h.ResponseWriter.Write(b)
}

// answers has the link answer requests itself where f does.
func (l *link) answers(f func(http.ResponseWriter, *http.Request) bool) { l.tamper.Store(&f) }

// lose sends a request on, and its answer to nobody.
func (l *link) lose(r *http.Request) {
	l.forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// refuse writes an error as API servers do.
func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","message":"tampered"}`))
}
