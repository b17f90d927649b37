package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nothingLeft makes sure that a cluster has left nothing but what is about to end.
func nothingLeft(t *testing.T, s *slot) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(50 * time.Millisecond) {
		left := leftovers(t, s)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left: %q", left)
			return
		}
	}
}

// leftovers finds what there still is of a cluster besides files: processes, mounts, network, control groups.
func leftovers(t *testing.T, s *slot) []string {
	t.Helper()
	var left []string
	node := fmt.Sprintf("pfnode%d", s.number)
	find := func(pattern string) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, paths...)
	}
	find("/sys/class/net/" + node)
	find("/sys/fs/cgroup/" + node)
	find("/sys/fs/cgroup/*/" + node)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.dir+"/") {
			left = append(left, line)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		command, _ := os.ReadFile(path) // it may have ended
		if bytes.Contains(command, []byte(s.dir+"/")) || bytes.Contains(command, []byte(s.dir+"\x00")) {
			left = append(left, string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return left
}
