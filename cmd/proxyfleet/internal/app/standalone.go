package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/secret"
	"github.com/proxyfleet/fleet/store/bolt"
)

// standalone is a fleet on one machine: documents say what it is to be, a state file what it is, and an HTTP API hands it
// out. This file is where its parts are joined.
type standalone struct {
	log     *slog.Logger
	server  *serving.Server
	store   *bolt.Store
	applier *manifest.Applier
	fleet   *fleet.Fleet
	api     http.Handler
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
	s := &standalone{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard())
		}
	}()
	s.server, err = serving.Listen(serving.Config{Address: o.listen, CertFile: o.certFile, KeyFile: o.keyFile,
		Drain: o.shutdownTimeout / 2, Logger: log})
	if err != nil {
		return nil, err
	}
	secrets := manifest.NewSecrets()
	s.store, err = bolt.Open(bolt.Config{Path: o.statePath(), Fleet: configuration(set).FleetID, Secrets: secrets})
	if err != nil {
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

// join makes the fleet over the open store.
func (s *standalone) join(o runOptions, c *manifest.Configuration, types map[string]ProviderType) error {
	providers, err := o.openProviders(c, types, s.store.Fleet(), s.log)
	if err != nil {
		return err
	}
	limits := map[string]int{}
	for _, p := range c.Providers {
		if p.MaxInstances > 0 {
			limits[p.Name] = p.MaxInstances
		}
	}
	s.fleet, err = fleet.New(fleet.Config{
		Fleet:        s.store.Fleet(),
		Store:        s.store,
		Providers:    providers,
		MaxInstances: limits,
		HealthCheck:  c.HealthCheck,
		Health:       health.Config{Workers: o.healthWorkers},
		Lease:        o.lease,
		Intervals:    o.intervals,
		Logger:       s.log,
	})
	return err
}

// publish makes the API of the fleet.
func (s *standalone) publish(token secret.Text, everybody bool) (err error) {
	s.api, err = discovery.New(discovery.Config{
		Proxies:      s.store,
		Leases:       s.fleet.Leases(),
		ActiveLeases: s.fleet.Leases().Counts,
		Ready:        s.ready,
		Backup:       s.store.Backup,
		Token:        token,
		AnyHost:      everybody,
		Logger:       s.log,
	})
	return err
}

// ready says why nothing can be leased, or returns nil.
func (s *standalone) ready(ctx context.Context) error {
	if err := s.store.Err(); err != nil {
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
	s.log.Info("serving", "url", s.server.URL(), "fleet", s.store.Fleet(), "state", o.statePath())
}

// run keeps the fleet and serves it until ctx ends or a part fails. It ends what it has begun in the order in which the
// parts need each other: requests, then the fleet, then the store.
func (s *standalone) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var fleetErr error
	var parts sync.WaitGroup
	parts.Go(func() {
		if fleetErr = s.fleet.Run(keeping); fleetErr != nil {
			stop(fleetErr)
		}
	})
	parts.Go(func() { s.applier.Run(keeping) })
	parts.Go(func() {
		select {
		case <-s.store.Failed():
			s.log.Error("the state file takes no more writes: the process ends, for a start opens it again", "err", s.store.Err())
			stop(s.store.Err())
		case <-keeping.Done():
		}
	})
	serverErr := s.server.Run(ctx, s.api)
	release()
	parts.Wait()
	return errors.Join(serverErr, fleetErr, s.close())
}

// close closes the store, and returns why it failed if it did before.
func (s *standalone) close() error {
	err := s.store.Close()
	if failed := s.store.Err(); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("the state file could not be closed: %w", err)
	}
	return nil
}

// discard lets go of the parts of a fleet that is not run.
func (s *standalone) discard() error {
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	if s.store != nil {
		err = errors.Join(err, s.close())
	}
	return err
}
