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

// encode appends a record that is not gone.
func encode(b []byte, r lease.Record) []byte {
	b = appendText(b, tagLease, r.Lease)
	b = appendText(b, tagSession, r.Session)
	b = appendText(b, tagKey, r.Key)
	b = appendText(b, tagIncarnation, r.Incarnation)
	b = appendText(b, tagTarget, r.Target)
	b = appendMoment(b, tagExpires, r.Expires)
	b = appendNumber(b, tagTTL, int64(r.TTL))
	b = appendNumber(b, tagPlace, int64(r.Place))
	b = appendFlag(b, tagMoved, r.Moved)
	b = appendMoment(b, tagEnded, r.Ended)
	b = appendMoment(b, tagUntil, r.Until)
	b = appendNumber(b, tagWindow, int64(r.Window))
	b = appendNumber(b, tagSteps, int64(r.Steps))
	b = appendText(b, tagTrial, r.Trial)
	b = appendFlag(b, tagOpened, r.Opened)
	b = appendMoment(b, tagChange, r.Change)
	for _, ban := range r.Bans {
		b = appendText(b, tagBan, ban)
	}
	if r.Request == nil {
		return b
	}
	return encodeRequest(append(b, tagRequest), r.Request)
}

func encodeRequest(b []byte, q *lease.Request) []byte {
	b = appendText(b, tagRequestID, q.ID)
	for _, k := range slices.Sorted(maps.Keys(q.Selector)) {
		b = appendString(appendString(append(b, tagRequestSelector), k), q.Selector[k])
	}
	b = appendText(b, tagRequestTarget, q.Target)
	b = appendNumber(b, tagRequestTTL, int64(q.TTL))
	b = appendNumber(b, tagRequestWait, int64(q.Wait))
	b = appendText(b, tagRequestSession, q.Session)
	return appendNumber(b, tagRequestCount, int64(q.Count))
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
	for d.err == nil && len(d.rest) > 0 {
		d.field(&r)
	}
	return r, d.err
}

type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) field(r *lease.Record) {
	tag := d.rest[0]
	d.rest = d.rest[1:]
	switch tag {
	case tagLease:
		r.Lease = d.text()
	case tagSession:
		r.Session = d.text()
	case tagKey:
		r.Key = d.text()
	case tagIncarnation:
		r.Incarnation = d.text()
	case tagTarget:
		r.Target = d.text()
	case tagExpires:
		r.Expires = d.moment()
	case tagTTL:
		r.TTL = time.Duration(d.number())
	case tagPlace:
		r.Place = int(d.number())
	case tagMoved:
		r.Moved = true
	case tagEnded:
		r.Ended = d.moment()
	case tagUntil:
		r.Until = d.moment()
	case tagWindow:
		r.Window = time.Duration(d.number())
	case tagSteps:
		r.Steps = int(d.number())
	case tagTrial:
		r.Trial = d.text()
	case tagOpened:
		r.Opened = true
	case tagChange:
		r.Change = d.moment()
	case tagBan:
		r.Bans = append(r.Bans, d.text())
	case tagRequest:
		r.Request = &lease.Request{}
	default:
		d.requestField(tag, r.Request)
	}
}

func (d *decoder) requestField(tag byte, q *lease.Request) {
	if q == nil {
		d.err = fmt.Errorf("it has a field %d", tag)
		return
	}
	switch tag {
	case tagRequestID:
		q.ID = d.text()
	case tagRequestSelector:
		if q.Selector == nil {
			q.Selector = map[string]string{}
		}
		k := d.text()
		q.Selector[k] = d.text()
	case tagRequestTarget:
		q.Target = d.text()
	case tagRequestTTL:
		q.TTL = time.Duration(d.number())
	case tagRequestWait:
		q.Wait = time.Duration(d.number())
	case tagRequestSession:
		q.Session = d.text()
	case tagRequestCount:
		q.Count = int(d.number())
	default:
		d.err = fmt.Errorf("it has a field %d", tag)
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
