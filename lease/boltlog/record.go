package boltlog

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// What a record is about opens its key.
const (
	aboutLease    = 'l'
	aboutSession  = 's'
	aboutCooldown = 'c'

	// longest is how long a key may be that holds the names themselves. A longer one holds their digest, for the pages of
	// the file bound what a key may be, and names are their users' affair.
	longest = 128
	digest  = '#' // closes the opening of such a key
)

// keyOf returns the key of a record.
func keyOf(r lease.Record) []byte {
	k := make([]byte, 0, 64)
	switch {
	case r.Lease != "":
		k = append(append(k, aboutLease, 0), r.Lease...)
	case r.Session != "":
		k = append(append(k, aboutSession, 0), r.Session...)
	default:
		k = binary.AppendUvarint(append(k, aboutCooldown, 0), uint64(len(r.Key)))
		k = append(append(k, r.Key...), r.Target...)
	}
	if len(k) <= longest {
		return k
	}
	sum := sha256.Sum256(k)
	return append([]byte{k[0], digest}, sum[:]...)
}

// A record is its fields that are not zero, each a tag and a value: a text with its length, a number, a moment as seconds
// and nanoseconds since 1970, or nothing where the tag says it all. Tags are never used for anything else again.
const (
	tagLease = 1 + iota
	tagSession
	tagKey
	tagIncarnation
	tagTarget
	tagExpires
	tagTTL
	tagPlace
	tagMoved
	tagEnded
	tagUntil
	tagWindow
	tagSteps
	tagTrial
	tagOpened
	tagChange
	tagBan
	tagRequest
	tagRequestID
	tagRequestSelector // an attribute and what it must be
	tagRequestTarget
	tagRequestTTL
	tagRequestWait
	tagRequestSession
	tagRequestCount
)

// fields returns the fields of a record by their tags, those of its request only if it has one.
func fields(r *lease.Record) []any {
	all := []any{
		tagLease: &r.Lease, tagSession: &r.Session, tagKey: &r.Key, tagIncarnation: &r.Incarnation, tagTarget: &r.Target,
		tagExpires: &r.Expires, tagTTL: &r.TTL, tagPlace: &r.Place, tagMoved: &r.Moved, tagEnded: &r.Ended,
		tagUntil: &r.Until, tagWindow: &r.Window, tagSteps: &r.Steps, tagTrial: &r.Trial, tagOpened: &r.Opened,
		tagChange: &r.Change, tagBan: &r.Bans, tagRequest: &r.Request, tagRequestCount: nil,
	}
	if q := r.Request; q != nil {
		all[tagRequestID], all[tagRequestSelector], all[tagRequestTarget] = &q.ID, &q.Selector, &q.Target
		all[tagRequestTTL], all[tagRequestWait] = &q.TTL, &q.Wait
		all[tagRequestSession], all[tagRequestCount] = &q.Session, &q.Count
	}
	return all
}

// encode appends a record that is not gone.
func encode(b []byte, r lease.Record) []byte {
	for tag, field := range fields(&r) {
		b = appendField(b, byte(tag), field)
	}
	return b
}

func appendField(b []byte, tag byte, field any) []byte {
	switch v := field.(type) {
	case *string:
		return appendText(b, tag, *v)
	case *time.Duration:
		return appendNumber(b, tag, int64(*v))
	case *int:
		return appendNumber(b, tag, int64(*v))
	case *time.Time:
		return appendMoment(b, tag, *v)
	case *bool:
		return appendFlag(b, tag, *v)
	case *[]string:
		for _, one := range *v {
			b = appendString(append(b, tag), one)
		}
	case *map[string]string:
		for _, k := range slices.Sorted(maps.Keys(*v)) {
			b = appendString(appendString(append(b, tag), k), (*v)[k])
		}
	case **lease.Request:
		return appendFlag(b, tag, *v != nil)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendText(b []byte, tag byte, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, tag), s)
}

func appendNumber(b []byte, tag byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendVarint(append(b, tag), n)
}

func appendFlag(b []byte, tag byte, v bool) []byte {
	if !v {
		return b
	}
	return append(b, tag)
}

func appendMoment(b []byte, tag byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return binary.AppendVarint(binary.AppendVarint(append(b, tag), t.Unix()), int64(t.Nanosecond()))
}

// decode reads what encode has written. A field that this release does not know is an error: the record says more than it
// would take from it.
func decode(b []byte) (r lease.Record, err error) {
	d := decoder{rest: b}
	all := fields(&r)
	for d.err == nil && len(d.rest) > 0 {
		tag := d.rest[0]
		d.rest = d.rest[1:]
		if int(tag) >= len(all) || all[tag] == nil {
			return r, fmt.Errorf("it has a field %d", tag)
		}
		d.field(all[tag])
		if tag == tagRequest {
			all = fields(&r)
		}
	}
	return r, d.err
}

type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) field(field any) {
	switch v := field.(type) {
	case *string:
		*v = d.text()
	case *time.Duration:
		*v = time.Duration(d.number())
	case *int:
		*v = int(d.number())
	case *time.Time:
		*v = d.moment()
	case *bool:
		*v = true
	case *[]string:
		*v = append(*v, d.text())
	case *map[string]string:
		if *v == nil {
			*v = map[string]string{}
		}
		k := d.text()
		(*v)[k] = d.text()
	case **lease.Request:
		*v = &lease.Request{}
	}
}

var errShort = errors.New("it is cut short")

func (d *decoder) number() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)-size) {
		d.fail()
		return ""
	}
	s := string(d.rest[size : size+int(n)])
	d.rest = d.rest[size+int(n):]
	return s
}

func (d *decoder) moment() time.Time {
	seconds := d.number()
	return time.Unix(seconds, d.number())
}

// fail ends the record.
func (d *decoder) fail() { d.err, d.rest = errShort, nil }
