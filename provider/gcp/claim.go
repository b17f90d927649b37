package gcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// claim keeps the project in the state directory. An ID has no project in it: in another one every instance would seem gone,
// and would run on unseen.
type claim struct {
	dir     string // "" keeps nothing
	project string
}

func (c claim) path() string { return filepath.Join(c.dir, "project") }

// check returns an error if instances were made in another project.
func (c claim) check() error {
	if c.dir == "" {
		return nil
	}
	was, err := os.ReadFile(c.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("state of the gcp provider: %w", err)
	}
	if kept := strings.TrimSpace(string(was)); kept != c.project {
		return fmt.Errorf("project: this provider has made instances in %q; give the one for %q another name, "+
			"or remove %s when nothing is left there", kept, c.project, c.path())
	}
	return nil
}

// make notes the project, before anything is made in it.
func (c claim) make() error {
	if c.dir == "" {
		return nil
	}
	if was, err := os.ReadFile(c.path()); err == nil && strings.TrimSpace(string(was)) == c.project {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	temporary := c.path() + ".new"
	if err := os.WriteFile(temporary, []byte(c.project+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, c.path())
}
