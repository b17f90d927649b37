package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease/boltlog"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/store/bolt"
)

// standalone is a fleet on one machine: documents say what it is to be, a state file what it is, a lease file who has what of
// it, and an HTTP API hands it out. It has one crew, which works for as long as the process runs.
type standalone struct {
	*front
	*crew
	store   *bolt.Store
	leases  *boltlog.Log
	applier *manifest.Applier
	handler http.Handler // of the API
}

// openStandalone makes the parts and applies the documents. What only reads comes first, so that what is refused has changed
// nothing.
func openStandalone(ctx context.Context, o runOptions, types map[string]ProviderType, log *slog.Logger) (_ *standalone, err error) {
	a, err := readAccess(o)
	if err != nil {
		return nil, err
	}
	set, _, err := o.load(types)
	if err != nil {
		return nil, err
	}
	c := configuration(set)
	s := &standalone{}
	if s.front, err = openFront(ctx, o, a, c, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard())
		}
	}()
	secrets := manifest.NewSecrets()
	if err := s.openFiles(o, c.FleetID, secrets); err != nil {
		return nil, err
	}
	if err := s.join(o, c, types); err != nil {
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
	if c.FleetID == "" {
		log.Info("the documents declare no fleetID: the state file keeps a generated one", "fleet", s.store.Fleet())
	}
	s.announce("fleet", s.store.Fleet(), "state", o.statePath(), "leases", o.leasesPath())
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

// join makes the crew over the open files, and the API of its fleet.
func (s *standalone) join(o runOptions, c *manifest.Configuration, types map[string]ProviderType) error {
	figures, err := s.figures.NewFleet()
	if err != nil {
		return err
	}
	s.crew, err = newCrew(post{options: o, configuration: c, types: types, stateDir: o.providerDir(), identity: s.store.Fleet(),
		store: s.store, leases: s.leases, log: s.log, spans: s.spans, metrics: figures})
	if err != nil {
		return err
	}
	api := s.show(s.api())
	api.Proxies, api.Ready, api.Backup, api.Name = s.store, s.ready, s.store.Backup, s.store.Fleet()
	s.handler, err = discovery.New(api)
	return err
}

// ready says why nothing can be leased, or returns nil.
func (s *standalone) ready(ctx context.Context) error {
	if err := cmp.Or(s.store.Err(), s.leases.Err()); err != nil {
		return err
	}
	return s.fleet.Ready(ctx)
}

// run keeps the fleet and serves it until ctx ends or a part fails. The files are closed when nobody needs them any more.
func (s *standalone) run(ctx context.Context) error {
	err := s.serve(ctx, s.handler, s.crew.run, s.apply, s.filesFail)
	err = errors.Join(err, s.close())
	s.sendSpans()
	return err
}

// apply keeps what is declared like the documents.
func (s *standalone) apply(ctx context.Context) error {
	s.applier.Run(ctx)
	return nil
}

// filesFail ends when a file takes no more writes, or ctx. Closing the files tells why.
func (s *standalone) filesFail(ctx context.Context) error {
	select {
	case <-s.store.Failed():
		s.log.Error("the state file takes no more writes: the process ends, for a start opens it again", "err", s.store.Err())
	case <-s.leases.Failed():
		s.log.Error("the lease file takes no more writes: the process ends, for a start opens it again", "err", s.leases.Err())
	case <-ctx.Done():
	}
	return nil
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

// discard lets go of the parts of a fleet that is not run.
func (s *standalone) discard() error { return errors.Join(s.front.discard(), s.close()) }
