package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/tracing"
	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/lease/boltlog"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/metrics"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
	"github.com/proxyfleet/fleet/store/bolt"
)

// standalone is a fleet on one machine: documents say what it is to be, a state file what it is, a lease file who has what of
// it, and an HTTP API hands it out. Its parts are joined in parts.go.
type standalone struct {
	log     *slog.Logger
	spans   *tracing.Tracing
	flush   time.Duration // how long the last spans may take to leave
	metrics *metrics.Metrics

	server  *serving.Server
	scrapes *serving.Server // nil: nobody may scrape
	store   *bolt.Store
	leases  *boltlog.Log
	applier *manifest.Applier
	fleet   *fleet.Fleet
	monitor *monitor.Monitor
	checks  bool // whether the monitor runs
	sweeper *gc.Sweeper
	brakes  *brakes
	api     http.Handler
	ending  chan struct{} // closed when the fleet is to end
}

// open makes the parts and applies the documents. What only reads comes first, so that what is refused has changed nothing.
func open(ctx context.Context, o runOptions, types map[string]ProviderType, log *slog.Logger) (_ *standalone, err error) {
	token, err := readToken(o.tokenFile)
	if err != nil {
		return nil, err
	}
	everybody, err := checkAccess(o.listen, !token.IsZero(), o.insecureNoToken)
	if err != nil {
		return nil, err
	}
	set, _, err := o.load(types)
	if err != nil {
		return nil, err
	}
	s := &standalone{log: log, flush: o.shutdownTimeout / 4, checks: o.checkInterval > 0, ending: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard())
		}
	}()
	if s.spans, err = tracing.Open(ctx, version(), log); err != nil {
		return nil, err
	}
	if err := s.listen(o); err != nil {
		return nil, err
	}
	secrets := manifest.NewSecrets()
	if err := s.openFiles(o, configuration(set).FleetID, secrets); err != nil {
		return nil, err
	}
	if err := s.join(o, configuration(set), types); err != nil {
		return nil, err
	}
	if err := s.publish(token, everybody); err != nil {
		return nil, err
	}
	s.applier, err = manifest.NewApplier(manifest.ApplierConfig{Sources: o.sources(), Store: s.store, Secrets: secrets, Logger: log,
		AllowDelete: o.allowDelete, Poll: o.documentsPoll})
	if err != nil {
		return nil, err
	}
	if err := s.applier.Apply(ctx, set); err != nil {
		return nil, err
	}
	s.announce(o, configuration(set), token)
	return s, nil
}

// openFiles opens the state file and the lease file. One that is there comes before one that is made, for it may be refused.
func (s *standalone) openFiles(o runOptions, fleet string, secrets proxy.Secrets) error {
	openState := func() (err error) {
		s.store, err = bolt.Open(bolt.Config{Path: o.statePath(), Fleet: fleet, Secrets: secrets})
		return err
	}
	openLeases := func() (err error) {
		s.leases, err = boltlog.Open(boltlog.Config{Path: o.leasesPath()})
		return err
	}
	first, second := openState, openLeases
	if !exists(o.statePath()) && exists(o.leasesPath()) {
		first, second = openLeases, openState
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ready says why nothing can be leased, or returns nil.
func (s *standalone) ready(ctx context.Context) error {
	if err := cmp.Or(s.store.Err(), s.leases.Err()); err != nil {
		return err
	}
	return s.fleet.Ready(ctx)
}

// announce says what somebody who reads the log of a start looks for.
func (s *standalone) announce(o runOptions, c *manifest.Configuration, token secret.Text) {
	if c.FleetID == "" {
		s.log.Info("the documents declare no fleetID: the state file keeps a generated one", "fleet", s.store.Fleet())
	}
	if token.IsZero() {
		s.log.Warn("the API has no token: whoever reaches it may lease proxies and change the fleet", "listen", o.listen)
	}
	if s.scrapes != nil {
		s.log.Info("serving metrics", "url", s.scrapes.URL()+"/metrics")
	}
	s.log.Info("serving", "url", s.server.URL(), "fleet", s.store.Fleet(), "state", o.statePath(), "leases", o.leasesPath())
}

// run keeps the fleet and serves it until ctx ends or a part fails. It ends what it has begun in the order in which the
// parts need each other: requests, then the fleet, then the store.
func (s *standalone) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	context.AfterFunc(ctx, func() { close(s.ending) })
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var fleetErr, scrapesErr error
	var parts sync.WaitGroup
	parts.Go(func() {
		if fleetErr = s.fleet.Run(keeping); fleetErr != nil {
			stop(fleetErr)
		}
	})
	parts.Go(func() { s.applier.Run(keeping) })
	s.watch(keeping, &parts)
	if s.scrapes != nil {
		parts.Go(func() {
			if scrapesErr = s.scrapes.Run(keeping, s.figures()); scrapesErr != nil {
				stop(scrapesErr)
			}
		})
	}
	parts.Go(func() {
		if err := s.filesFail(keeping); err != nil {
			stop(err)
		}
	})
	serverErr := s.server.Run(ctx, s.api)
	release()
	parts.Wait()
	err := errors.Join(serverErr, fleetErr, scrapesErr, s.close())
	s.sendSpans()
	return err
}

// watch starts what watches over providers. Neither can fail, for each runs once.
func (s *standalone) watch(ctx context.Context, parts *sync.WaitGroup) {
	parts.Go(func() { _ = s.sweeper.Run(ctx) })
	if s.checks {
		parts.Go(func() { _ = s.monitor.Run(ctx) })
	}
}

// filesFail waits until a file takes no more writes, and returns why, or nil once ctx has ended.
func (s *standalone) filesFail(ctx context.Context) error {
	select {
	case <-s.store.Failed():
		s.log.Error("the state file takes no more writes: the process ends, for a start opens it again", "err", s.store.Err())
		return s.store.Err()
	case <-s.leases.Failed():
		s.log.Error("the lease file takes no more writes: the process ends, for a start opens it again", "err", s.leases.Err())
		return s.leases.Err()
	case <-ctx.Done():
		return nil
	}
}

// close closes the files, and returns why they failed if they did before.
func (s *standalone) close() (err error) {
	if s.leases != nil {
		err = s.leases.Close()
	}
	if s.store == nil {
		return err
	}
	storeErr := s.store.Close()
	if failed := s.store.Err(); failed != nil {
		return errors.Join(err, failed)
	}
	if storeErr != nil {
		storeErr = fmt.Errorf("the state file could not be closed: %w", storeErr)
	}
	return errors.Join(err, storeErr)
}

// sendSpans sends those that nobody has got yet, to whom it may concern.
func (s *standalone) sendSpans() {
	ctx, cancel := context.WithTimeout(context.Background(), s.flush)
	defer cancel()
	if err := s.spans.Close(ctx); err != nil {
		s.log.Warn("the last spans are lost", "err", err)
	}
}

// discard lets go of the parts of a fleet that is not run.
func (s *standalone) discard() error {
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	if s.scrapes != nil {
		err = errors.Join(err, s.scrapes.Close())
	}
	err = errors.Join(err, s.close())
	if s.spans != nil {
		s.sendSpans()
	}
	return err
}
