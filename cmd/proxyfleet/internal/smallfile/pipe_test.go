//go:build unix

package smallfile_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/smallfile"
)

// Whoever opens a pipe that nobody writes to waits for ever.
func TestPipeIsNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := smallfile.Read(pipe); err == nil || !strings.Contains(err.Error(), pipe+": is not a regular file") {
		t.Errorf("got %v", err)
	}
}
