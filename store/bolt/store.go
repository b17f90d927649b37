// Package bolt keeps the records of proxies in one file: the store of a fleet on one machine.
//
// The file is a bbolt database. A write is acknowledged when it is on disk, and a crash at any moment leaves the last
// acknowledged state or the one after it. What cannot be read is refused by name and never taken for an empty fleet,
// because instances whose records are gone run on and nobody knows of them. Secrets are not in the file.
package bolt

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/proxy"
)

// Config says which file a store is and what stands behind it.
type Config struct {
	// Path is where the file is. One that does not exist is made, readable by its owner alone; its folder must exist.
	// Required.
	Path string
	// Fleet is the declared identity of the fleet, 1 to 63 of a-z, 0-9 and -. A file of another fleet is refused. Defaults
	// to the identity that is kept in the file, and in a new file to a random one.
	Fleet string
	// Secrets are where the references of specs lead. Defaults to none.
	Secrets proxy.Secrets
	// Timeout is how long to wait for another process that holds the file. Defaults to 1s.
	Timeout time.Duration
}

var fleetIdentity = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

func (c Config) validate() error {
	var problems []error
	if c.Path == "" {
		problems = append(problems, errors.New("bolt: Path is required"))
	}
	if c.Fleet != "" && !fleetIdentity.MatchString(c.Fleet) {
		problems = append(problems, fmt.Errorf("bolt: Fleet must be 1 to 63 of a-z, 0-9 and -, not %q", c.Fleet))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("bolt: Timeout must be positive, not %v", c.Timeout))
	}
	return errors.Join(problems...)
}

// Store is a [proxy.Memory] whose records are in a file.
type Store struct {
	*proxy.Memory
	journal *journal
	fleet   string
}

// Open opens the file, or makes it. The file is held until [Store.Close]; no other process can open it meanwhile.
func Open(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", cfg.Path, err)
	}
	return s, nil
}

func open(cfg Config) (*Store, error) {
	db, err := boltfile.Open(boltfile.Config{
		Path:    cfg.Path,
		Kind:    "state",
		Format:  format,
		Fill:    func(tx *bbolt.Tx) error { return writeHeader(tx, cmp.Or(cfg.Fleet, strings.ToLower(rand.Text()))) },
		Options: bbolt.Options{Timeout: cmp.Or(cfg.Timeout, time.Second)},
	})
	if err != nil {
		return nil, err
	}
	s, err := load(db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// load makes a store of an open file.
func load(db *bbolt.DB, cfg Config) (*Store, error) {
	var fleet string
	var records []proxy.Record
	err := boltfile.Guard(func() error {
		return db.View(func(tx *bbolt.Tx) (err error) {
			if fleet, err = readHeader(tx); err == nil {
				records, err = readRecords(tx)
			}
			return err
		})
	})
	switch {
	case err != nil:
		return nil, err
	case cfg.Fleet != "" && cfg.Fleet != fleet:
		return nil, fmt.Errorf("belongs to fleet %q, not to the declared %q: declare the one that it belongs to, or name another file",
			fleet, cfg.Fleet)
	}
	j := &journal{update: db.Update, view: db.View, close: db.Close, ended: make(chan struct{})}
	m := proxy.NewMemory(proxy.MemoryConfig{Fleet: fleet, Secrets: cfg.Secrets, Journal: j, Records: records})
	return &Store{Memory: m, journal: j, fleet: fleet}, nil
}

// Fleet returns the identity of the fleet that the file belongs to.
func (s *Store) Fleet() string { return s.fleet }

// Backup writes a copy of the file as it is at one moment. The store works on meanwhile, however slow w is.
func (s *Store) Backup(w io.Writer) error {
	// The file cannot grow while it is read: so it is copied first, and then written.
	var file bytes.Buffer
	err := s.journal.view(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&file)
		return err
	})
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if _, err := file.WriteTo(w); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// Failed is closed when the file takes no more writes until it is opened again: a sync failed, or the file was damaged under
// the process. Reads are still answered from memory, but nothing changes any more, so a process should end then.
func (s *Store) Failed() <-chan struct{} { return s.journal.ended }

// Err returns why the file takes no more writes, once Failed is closed, and nil before. A write that failed by itself, as
// on a full disk, does not count: the next one may succeed.
func (s *Store) Err() error {
	select {
	case <-s.journal.ended:
		return s.journal.failure()
	default: // without waiting for the write that is under way
		return nil
	}
}

// Close lets go of the file. Later writes fail; reads are answered from memory.
func (s *Store) Close() error { return s.journal.shut() }
