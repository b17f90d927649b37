// Package smallfile reads the files that a command line names, such as tokens and certificates: whole, and without waiting
// for whoever may be at the other end of a pipe.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Limit is how large a file may be. It is far more than a bundle of all certificates of the Web takes.
const Limit = 4 << 20

// Read returns the content of a regular file, or of the one that a link leads to. Others are not opened: a pipe would block.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, refused(path, errors.New("is not a regular file"))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, Limit+1))
	if err == nil && len(content) > Limit {
		err = refused(path, fmt.Errorf("is larger than %d MiB", Limit>>20))
	}
	return content, err
}

func refused(path string, why error) error { return &fs.PathError{Op: "read", Path: path, Err: why} }
