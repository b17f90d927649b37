package serving_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
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
	first, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = first.SetDeadline(time.Now().Add(time.Minute))
	answers := bufio.NewReader(first)
	ask := func() {
		if _, err := io.WriteString(first, "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	ask()
	served := make(chan struct{})
	second := &http.Transport{}
	go func() {
		defer close(served)
		answer, err := (&http.Client{Transport: second, Timeout: time.Minute}).Get(s.URL() + "/second")
		if err != nil {
			t.Error(err)
			return
		}
		answer.Body.Close()
	}()
	for range 50 {
		ask()
	}
	first.Close()
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
