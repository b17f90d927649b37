package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

const bucketThings = "things"

func config(path string) Config {
	return Config{Path: path, Kind: "test", Format: 1, Options: bbolt.Options{Timeout: time.Second}, Fill: func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte(bucketThings))
		return err
	}}
}

// filled makes a file in which there is something of every kind.
func filled(t *testing.T) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.db")
	db, err := Open(config(path))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 90 {
		size := 30 * (i % 45)
		if i%45 < 3 {
			size = 18_000 // more than a page
		}
		err = errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketThings)).Put(fmt.Appendf(nil, "thing-%02d", i%45), bytes.Repeat([]byte("#"), size))
		}))
	}
	for i := range 5 {
		err = errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketThings)).Delete(fmt.Appendf(nil, "thing-%02d", 40+i))
		}))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// refuses fails unless a file with this content is refused with an error that says so.
func refuses(t *testing.T, path string, content []byte, says ...string) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(config(path))
	wantError(t, err, says...)
}

func wantError(t *testing.T, err error, says ...string) {
	t.Helper()
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v, want one that says %q", err, s)
		}
	}
}

// layout says where in a file the pages of each kind are that are in use.
type layout struct {
	size               int64 // of what is in use
	root, branch, free int   // the page of the buckets, the root of the things, and the list of free pages
}

func layoutOf(t *testing.T, path string) (l layout) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin(true) // only a writer knows which pages are free
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	l.size = tx.Size()
	l.branch = int(tx.Bucket([]byte(bucketThings)).Root()) * os.Getpagesize()
	for id := 2; ; id++ {
		p, err := tx.Page(id)
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return l
		}
		switch {
		case p.Type == "freelist":
			l.free = id * os.Getpagesize()
		case p.Type == "leaf" && p.Count == 2:
			l.root = id * os.Getpagesize()
		}
	}
}

// Each thing that bbolt would believe is looked at.
func TestDamageByKind(t *testing.T) {
	made, content := filled(t)
	const (
		flags, count, overflow = 8, 10, 12
		first, second          = headerSize, headerSize + elementSize
	)
	l := layoutOf(t, made)
	leaf := int(u64(content[l.branch+headerSize+int(u16(content[l.branch+count:]))/2*elementSize+8:])) * os.Getpagesize()
	last := headerSize + (int(u16(content[leaf+count:]))-1)*elementSize
	key := func(element int) int { return element + int(u32(content[leaf+element+4:])) } // within a leaf
	put16 := binary.NativeEndian.PutUint16
	put32 := binary.NativeEndian.PutUint32
	put64 := binary.NativeEndian.PutUint64
	path := filepath.Join(t.TempDir(), "damaged.db")
	for _, c := range []struct {
		name   string
		at     int
		damage func(b []byte)
		says   string
	}{
		{"a leaf calls itself another page", leaf, func(b []byte) { b[0]++ }, "wrong header"},
		{"a leaf flows over the end", leaf + overflow, func(b []byte) { put32(b, 1<<31) }, "wrong header"},
		{"a leaf flows over into others", l.root + overflow, func(b []byte) { put32(b, 1) }, "used twice"},
		{"a leaf is of no kind", leaf + flags, func(b []byte) { put16(b, 0x40) }, "no known kind"},
		{"a leaf is a meta page", leaf + flags, func(b []byte) { put16(b, 0x04) }, "no known kind"},
		{"a leaf has more elements than fit", leaf + count, func(b []byte) { put16(b, 60000) }, "too many elements"},
		{"a key is outside its page", leaf + first + 4, func(b []byte) { put32(b, 1<<31) }, "not in it"},
		{"a key is among the elements", leaf + first + 4, func(b []byte) { put32(b, 0) }, "not in it"},
		{"a key is longer than its page", leaf + first + 8, func(b []byte) { put32(b, 1<<32-1) }, "not in it"},
		{"a value is longer than its page", leaf + first + 12, func(b []byte) { put32(b, 1<<32-1) }, "not in it"},
		{"an element is of no kind", leaf + first, func(b []byte) { put32(b, 2) }, "no known kind"},
		{"a thing is a bucket", leaf + first, func(b []byte) { put32(b, 1) }, "out of range"},
		{"a key is below the one before", leaf + key(second), func(b []byte) { b[0] = 0 }, "out of order"},
		{"a key is below what leads to it", leaf + key(first), func(b []byte) { b[0] = 0 }, "out of order"},
		{"a key is above the next page", leaf + key(last), func(b []byte) { b[0] = 0xff }, "out of order"},
		{"a branch leads nowhere", l.branch + count, func(b []byte) { put16(b, 0) }, "leads nowhere"},
		{"a branch leads out of the file", l.branch + first + 8, func(b []byte) { put64(b, 1<<40) }, "out of range"},
		{"a branch leads to a meta page", l.branch + first + 8, func(b []byte) { put64(b, 1) }, "out of range"},
		{"a branch leads to itself", l.branch + first + 8, func(b []byte) { put64(b, uint64(l.branch/os.Getpagesize())) }, "used twice"},
		{"a branch lost a child", l.branch + count, func(b []byte) { put16(b, u16(b)-1) }, "neither used nor free"},
		{"the list of free pages is none", l.free + flags, func(b []byte) { put16(b, flagLeaf) }, "no known kind"},
		{"it is longer than its page", l.free + count, func(b []byte) { put16(b, 60000) }, "more pages than it holds"},
		{"it is far longer than its page", l.free + count, func(b []byte) { put16(b, longCount); put64(b[6:], 1<<62) }, "more pages than it holds"},
		{"it lost a page", l.free + count, func(b []byte) { put16(b, u16(b)-1) }, "neither used nor free"},
		{"it has a page twice", l.free + headerSize, func(b []byte) { copy(b, b[8:16]) }, "used twice"},
		{"it has a page that is used", l.free + headerSize, func(b []byte) { put64(b, uint64(leaf/os.Getpagesize())) }, "used twice"},
		{"it has a page outside the file", l.free + headerSize, func(b []byte) { put64(b, 1<<40) }, "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged := append([]byte(nil), content...)
			c.damage(damaged[c.at:])
			refuses(t, path, damaged, "is damaged: page", c.says)
		})
	}
}

// A file without a list of free pages is one of another program: bbolt would look for them where nothing is checked.
func TestNoFreelist(t *testing.T) {
	path, _ := filled(t)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketThings)).Put([]byte("a"), []byte("b")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(config(path))
	wantError(t, err, "no list of free pages")
}

// Beyond 65,534 free pages their list counts in another way, which no file of a usual size reaches.
func TestManyFreePages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1024, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	const values, size = 70, 1 << 20
	fill := func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := 0; i < values && err == nil; i++ {
			err = b.Put([]byte{byte(i)}, make([]byte, size))
		}
		return err
	}
	empty := func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("b")) }
	if err := errors.Join(db.Update(fill), db.Update(empty), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := verify(config(path)); err != nil {
		t.Errorf("a sound file is refused: %v", err)
	}
	_, err = Open(config(path))
	wantError(t, err, "another program")
}
