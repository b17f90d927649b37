// Command target is the web site that the quickstart crawls: it says from which address it was called, over http and over
// https, for as long as the command runs that it is given.
//
//	target [flags] COMMAND [ARGUMENT...]
//
// Its certificate is made at the start; the CA of it is written to a file, for curl --cacert.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.http, "http", "127.0.0.1:28480", "`address` for http")
	flag.StringVar(&o.https, "https", "127.0.0.1:28443", "`address` for https")
	flag.StringVar(&o.caFile, "ca-file", "target-ca.pem", "`file` that gets the certificate of the CA")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "target: say which command to run: target [flags] COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	code, err := serveDuring(o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "target:", err)
		code = 1
	}
	os.Exit(code)
}

type options struct{ http, https, caFile string }

// serveDuring serves while the command runs, and returns its exit code.
func serveDuring(o options, command []string) (int, error) {
	plain, err := net.Listen("tcp", o.http)
	if err != nil {
		return 0, err
	}
	secure, err := net.Listen("tcp", o.https)
	if err != nil {
		return 0, err
	}
	config, err := newTLSConfig(o.caFile) // not before the addresses are ours, for it replaces the file of whoever has them
	if err != nil {
		return 0, err
	}
	failed := make(chan error, 2)
	for _, socket := range []net.Listener{plain, tls.NewListener(secure, config)} {
		server := &http.Server{Handler: site(), ReadHeaderTimeout: 10 * time.Second}
		defer server.Close()
		go func() { failed <- server.Serve(socket) }()
	}
	return run(command, failed)
}

// run runs a command, and returns its exit code. A SIGTERM is passed on; of an interrupt the terminal tells the command
// itself, and when that has ended, so do we.
func run(command []string, failed <-chan error) (int, error) {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-failed:
		end()
		return 0, errors.Join(err, <-ended)
	case err := <-ended:
		if cmd.ProcessState != nil {
			return cmd.ProcessState.ExitCode(), nil
		}
		return 0, err
	}
}

// site is what there is to crawl.
func site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "You came from %s.\n", from)
	})
	return mux
}
