package bolt

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"
)

// create makes an empty store of a fleet. The file gets its name when it is whole, and never in the place of one that
// another process made meanwhile. A crash leaves at most a file of another name, which nobody misses.
func create(cfg Config) error {
	folder, name := filepath.Split(cfg.Path)
	folder = cmp.Or(folder, ".")
	f, err := os.CreateTemp(folder, name+".new-*") // readable by its owner alone
	if err != nil {
		return err
	}
	whole := f.Name()
	defer os.Remove(whole) //nolint:errcheck // it is garbage by now
	if err := f.Close(); err != nil {
		return err
	}
	if err := initialize(whole, cmp.Or(cfg.Fleet, strings.ToLower(rand.Text()))); err != nil {
		return err
	}
	if err := os.Link(whole, cfg.Path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(folder)
}

func initialize(path, fleet string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return writeHeader(tx, fleet) })
	return errors.Join(err, db.Close())
}

// syncFolder makes the name of a new file durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
