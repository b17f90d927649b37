package serving_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
)

// TestMaxConnections has somebody come while the one connection is in use: the answer waits until that is closed.
func TestMaxConnections(t *testing.T) {
	s, err := serving.Listen(serving.Config{Address: "127.0.0.1:0", MaxConnections: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	paths := make(chan string, 100)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	}()
	first, second := &http.Transport{}, &http.Transport{}
	ask := func(by *http.Transport, path string) {
		answer, err := (&http.Client{Transport: by, Timeout: time.Minute}).Get(s.URL() + path)
		if err != nil {
			t.Error(err)
			return
		}
		answer.Body.Close()
	}
	ask(first, "/first")
	served := make(chan struct{})
	go func() { defer close(served); ask(second, "/second") }()
	for range 50 {
		ask(first, "/first")
	}
	first.CloseIdleConnections()
	<-served
	second.CloseIdleConnections()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(paths)
	var got []string
	for path := range paths {
		got = append(got, path)
	}
	if want := append(slices.Repeat([]string{"/first"}, 51), "/second"); !slices.Equal(got, want) {
		t.Errorf("served %v", got)
	}
}
