//go:build unix && !aix && !solaris

package local

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps a file to this process until it is closed, or returns an error that says that another one has it.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	}
	return err
}
