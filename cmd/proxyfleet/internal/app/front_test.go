package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/manifest"
)

// Connections that are left open at the address of the metrics, as many as it has places for, keep no probe of a kubelet from its
// answer, whether they have asked for something or not. A kubelet waits for five seconds, a few times; a busy machine gets eight.
func TestProbesAreAnswered(t *testing.T) {
	o := newOptions(t)
	o.metricsListen = "127.0.0.1:0"
	f, err := openFront(t.Context(), o, access{}, &manifest.Configuration{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	go func() { ended <- f.serve(ctx, healthy) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.sendSpans()
	})
	for _, test := range []struct{ name, asks string }{
		{"after a request", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		{"without one", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range maxScrapers {
				conn, err := net.Dial("tcp", strings.TrimPrefix(f.scrapes.URL(), "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				if _, err := io.WriteString(conn, test.asks); err != nil {
					t.Fatal(err)
				}
				if test.asks == "" {
					continue
				}
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			kubelet := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 8 * time.Second}
			answer, err := kubelet.Get(f.scrapes.URL() + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("a probe is answered with %s", answer.Status)
			}
		})
	}
}
