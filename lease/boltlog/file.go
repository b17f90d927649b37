package boltlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/lease"
)

// format is the version of what the buckets hold.
const format = 1

// bucketRecords holds each record, by what it is about. All values but the format are sealed.
const (
	bucketRecords = "records"

	keyRecords = "records" // in the meta bucket: how many there are, for bbolt would not miss one that vanished
)

// file is the database, of which one goroutine at a time makes use.
type file struct {
	path   string
	db     *bbolt.DB
	update func(func(*bbolt.Tx) error) error
	held   int // records in it
}

func openFile(path string, timeout time.Duration) (*file, error) {
	db, err := boltfile.Open(boltfile.Config{
		Path:   path,
		Kind:   "lease",
		Format: format,
		Fill: func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte(bucketRecords))
			return errors.Join(err, putCount(tx, 0))
		},
		// After a peak there are many free pages, and of the two ways to keep their list only this one does not mind.
		Options: bbolt.Options{Timeout: timeout, FreelistType: bbolt.FreelistMapType},
	})
	if err != nil {
		return nil, err
	}
	f := &file{path: path, db: db, update: db.Update}
	err = boltfile.Guard(func() error {
		return db.View(func(tx *bbolt.Tx) (err error) {
			f.held, err = getCount(tx)
			return err
		})
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// load calls fn with each record.
func (f *file) load(fn func(lease.Record) error) error {
	return boltfile.Guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			records := tx.Bucket([]byte(bucketRecords))
			if records == nil {
				return errors.New("is damaged: it has no records")
			}
			n := 0
			err := records.ForEach(func(k, v []byte) error {
				n++
				r, err := parse(k, v)
				if err != nil {
					return fmt.Errorf("is damaged: record %x: %w", k, err)
				}
				return fn(r)
			})
			if err == nil && n != f.held {
				err = fmt.Errorf("is damaged: it should hold %d records and holds %d", f.held, n)
			}
			return err
		})
	})
}

func parse(k, v []byte) (lease.Record, error) {
	b, err := unseal(v)
	if err != nil {
		return lease.Record{}, err
	}
	r, err := decode(b)
	if err == nil && string(keyOf(r)) != string(k) {
		err = errors.New("it is of something else")
	}
	return r, err
}

// commit makes records durable in one transaction.
func (f *file) commit(records []lease.Record) error {
	held := f.held
	err := boltfile.Guard(func() error {
		return f.update(func(tx *bbolt.Tx) error {
			held = f.held
			var values []byte // of all of them; a value must stay as it is until the commit
			for _, r := range records {
				change, err := put(tx.Bucket([]byte(bucketRecords)), r, &values)
				if err != nil {
					return err
				}
				held += change
			}
			return putCount(tx, held)
		})
	})
	if err == nil {
		f.held = held
	}
	return err
}

// put changes what is remembered of one thing, and returns how many more there are then.
func put(b *bbolt.Bucket, r lease.Record, values *[]byte) (change int, err error) {
	k := keyOf(r)
	known := b.Get(k) != nil
	switch {
	case !r.Gone:
		from := len(*values)
		*values = encode(reserve(*values), r)
		seal((*values)[from:])
		if !known {
			change = 1
		}
		return change, b.Put(k, (*values)[from:len(*values):len(*values)])
	case known:
		return -1, b.Delete(k)
	}
	return 0, nil
}

func putCount(tx *bbolt.Tx, n int) error {
	v := binary.AppendUvarint(reserve(nil), uint64(n))
	seal(v)
	return tx.Bucket([]byte(boltfile.Meta)).Put([]byte(keyRecords), v)
}

func getCount(tx *bbolt.Tx) (int, error) {
	b, err := unseal(tx.Bucket([]byte(boltfile.Meta)).Get([]byte(keyRecords)))
	if err != nil {
		return 0, fmt.Errorf("is damaged: number of records: %w", err)
	}
	n, _ := binary.Uvarint(b)
	return int(n), nil
}

// A sealed value begins with a checksum of the rest.
const sealSize = 4

// reserve appends the place of a seal.
func reserve(b []byte) []byte { return append(b, make([]byte, sealSize)...) }

// seal fills it in.
func seal(v []byte) { binary.BigEndian.PutUint32(v, checksum(v[sealSize:])) }

// unseal takes it off again.
func unseal(v []byte) ([]byte, error) {
	if len(v) < sealSize || binary.BigEndian.Uint32(v) != checksum(v[sealSize:]) {
		return nil, errors.New("its checksum is wrong")
	}
	return v[sealSize:], nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
