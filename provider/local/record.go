package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// record is what a file holds: all of an instance that has to last.
type record struct {
	Version     int        `json:"version"`
	Name        string     `json:"name"`
	Fleet       string     `json:"fleet"`
	UID         string     `json:"uid"`
	Hash        string     `json:"hash"`
	Incarnation string     `json:"incarnation"`
	Address     netip.Addr `json:"address"`
	Port        int        `json:"port"`
	Created     time.Time  `json:"created"`
	Login       *login     `json:"login,omitempty"`
}

const (
	recordVersion = 1
	recordSuffix  = ".json"
	partSuffix    = ".part" // of a file that is being written
	lockName      = "lock"
	maxRecord     = 64 << 10
)

// instanceName is what an instance may be called, which is also safe as the name of a file.
var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (r record) marks() provider.Marks {
	return provider.Marks{Fleet: r.Fleet, UID: r.UID, Hash: r.Hash}
}

// records is the directory with one file for each instance.
type records struct{ dir string }

// prepare makes the directory, keeps others out of it, and clears away what a crash left half-written. No other process
// can do so until the lock that it returns is closed.
func (d records) prepare() (held *os.File, err error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(d.dir, 0o700); err != nil { //nolint:gosec // its owner could not enter a directory that is 0600
		return nil, err
	}
	if held, err = d.hold(); err != nil {
		return nil, err
	}
	if err := d.clear(); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// clear removes what a crash left half-written.
func (d records) clear() error {
	parts, err := filepath.Glob(filepath.Join(d.dir, "*"+partSuffix))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := os.Remove(part); err != nil {
			return err
		}
	}
	return nil
}

var errInUse = errors.New("is in use by another process")

// hold keeps the directory to this process until the file that it returns is closed.
func (d records) hold() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(d.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", d.dir, err), file.Close())
	}
	return file, nil
}

// load reads all files. One that it cannot read, or that is none of its own, is an error: an instance that is overlooked
// would be made a second time.
func (d records) load() ([]record, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []record
	var problems []error
	for _, entry := range entries {
		if entry.Name() == lockName || strings.HasSuffix(entry.Name(), partSuffix) {
			continue
		}
		path := filepath.Join(d.dir, entry.Name())
		r, err := readRecord(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, err))
		}
		all = append(all, r)
	}
	return all, errors.Join(problems...)
}

func readRecord(path string) (record, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return record{}, err
	}
	name, ok := strings.CutSuffix(filepath.Base(path), recordSuffix)
	if !ok || !info.Mode().IsRegular() {
		return record{}, errors.New("it is no file of this provider: move it away")
	}
	file, err := os.Open(path)
	if err != nil {
		return record{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return record{}, err
	}
	r, err := parseRecord(text)
	if err == nil && r.Name != name {
		err = fmt.Errorf("it holds an instance of another name, %q", r.Name)
	}
	return r, err
}

// parseRecord reads the text of a file and refuses what this version did not write.
func parseRecord(text []byte) (record, error) {
	if len(text) > maxRecord {
		return record{}, errors.New("it is too long for a file of this provider")
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return record{}, err
	}
	if version.Version > recordVersion {
		return record{}, fmt.Errorf("it has format version %d, and this program knows %d: it was written by a newer one", version.Version, recordVersion)
	}
	var r record
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return record{}, err
	}
	return r, r.validate()
}

func (r record) validate() error {
	switch {
	case r.Version != recordVersion:
		return fmt.Errorf("it has the unknown format version %d", r.Version)
	case !instanceName.MatchString(r.Name):
		return fmt.Errorf("it has the name %q", r.Name)
	case r.Incarnation == "" || r.Fleet == "" || r.UID == "":
		return errors.New("it lacks incarnation, fleet or uid")
	case !r.Address.IsValid() || r.Port < 1 || r.Port > 65535:
		return fmt.Errorf("it has the address %v and the port %d", r.Address, r.Port)
	case r.Login != nil && (r.Login.Iterations < 1 || len(r.Login.Hash) == 0):
		return errors.New("it has a login that lets nobody in")
	}
	return nil
}

// save writes a file so that it is there as a whole or not at all, whenever the power fails. After an error it is not.
func (d records) save(r record) error {
	if err := r.validate(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := d.path(r.Name)
	if err := writeSynced(path+partSuffix, append(text, '\n')); err != nil {
		return err
	}
	if err := os.Rename(path+partSuffix, path); err != nil {
		return err
	}
	if err := d.sync(); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// remove removes the file of an instance.
func (d records) remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return d.sync()
}

func (d records) path(name string) string { return filepath.Join(d.dir, name+recordSuffix) }

// sync makes what happened to the names in the directory last.
func (d records) sync() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
