package boltfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// create makes a new file. It gets its name when it is whole, and never in the place of one that another process made
// meanwhile. A crash leaves at most a file of another name, which nobody misses.
func create(c Config) error {
	folder, name := filepath.Split(c.Path)
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
	if err := c.initialize(whole); err != nil {
		return err
	}
	if err := os.Link(whole, c.Path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(folder)
}

func (c Config) initialize(path string) error {
	db, err := bbolt.Open(path, 0o600, &c.Options)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := c.writeFormat(tx); err != nil {
			return err
		}
		return c.Fill(tx)
	})
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
