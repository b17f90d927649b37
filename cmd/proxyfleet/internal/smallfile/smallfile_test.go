package smallfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/smallfile"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, size := range map[string]int{"empty": 0, "full": smallfile.Limit, "large": smallfile.Limit + 1} {
		if err := os.WriteFile(at(name), []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("full", at("link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		size int
		want string // part of the error, or "" for none
	}{
		{"empty", 0, ""},
		{"full", smallfile.Limit, ""},
		{"link", smallfile.Limit, ""},
		{"large", 0, at("large") + ": is larger than 4 MiB"},
		{".", 0, at(".") + ": is not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			content, err := smallfile.Read(at(c.name))
			if c.want == "" && (err != nil || len(content) != c.size) {
				t.Errorf("got %d bytes and %v, want %d", len(content), err, c.size)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := smallfile.Read(at("missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
