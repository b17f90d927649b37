package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/proxyfleet/fleet/proxy"
)

// Sources say where a set is read from.
type Sources struct {
	// Files hold YAML documents. A declaration may move from one to another.
	Files []string
	// SecretsDir holds Secrets as NAMESPACE/NAME/KEY, each NAME laid out as Kubernetes mounts a Secret. Whoever puts one
	// there means it for this fleet, so each bears both labels that make a Secret visible to it. Defaults to none.
	SecretsDir string
}

// file is one file as it was read.
type file struct {
	path string
	data []byte
	err  error
	// Of the directory of secrets only: what its path means.
	secret proxy.Key
	key    string
}

// digest tells contents apart.
type digest [sha256.Size]byte

// contents are what the sources hold at one moment, errors included.
type contents struct {
	files, secrets []file
	digest         digest
}

func (s Sources) read() contents {
	var c contents
	for _, path := range s.Files {
		data, err := readFile(path, maxFile)
		c.files = append(c.files, file{path: path, data: data, err: err})
	}
	if s.SecretsDir != "" {
		c.secrets = readSecrets(s.SecretsDir)
	}
	h := sha256.New()
	for _, f := range c.files {
		f.hash(h)
	}
	for _, f := range c.secrets {
		f.hash(h)
	}
	h.Sum(c.digest[:0])
	return c
}

// hash writes all that matters of a file, each part behind its length.
func (f *file) hash(h hash.Hash) {
	var problem string
	if f.err != nil {
		problem = f.err.Error()
	}
	for _, part := range [][]byte{[]byte(f.path), []byte(problem), f.data} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
}

// readFile reads a regular file of at most limit bytes. Others are not opened: a pipe would block.
func readFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, cannotRead(err)
	case info.IsDir():
		return nil, errors.New("is a directory: name the files in it")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Size() > int64(limit):
		return nil, tooLarge(limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, cannotRead(err)
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := b.ReadFrom(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, cannotRead(err)
	}
	if b.Len() > limit { // it grew meanwhile
		return nil, tooLarge(limit)
	}
	return b.Bytes(), nil
}

func tooLarge(limit int) error { return fmt.Errorf("is larger than %d MiB", limit>>20) }

// cannotRead leaves out the path, which its place has already.
func cannotRead(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("cannot be read: %w", err)
}
