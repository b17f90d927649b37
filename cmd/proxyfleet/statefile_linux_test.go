package main

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
)

// commits returns how often a state file was written: the number of its last transaction, which stands in the younger of its
// two meta pages. One that is being written does not count yet.
func commits(path string) (last uint64) {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	for _, page := range []int64{0, int64(os.Getpagesize())} {
		meta := make([]byte, 72) // behind a header of 16 bytes: the magic number, and at 64 the transaction
		if _, err := file.ReadAt(meta, page); err == nil && binary.LittleEndian.Uint32(meta[16:]) == 0xED0CDAED {
			last = max(last, binary.LittleEndian.Uint64(meta[64:]))
		}
	}
	return last
}

// killAtWrite kills the fleet that writes a state file at its n-th write from now on: while that is going on, or when it has
// just been done, if the kill is quick enough. What came of it is for commits to say. It closes sprung; stop gives up.
func killAtWrite(t *testing.T, path string, n uint64, done bool, kill func(), sprung chan struct{}) (stop func()) {
	t.Helper()
	wanted := commits(path) + n
	if !done {
		wanted--
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(os.NewSyscallError("inotify_init1", err))
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_MODIFY); err != nil {
		t.Fatal(os.NewSyscallError("inotify_add_watch", err))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		some := make([]byte, 4096)
		for {
			if _, err := events.Read(some); err != nil {
				if !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
				return
			}
			if commits(path) >= wanted {
				kill()
				close(sprung)
				return
			}
		}
	}()
	return func() {
		events.Close()
		<-ended
	}
}
