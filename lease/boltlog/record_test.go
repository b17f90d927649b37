package boltlog

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

func at(seconds, nanoseconds int64) time.Time { return time.Unix(seconds, nanoseconds) }

// examples have every field of a record between them, and names that are no text.
func examples() []lease.Record {
	return []lease.Record{
		{Lease: "L1", Key: "default/a", Incarnation: "i-1", Target: "shop\xff", Expires: at(1e9, 1), TTL: time.Minute, Place: 1, Moved: true,
			Request: &lease.Request{ID: "r-1", Selector: map[string]string{"region": "eu", "": ""}, Target: "shop\xff", TTL: time.Minute,
				Wait: time.Second, Session: "s", Count: 2}},
		{Lease: "L2", Key: "default/a", Expires: at(-1, 999), TTL: 1, Request: &lease.Request{}},
		{Lease: "L3", Key: "default/b", Ended: at(1<<40, 0)},
		{Session: "s", Key: "default/a", Incarnation: "i-1", Until: at(1e9, 2)},
		{Key: "default/a", Incarnation: "i-1", Target: "shop", Until: at(1e9, 3), Window: time.Hour, Steps: 3, Trial: "L1", Opened: true,
			Change: at(1e9, 4), Bans: []string{"L1", "L2"}},
		{Key: "default/a"},
	}
}

func TestRecords(t *testing.T) {
	set := map[string]bool{}
	for _, want := range examples() {
		got, err := decode(encode(nil, want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a record changes in the file (-written +read):\n%s", diff)
		}
		noteFields(set, "", reflect.ValueOf(want))
	}
	all := map[string]bool{}
	noteTypes(all, "", reflect.TypeFor[lease.Record]())
	delete(all, "Gone") // such a record is not written
	if diff := cmp.Diff(all, set); diff != "" {
		t.Errorf("fields of a record that nobody tried (-has +tried):\n%s", diff)
	}
}

// noteFields notes the names of the fields that are set.
func noteFields(set map[string]bool, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), prefix+v.Type().Field(i).Name
		if !f.IsZero() {
			set[name] = true
		}
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			noteFields(set, name+".", f.Elem())
		}
	}
}

// noteTypes notes the names of all fields.
func noteTypes(all map[string]bool, prefix string, t reflect.Type) {
	for f := range t.Fields() {
		all[prefix+f.Name] = true
		if f.Type.Kind() == reflect.Pointer {
			noteTypes(all, prefix+f.Name+".", f.Type.Elem())
		}
	}
}

// TestFormat: format 1 is what it was, whatever becomes of the types in memory.
func TestFormat(t *testing.T) {
	want := []string{
		"6c004c31 01024c31030964656661756c742f610403692d31050573686f70ff0680a8d6b907020780e0ba84bf03080209121303722d31140000" +
			"1406726567696f6e026575150573686f70ff1680e0ba84bf031780a8d6b9071801731904",
		"6c004c32 01024c32030964656661756c742f610601ce0f070212",
		"6c004c33 01024c33030964656661756c742f620a80808080804000",
		"730073 020173030964656661756c742f610403692d310b80a8d6b90704",
		"63000964656661756c742f6173686f70 030964656661756c742f610403692d31050473686f700b80a8d6b907060c8080c58bc6d1010d060e024c310f" +
			"1080a8d6b9070811024c3111024c32",
		"63000964656661756c742f61 030964656661756c742f61",
	}
	for i, r := range examples() {
		if diff := cmp.Diff(want[i], fmt.Sprintf("%x %x", keyOf(r), encode(nil, r))); diff != "" {
			t.Errorf("record %d in the file (-format 1 +now):\n%s", i, diff)
		}
	}
}

func TestDamagedRecords(t *testing.T) {
	for _, r := range examples() {
		whole := encode(nil, r)
		for n := range whole {
			_, _ = decode(whole[:n]) // which may be a shorter record
		}
		if _, err := decode(append(whole, 200)); err == nil || !strings.Contains(err.Error(), "field 200") {
			t.Errorf("a field of a later release: %v", err)
		}
	}
	if _, err := decode([]byte{tagRequestID, 1, 'x'}); err == nil {
		t.Error("a request's field without a request is taken")
	}
	if _, err := decode([]byte{tagLease, 255, 255, 255, 255, 255, 255, 255, 255, 127, 'x'}); err == nil {
		t.Error("a text that is longer than everything is taken")
	}
}

// TestKeys: things have different keys, however their names are cut up, and a key of bbolt.
func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	records := []lease.Record{
		{Lease: "a"}, {Session: "a"}, {Key: "a"}, {Lease: long}, {Session: long}, {Key: long}, {Lease: long + "y"},
		{Key: "ab", Target: "c"}, {Key: "a", Target: "bc"}, {Key: "abc"}, {Key: long, Target: "c"}, {Key: long + "c"},
	}
	seen := map[string]string{}
	for i, r := range records {
		k := string(keyOf(r))
		if other, ok := seen[k]; ok {
			t.Errorf("record %d has the key of %s", i, other)
		}
		seen[k] = fmt.Sprintf("record %d", i)
		if len(k) > 1000 {
			t.Errorf("the key of record %d has %d bytes", i, len(k))
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range examples() {
		f.Add(encode(nil, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		again, err := decode(encode(nil, r))
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Errorf("%v, %s", err, diff)
		}
	})
}
