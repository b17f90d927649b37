package cloud

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A pid that was given to somebody else must never be taken for an instance.
func TestAPidThatIsUsedAgainIsLeftAlone(t *testing.T) {
	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		if err := <-ended; err == nil {
			t.Error("the stranger ended by itself, so nothing was shown")
		}
	})

	handle, err := os.FindProcess(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	once := &process{Process: handle, conf: filepath.Join(t.TempDir(), "17.conf")}
	if once.alive() {
		t.Error("a process with another command line passes for the instance")
	}
	once.kill()
	if line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(stranger.Process.Pid), "cmdline")); err != nil || len(line) == 0 {
		t.Errorf("the stranger was killed: %q, %v", line, err)
	}
}

func TestConfOf(t *testing.T) {
	tests := map[string]string{
		"/usr/bin/tinyproxy\x00-d\x00-c\x00/tmp/17.conf\x00": "/tmp/17.conf",
		"tinyproxy\x00-d\x00-c\x00/tmp/a b/17.conf\x00":      "/tmp/a b/17.conf",
		"tinyproxy\x00-c\x00/tmp/17.conf\x00":                "",
		"tail\x00-f\x00-c\x00/tmp/17.conf\x00":               "",
		"":                                                   "",
		"\x00\x00\x00\x00":                                   "",
	}
	for line, want := range tests {
		if got := confOf([]byte(line)); got != want {
			t.Errorf("of %q it is %q, want %q", line, got, want)
		}
	}
}
