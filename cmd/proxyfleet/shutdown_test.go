package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// halfRequest is a request whose body has not come yet.
type halfRequest struct {
	t       *testing.T
	conn    net.Conn
	answers *bufio.Reader
}

func newHalfRequest(t *testing.T, s *server) halfRequest {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	head := "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	r := halfRequest{t, conn, bufio.NewReader(conn)}
	if status := r.answer(); status != http.StatusContinue { // then it is being served
		t.Fatalf("the server answers %d", status)
	}
	return r
}

// answer returns the status of the next answer.
func (r halfRequest) answer() int {
	r.t.Helper()
	answer, err := http.ReadResponse(r.answers, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// finish sends the body and returns the status of the answer.
func (r halfRequest) finish() int {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, "{}"); err != nil {
		r.t.Fatal(err)
	}
	return r.answer()
}

func startEmpty(t *testing.T, args ...string) *server {
	t.Helper()
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration())
	return p.start(args...)
}

func awaitEnding(s *server) {
	s.t.Helper()
	eventually(s.t, func() string {
		if s.log.find("ending", "timeout") == "" {
			return "the signal is not noticed"
		}
		return ""
	})
}

func TestTerminatedFleetAnswersFirst(t *testing.T) {
	s := startEmpty(t)
	ready(s)
	request := newHalfRequest(t, s)
	s.signal(syscall.SIGTERM)
	awaitEnding(s)
	if status := request.finish(); status != http.StatusConflict {
		t.Errorf("the request that was under way is answered %d, want %d", status, http.StatusConflict)
	}
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("the fleet ended with %v", state)
	}
}

// A sweep may be stopped anywhere: neither the fleet nor who asked for it waits for its end.
func TestTerminatedFleetStopsItsSweep(t *testing.T) {
	asked := make(chan struct{})
	cloud := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	}))
	defer cloud.Close()
	o := newOnCloud(t, nil, cloud.URL, "home")
	o.count = 0
	o.write()
	s := o.start("--shutdown-timeout", "1h", "--provider-check-interval", "0")
	said := make(chan result, 1)
	go func() { said <- s.cli("gc") }()
	<-asked
	s.signal(syscall.SIGTERM)
	if r := <-said; r.code != 1 || !strings.Contains(r.stderr, "this process is ending") {
		t.Errorf("gc ended with %+v", r)
	}
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("the fleet ended with %v", state)
	}
}

func TestTerminatedFleetWaitsOnlySoLong(t *testing.T) {
	s := startEmpty(t, "--shutdown-timeout", "10s")
	newHalfRequest(t, s)
	s.signal(syscall.SIGTERM)
	if state := s.wait(); state.ExitCode() != 0 || s.log.find("requests were cut off: they took too long to end", "drain") != "5s" {
		t.Errorf("the fleet ended with %v", state)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := startEmpty(t, "--shutdown-timeout", "1h")
	newHalfRequest(t, s)
	s.signal(syscall.SIGTERM)
	awaitEnding(s)
	again := time.NewTicker(50 * time.Millisecond) // the program gives signals back just after it noticed the first one
	defer again.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.wait()
	}()
	for alive := true; alive; {
		select {
		case <-ended:
			alive = false
		case <-again.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		t.Errorf("the fleet ended with %v", s.cmd.ProcessState)
	}
}
