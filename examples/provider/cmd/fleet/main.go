// Command fleet keeps a fleet on the example cloud. It shows how a program of one's own is made of the parts of this module:
// documents that are followed, records in a state file, a provider that nobody else knows, what watches over it, and the HTTP API.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/discovery"
	examplecloud "github.com/proxyfleet/fleet/examples/provider"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/store/bolt"
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
	file, state string
	port        uint
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.file, "f", "fleet.yaml", "`file` of the documents")
	flags.StringVar(&o.state, "state", "fleet.db", "`file` of the state")
	flags.UintVar(&o.port, "port", 8090, "port of the API on 127.0.0.1; 0 takes a free one")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("fleet: what is %q?", flags.Arg(0))
	}
	return o, nil
}

// run keeps the fleet until the context ends. The first line that it prints is the URL of the API.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))

	sources := manifest.Sources{Files: []string{o.file}}
	set, err := manifest.Load(sources)
	if err != nil {
		return err
	}
	if set.Configuration == nil || set.Configuration.FleetID == "" {
		return errors.New("the documents need a fleetID: by it the fleet finds its instances again")
	}
	secrets := manifest.NewSecrets()
	store, err := bolt.Open(bolt.Config{Path: o.state, Fleet: set.Configuration.FleetID, Secrets: secrets})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	f, checks, sweeper, err := open(set.Configuration, store, log)
	if err != nil {
		return err
	}
	api, err := discovery.New(discovery.Config{
		Proxies: store, Leases: f.Leases(), ActiveLeases: f.Leases().Counts, Providers: checks.Results, Backup: store.Backup, Logger: log,
		Ready: func(ctx context.Context) error { return cmp.Or(store.Err(), f.Ready(ctx)) },
	})
	if err != nil {
		return err
	}
	// Without a token whoever reaches the API may do everything, so it is on loopback.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return err
	}
	defer listener.Close()
	applier, err := manifest.NewApplier(manifest.ApplierConfig{Sources: sources, Store: store, Secrets: secrets, Logger: log})
	if err != nil {
		return err
	}
	if err := applier.Apply(ctx, set); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	keepers := []func(context.Context) error{f.Run, checks.Run, sweeper.Run, func(ctx context.Context) error {
		applier.Run(ctx)
		return nil
	}}
	return keep(ctx, keepers, func(ctx context.Context) error { return serve(ctx, listener, api) })
}

// open makes the fleet, and what watches over its provider. Here a provider gets the name by which documents call its type.
func open(c *manifest.Configuration, store *bolt.Store, log *slog.Logger) (*fleet.Fleet, *monitor.Monitor, *gc.Sweeper, error) {
	constructors := map[string]provider.Constructor{"example": examplecloud.New}
	configs, limits := make([]provider.Config, len(c.Providers)), map[string]int{}
	for i, p := range c.Providers {
		configs[i] = provider.Config(p)
		if p.MaxInstances > 0 {
			limits[p.Name] = p.MaxInstances
		}
	}
	providers, err := provider.Open(configs, constructors, provider.Environment{Fleet: c.FleetID, Logger: log})
	if err != nil {
		return nil, nil, nil, err
	}
	f, fleetErr := fleet.New(fleet.Config{Fleet: c.FleetID, Store: store, Providers: providers, MaxInstances: limits,
		HealthCheck: c.HealthCheck, Logger: log})
	checks, checksErr := monitor.New(monitor.Config{Providers: providers, Logger: log})
	sweeper, sweeperErr := gc.New(gc.Config{Fleet: c.FleetID, Providers: providers, Live: live(store), Logger: log})
	return f, checks, sweeper, errors.Join(fleetErr, checksErr, sweeperErr)
}

// live tells the sweeper what the records hold. What it leaves out may be deleted.
func live(store *bolt.Store) func(context.Context) (map[string]gc.Held, error) {
	return func(ctx context.Context) (map[string]gc.Held, error) {
		records, err := store.Live(ctx)
		if err != nil {
			return nil, err
		}
		held := make(map[string]gc.Held, len(records))
		for uid, r := range records {
			held[uid] = gc.Held{Key: r.Key.String(), External: r.Mode == proxy.External, Deleting: r.Deleting,
				Provider: r.Instance.Provider, ID: r.Instance.ID, Incarnation: r.Instance.Incarnation}
		}
		return held, nil
	}
}

// keep runs the keepers until the context ends or one of them fails. Requests end before the fleet that answers them.
func keep(ctx context.Context, keepers []func(context.Context) error, serve func(context.Context) error) error {
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	problems := make([]error, len(keepers))
	var running sync.WaitGroup
	for i, run := range keepers {
		running.Go(func() {
			defer stop()
			problems[i] = run(keeping)
		})
	}
	err := serve(ctx)
	release()
	running.Wait()
	return errors.Join(append(problems, err)...)
}

// serve answers until the context ends, and gives what is under way then five seconds.
func serve(ctx context.Context, listener net.Listener, api http.Handler) error {
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return server.Shutdown(deadline)
}
