// Package boltfile opens files of bbolt that nobody can do without: no byte of them is believed before it was checked, none is
// ever taken for an empty one, and a crash leaves a whole file or none.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Config says which file, and what is in it. All fields are required.
type Config struct {
	// Path is where the file is. One that does not exist is made, readable by its owner alone; its folder must exist.
	Path string
	// Kind is what the file is a file of, in errors and in the line that says of what format it is.
	Kind string
	// Format is the newest version that is known of what the file holds.
	Format int
	// Fill puts into a new file what it needs beside its format.
	Fill func(*bbolt.Tx) error
	// Options are those of bbolt, of which Timeout bounds the wait for another process that holds the file. The list of free
	// pages must be in the file: without it bbolt looks for them in a goroutine that [Guard] does not guard, even when a
	// write has failed.
	Options bbolt.Options
}

// Meta is the bucket that the format is in, under the key KeyFormat. Callers may have keys of their own in it.
const (
	Meta      = "meta"
	KeyFormat = "format"
)

// Open opens the file, or makes it. The file is held until it is closed; no other process can open it meanwhile.
func Open(c Config) (*bbolt.DB, error) {
	if _, err := os.Stat(c.Path); errors.Is(err, fs.ErrNotExist) {
		if err := create(c); err != nil {
			return nil, err
		}
	}
	db, err := open(c)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = errors.New("is in use by another process")
	}
	return db, err
}

func open(c Config) (db *bbolt.DB, err error) {
	if err := verify(c); err != nil {
		return nil, err
	}
	err = Guard(func() (err error) {
		db, err = bbolt.Open(c.Path, 0o600, &c.Options)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = Guard(func() error { return db.View(c.checkFormat) })
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// verify says what is wrong with a file. bbolt maps a file into memory and follows the numbers in it wherever they lead:
// one that is cut short ends the process, and one that is damaged may read as one with less in it. So every page is read
// first by code that believes nothing.
func verify(c Config) error {
	info, err := os.Stat(c.Path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("is a directory")
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Size() == 0:
		return errors.New("is empty: no crash leaves such a file; remove it to begin with nothing")
	}
	options := c.Options
	options.ReadOnly = true // which keeps writers out
	db, err := bbolt.Open(c.Path, 0o600, &options)
	if errors.Is(err, bbolterrors.ErrTimeout) || errors.Is(err, os.ErrPermission) {
		return err
	}
	if err != nil {
		return fmt.Errorf("is not a %s file, or damaged: %w", c.Kind, err)
	}
	defer db.Close()
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	check := &checker{file: f, pageSize: int64(db.Info().PageSize)}
	return check.check(info.Size())
}

// The line that says of what format a file is.
func (c Config) formatPrefix() string { return "proxyfleet " + c.Kind + " " }

func (c Config) writeFormat(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket([]byte(Meta))
	if err != nil {
		return err
	}
	return meta.Put([]byte(KeyFormat), []byte(c.formatPrefix()+strconv.Itoa(c.Format)))
}

// checkFormat checks whose file it is. There has been one format of each kind so far; a file of an earlier one will be
// migrated here, after a copy was made.
func (c Config) checkFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte(Meta))
	if meta == nil {
		return errors.New("is a database of another program")
	}
	version, ours := strings.CutPrefix(string(meta.Get([]byte(KeyFormat))), c.formatPrefix())
	n, err := strconv.Atoi(version)
	switch {
	case !ours:
		return errors.New("is a database of another program")
	case err != nil || n < 1:
		return fmt.Errorf("is damaged: its format is %q", version)
	case n > c.Format:
		return fmt.Errorf("has format %d, and this release knows none above %d: run the release that wrote it, or a later one", n, c.Format)
	}
	return nil
}

// FaultError says that bbolt could not go on. Its locks are in an unknown state then: the database must not be used any more,
// not even to close it.
type FaultError struct{ cause any }

// Error says what bbolt met.
func (e *FaultError) Error() string { return fmt.Sprintf("the file is damaged: %v", e.cause) }

// Guard makes a [FaultError] of a panic, and of a fault in the memory that a file is mapped to, as when it was cut short under
// a running process.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &FaultError{p}
		}
	}()
	return f()
}
