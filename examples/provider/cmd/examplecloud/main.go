// Command examplecloud runs the example cloud on this machine, until it is interrupted. Its instances run on, and the next
// one with the same directory takes them over; -purge ends them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	listen string
	purge  bool
	cloud  cloud.Config
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("examplecloud", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:9080", "loopback `address` of the API; port 0 takes a free one")
	flags.StringVar(&o.cloud.Dir, "dir", "", "`directory` of the cloud's state (required)")
	zones := flags.String("zones", "a,b", "`names` of the zones, with commas")
	flags.DurationVar(&o.cloud.Boot, "boot", 2*time.Second, "how long an instance is provisioning")
	flags.DurationVar(&o.cloud.Stop, "stop", time.Second, "how long an instance is stopping")
	flags.IntVar(&o.cloud.Conditions.Capacity, "capacity", 0, "how many instances there can be; 0 is no limit")
	lag := flags.Duration("lag", 0, "how old answers can be")
	flags.BoolVar(&o.purge, "purge", false, "end all instances, and do nothing else")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("examplecloud: what is %q?", flags.Arg(0))
	}
	o.cloud.Zones = strings.Split(*zones, ",")
	o.cloud.Conditions.LagMillis = int(lag.Milliseconds())
	o.cloud.Log = slog.New(slog.NewTextHandler(stderr, nil))
	return o, nil
}

// run serves until the context ends. The first line that it prints is the URL of the API.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	c, err := cloud.Open(o.cloud)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if o.purge {
		return c.Purge()
	}
	listener, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	return serve(ctx, listener, c)
}

// listen takes loopback addresses only: the API starts processes for whoever asks.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
		return nil, fmt.Errorf("examplecloud: -listen: want a loopback address like 127.0.0.1:9080, not %q", address)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// serve answers until the context ends. It closes the cloud before it waits for its calls, because that frees those that
// are delayed.
func serve(ctx context.Context, listener net.Listener, c *cloud.Cloud) error {
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	closed := c.Close()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(closed, server.Shutdown(deadline))
}
