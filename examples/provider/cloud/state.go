package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// state is what outlives the process of the cloud. Credentials are not in it.
type state struct {
	// LastID is the last id that was given away.
	LastID int64 `json:"lastID,string"`
	// Instances are all that ever were, by ascending id.
	Instances []*Instance `json:"instances"`
}

// load reads the file of an earlier cloud. A new cloud begins with an id from the clock, so that not even a cloud whose
// directory was lost gives an id away again.
func (s *state) load(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.LastID = time.Now().UnixMilli()
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// add gives the instance its id.
func (s *state) add(i *Instance) {
	s.LastID++
	i.ID = s.LastID
	s.Instances = append(s.Instances, i)
}

// find returns the instance that has a name at a moment, or nil.
func (s *state) find(zone, name string, t time.Time) *Instance {
	return s.last(func(i *Instance) bool { return i.Zone == zone && i.Name == name && i.exists(t) })
}

func (s *state) byID(id int64) *Instance {
	return s.last(func(i *Instance) bool { return i.ID == id })
}

// last returns the youngest instance that matches, or nil.
func (s *state) last(match func(*Instance) bool) *Instance {
	for _, i := range slices.Backward(s.Instances) {
		if match(i) {
			return i
		}
	}
	return nil
}

// count returns how many instances there are at a moment.
func (s *state) count(t time.Time) int {
	n := 0
	for _, i := range s.Instances {
		if i.exists(t) {
			n++
		}
	}
	return n
}

func (c *Cloud) statePath() string { return filepath.Join(c.config.Dir, "state.json") }

// save replaces the file at once. It does not sync it: the file is to survive the death of the process, not of the machine,
// which ends the instances as well.
func (c *Cloud) save() error {
	data, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	next := c.statePath() + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, c.statePath())
}

// lockDir keeps a second cloud out. The kernel releases the lock when the file is closed or the process dies.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another cloud: %w", dir, err), f.Close())
	}
	return f, nil
}
