package bolt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/proxy"
)

// format is the version of what the buckets hold.
const format = 1

// bucketMeta holds the format and the keys below; bucketProxies each record, by namespace/name. All values but the format are
// sealed.
const (
	bucketMeta    = boltfile.Meta
	bucketProxies = "proxies"

	keyFleet   = "fleet"
	keyRecords = "records" // how many there are: bbolt has no checksums from which one that vanished would be missed
)

// journal writes each change of a record in a transaction of its own.
type journal struct {
	update, view func(func(*bbolt.Tx) error) error
	close        func() error

	mu sync.Mutex
	// failed is why nothing is written any more.
	failed error
	ended  chan struct{} // closed when failed is set
}

var _ proxy.Journal = (*journal)(nil)

// Save keeps a record.
func (j *journal) Save(r proxy.Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	key := []byte(r.Key.String())
	return j.write(func(tx *bbolt.Tx) error {
		proxies := tx.Bucket([]byte(bucketProxies))
		if proxies.Get(key) == nil {
			if err := count(tx, +1); err != nil {
				return err
			}
		}
		return proxies.Put(key, seal(b))
	})
}

// Remove forgets a record.
func (j *journal) Remove(k proxy.Key) error {
	key := []byte(k.String())
	return j.write(func(tx *bbolt.Tx) error {
		proxies := tx.Bucket([]byte(bucketProxies))
		if proxies.Get(key) == nil {
			return nil
		}
		if err := count(tx, -1); err != nil {
			return err
		}
		return proxies.Delete(key)
	})
}

// write makes a transaction. One that fails is as if it had never been, so that a full disk is survived. The exceptions
// end all writing, because more of it would destroy the file: a fault in bbolt, and a last sync that failed, after which
// bbolt goes on from a state that it takes for lost.
func (j *journal) write(do func(*bbolt.Tx) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	var id int
	err := boltfile.Guard(func() error {
		return j.update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return do(tx)
		})
	})
	if err == nil {
		return nil
	}
	if _, fault := errors.AsType[*boltfile.FaultError](err); fault || j.reached(id) {
		j.failed = fmt.Errorf("the state file takes no more writes until it is opened again: %w", err)
		close(j.ended)
		return j.failed
	}
	return err
}

// failure returns why nothing is written any more, or nil.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// reached says whether the file is in the state that a transaction made, or could not say.
func (j *journal) reached(id int) bool {
	last := 0
	err := boltfile.Guard(func() error {
		return j.view(func(tx *bbolt.Tx) error {
			last = tx.ID()
			return nil
		})
	})
	return id > 0 && (err != nil || last >= id)
}

// shut closes the file. A fault has left bbolt's locks in an unknown state, and then only the process's end is sure to
// let go of it.
func (j *journal) shut() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, fault := errors.AsType[*boltfile.FaultError](j.failed); fault {
		return j.failed
	}
	return j.close()
}

// count changes the number of records.
func count(tx *bbolt.Tx, by int) error {
	n, err := records(tx)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyRecords), seal([]byte(strconv.Itoa(n+by))))
}

// records returns how many records there should be.
func records(tx *bbolt.Tx) (int, error) {
	b, err := unseal(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyRecords)))
	if err != nil {
		return 0, fmt.Errorf("is damaged: number of records: %w", err)
	}
	return strconv.Atoi(string(b))
}

// writeHeader fills a new file.
func writeHeader(tx *bbolt.Tx, fleet string) error {
	if _, err := tx.CreateBucket([]byte(bucketProxies)); err != nil {
		return err
	}
	meta := tx.Bucket([]byte(bucketMeta))
	return errors.Join(
		meta.Put([]byte(keyFleet), seal([]byte(fleet))),
		meta.Put([]byte(keyRecords), seal([]byte("0"))))
}

// readHeader returns whose file it is.
func readHeader(tx *bbolt.Tx) (fleet string, err error) {
	b, err := unseal(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyFleet)))
	if err != nil {
		return "", fmt.Errorf("is damaged: identity of the fleet: %w", err)
	}
	return string(b), nil
}

// readRecords returns all records, or an error that names the one that cannot be read.
func readRecords(tx *bbolt.Tx) (all []proxy.Record, err error) {
	proxies := tx.Bucket([]byte(bucketProxies))
	if proxies == nil {
		return nil, errors.New("is damaged: it has no records")
	}
	err = proxies.ForEach(func(k, v []byte) error {
		r, err := decode(k, v)
		if err != nil {
			return fmt.Errorf("record %s cannot be read: %w", k, err)
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	want, err := records(tx)
	if err == nil && want != len(all) {
		err = fmt.Errorf("is damaged: it should hold %d records and holds %d", want, len(all))
	}
	return all, err
}

// decode reads a record. A field that this release does not know is an error, because the next write would lose it.
func decode(k, v []byte) (r proxy.Record, err error) {
	b, err := unseal(v)
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if r.Key.String() != string(k) {
		return r, fmt.Errorf("it is the record of %v", r.Key)
	}
	return r, nil
}

// seal puts a checksum before a value.
func seal(b []byte) []byte { return fmt.Appendf(nil, "%08x %s", checksum(b), b) }

// unseal takes it off again.
func unseal(v []byte) ([]byte, error) {
	sum, b, ok := bytes.Cut(v, []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", checksum(b)) {
		return nil, errors.New("its checksum is wrong")
	}
	return b, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
