package boltlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

func openTest(t testing.TB, path string) *Log {
	t.Helper()
	l, err := Open(Config{Path: path, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "fleet.leases.db") }

// kept returns what a log remembers, by key.
func kept(t testing.TB, l *Log) map[string]lease.Record {
	t.Helper()
	all := map[string]lease.Record{}
	err := l.Load(func(r lease.Record) error {
		k := string(keyOf(r))
		if _, ok := all[k]; ok {
			t.Errorf("%x is remembered twice", k)
		}
		all[k] = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// reopened closes a log and returns what the next one remembers.
func reopened(t testing.TB, l *Log, path string) map[string]lease.Record {
	t.Helper()
	closed(t, l)
	next := openTest(t, path)
	defer closed(t, next)
	return kept(t, next)
}

func closed(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func keyed(records ...lease.Record) map[string]lease.Record {
	all := map[string]lease.Record{}
	for _, r := range records {
		all[string(keyOf(r))] = r
	}
	return all
}

func synced(t testing.TB, l *Log, n uint64) {
	t.Helper()
	if err := l.Sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func TestConfig(t *testing.T) {
	_, err := Open(Config{Timeout: -1})
	wantError(t, err, "Path is", "Timeout must")
}

func TestRemembers(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	if got := kept(t, l); len(got) != 0 {
		t.Fatalf("a new log remembers %v", got)
	}
	all := examples()
	if n := l.Append(all[:2]...); n != 2 {
		t.Errorf("the second record has number %d", n)
	}
	if n := l.Append(all[2:]...); n != uint64(len(all)) {
		t.Errorf("the last record has number %d, want %d", n, len(all))
	}
	synced(t, l, uint64(len(all)))
	if diff := cmp.Diff(keyed(all...), reopened(t, l, path)); diff != "" {
		t.Errorf("what is remembered (-appended +read):\n%s", diff)
	}

	// A record replaces the one of the same thing, and what is gone is not remembered, though it never was.
	l = openTest(t, path)
	ended := lease.Record{Lease: "L1", Key: "default/a", Ended: at(5, 5)}
	gone := []lease.Record{{Lease: "L2", Gone: true}, {Session: "s", Gone: true}, {Key: "default/a", Target: "shop", Gone: true},
		{Lease: "nobody", Gone: true}, {Key: "default/a", Target: "nothing", Gone: true}}
	l.Append(append(gone, ended)...)
	if diff := cmp.Diff(keyed(ended, all[2], all[5]), reopened(t, l, path)); diff != "" {
		t.Errorf("what is remembered (-wanted +read):\n%s", diff)
	}
}

// TestOneBatch: what is said of one thing in one write ends with the last word.
func TestOneBatch(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	r := lease.Record{Lease: "a", Key: "k"}
	l.Append(r, lease.Record{Lease: "a", Gone: true}, lease.Record{Lease: "b", Gone: true}, lease.Record{Lease: "b", Key: "k"})
	if diff := cmp.Diff(keyed(lease.Record{Lease: "b", Key: "k"}), reopened(t, l, path)); diff != "" {
		t.Errorf("what is remembered (-wanted +read):\n%s", diff)
	}
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	l := openTest(t, newPath(t))
	synced(t, l, l.Append(examples()...))
	enough, n := errors.New("enough"), 0
	err := l.Load(func(lease.Record) error {
		n++
		return enough
	})
	if n != 1 || !errors.Is(err, enough) {
		t.Errorf("%d calls, %v", n, err)
	}
}

// slow has a log's writes wait. Each waits for one value on the channel that it returns, and fails if that is an error.
func slow(path string) (*Log, chan error, error) {
	f, err := openFile(path, time.Second)
	if err != nil {
		return nil, nil, err
	}
	turn, update := make(chan error), f.update
	f.update = func(do func(*bbolt.Tx) error) error {
		if err := <-turn; err != nil {
			return err
		}
		return update(do)
	}
	return newLog(f), turn, nil
}

// waits starts a Sync and returns where its result will be.
func waits(ctx context.Context, l *Log, n uint64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Sync(ctx, n) }()
	return done
}

// pending fails if a Sync has a result.
func pending(t *testing.T, all ...<-chan error) {
	t.Helper()
	synctest.Wait()
	for i, s := range all {
		select {
		case err := <-s:
			t.Fatalf("sync %d does not wait: %v", i, err)
		default:
		}
	}
}

// TestGroups: one write is under way at a time, all that is appended meanwhile shares the next one, and whoever waits does so
// for the write that covers their record and for no other.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, turn, err := slow(newPath(t))
		if err != nil {
			t.Fatal(err)
		}
		l.Append(lease.Record{Lease: "1", Key: "k"})
		synctest.Wait() // it is being written
		first, again := waits(t.Context(), l, 1), waits(t.Context(), l, 1)
		for n := 2; n <= 20; n++ {
			l.Append(lease.Record{Lease: fmt.Sprint(n), Key: "k"})
		}
		second, third := waits(t.Context(), l, 2), waits(t.Context(), l, 20)
		pending(t, first, again, second, third)
		turn <- nil
		if err := errors.Join(<-first, <-again); err != nil {
			t.Error(err)
		}
		pending(t, second, third)
		if err := l.Sync(t.Context(), 1); err != nil {
			t.Errorf("what is durable is waited for: %v", err)
		}
		turn <- nil
		if err := errors.Join(<-second, <-third); err != nil {
			t.Error(err)
		}
		closed(t, l) // without another write
	})
}

// TestCallerGoes: a caller waits no longer than its context, and the others go on waiting.
func TestCallerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, turn, err := slow(newPath(t))
		if err != nil {
			t.Fatal(err)
		}
		n := l.Append(lease.Record{Lease: "1", Key: "k"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		impatient, patient := waits(ctx, l, n), waits(t.Context(), l, n)
		pending(t, impatient, patient)
		begun := time.Now()
		if err := <-impatient; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		pending(t, patient)
		turn <- nil
		if err := <-patient; err != nil {
			t.Error(err)
		}
		closed(t, l)
	})
}

// TestFailedWrite: a write that fails ends the log. What was confirmed before is, nothing later ever will be.
func TestFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		l, turn, err := slow(path)
		if err != nil {
			t.Fatal(err)
		}
		l.Append(lease.Record{Lease: "1", Key: "k"})
		turn <- nil
		synced(t, l, 1)
		l.Append(lease.Record{Lease: "2", Key: "k"})
		synctest.Wait()
		l.Append(lease.Record{Lease: "3", Key: "k"})
		second, third := waits(t.Context(), l, 2), waits(t.Context(), l, 3)
		pending(t, second, third)
		if err := l.Err(); err != nil {
			t.Errorf("it says too early that it has failed: %v", err)
		}
		broken := errors.New("input/output error")
		turn <- broken
		for _, err := range []error{<-second, <-third, l.Sync(t.Context(), 3), l.Sync(t.Context(), l.Append(lease.Record{Lease: "4"})), l.Err()} {
			if !errors.Is(err, broken) {
				t.Errorf("%v, want %v", err, broken)
			}
			wantError(t, err, "lease file "+path, "until it is opened again")
		}
		select {
		case <-l.Failed():
		default:
			t.Error("Failed does not tell")
		}
		synced(t, l, 1)
		if err := l.Close(); !errors.Is(err, broken) {
			t.Errorf("Close says %v", err)
		}
		next := openTest(t, path)
		if diff := cmp.Diff(keyed(lease.Record{Lease: "1", Key: "k"}), kept(t, next)); diff != "" {
			t.Errorf("what is remembered (-wanted +read):\n%s", diff)
		}
	})
}

// TestClose: Close writes what was appended, nothing is taken after it, and it is no failure.
func TestClose(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	for n := range 100 {
		l.Append(lease.Record{Lease: fmt.Sprint(n), Key: "k"})
	}
	if got := reopened(t, l, path); len(got) != 100 {
		t.Errorf("%d records of 100 are remembered", len(got))
	}
	synced(t, l, 100)
	if err := l.Sync(t.Context(), l.Append(lease.Record{Lease: "late", Key: "k"})); err == nil {
		t.Error("a closed log takes records")
	}
	if err := l.Err(); err != nil {
		t.Errorf("to be closed is a failure: %v", err)
	}
	closed(t, l)
}

// TestConcurrentCallers: many append and wait at once, and each finds its record when it has waited.
func TestConcurrentCallers(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	results := make(chan error)
	const callers, each = 16, 30
	for c := range callers {
		go func() {
			var err error
			for n := range each {
				name := fmt.Sprintf("%d/%d", c, n)
				err = errors.Join(err, l.Sync(t.Context(), l.Append(lease.Record{Lease: name, Key: "k"}, lease.Record{Lease: name + "x", Key: "k"})))
				if n%3 == 0 {
					err = errors.Join(err, l.Sync(t.Context(), l.Append(lease.Record{Lease: name, Gone: true})))
				}
			}
			results <- err
		}()
	}
	for range callers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got, want := len(reopened(t, l, path)), callers*(2*each-each/3); got != want {
		t.Errorf("%d records, want %d", got, want)
	}
}

// TestSize: a file takes no more room than its busiest moment needed, however long it is used.
func TestSize(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const peak, window = 5_000, 500
	var n uint64
	grant := func(i int) {
		n = l.Append(lease.Record{Lease: fmt.Sprintf("%x", i*7919%1_000_003), Key: "default/a", Expires: at(1e9, 5)})
	}
	forget := func(i int) { n = l.Append(lease.Record{Lease: fmt.Sprintf("%x", i*7919%1_000_003), Gone: true}) }
	for i := range peak {
		grant(i)
	}
	synced(t, l, n)
	for i := range peak - window {
		forget(i)
	}
	synced(t, l, n)
	most := size()
	for i := peak; i < 4*peak; i++ {
		grant(i)
		forget(i - window)
		if i%100 == 0 {
			synced(t, l, n)
		}
	}
	synced(t, l, n)
	if now := size(); now > most+most/4 {
		t.Errorf("after the peak the file had %d bytes, and then grew to %d", most, now)
	}
	if got := reopened(t, l, path); len(got) != window {
		t.Errorf("%d records are left, want %d", len(got), window)
	}
}

func wantError(t testing.TB, err error, says ...string) {
	t.Helper()
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v, want one that says %q", err, s)
		}
	}
}

// TestRefusals: what cannot be read is refused by name, never taken for an empty log, and left as it is.
func TestRefusals(t *testing.T) {
	edit := func(do func(*bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			l := openTest(t, path)
			l.Append(lease.Record{Lease: "1", Key: "k"}, lease.Record{Lease: "2", Key: "k"})
			closed(t, l)
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(do), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	record := func(k string, v []byte) func(*testing.T, string) {
		return edit(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketRecords)).Put([]byte(k), v) })
	}
	sealed := func(b []byte) []byte {
		v := append(reserve(nil), b...)
		seal(v)
		return v
	}
	one := string(keyOf(lease.Record{Lease: "1"}))
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		says []string
	}{
		{"nothing in it", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"is empty"}},
		{"a text", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("kind: Proxy\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"is not a lease file"}},
		{"a state file", edit(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(boltfile.Meta)).Put([]byte(boltfile.KeyFormat), []byte("proxyfleet state 1"))
		}), []string{"another program"}},
		{"a later format", edit(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(boltfile.Meta)).Put([]byte(boltfile.KeyFormat), []byte("proxyfleet lease 2"))
		}), []string{"format 2", "later"}},
		{"a number of records that was edited", edit(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(boltfile.Meta)).Put([]byte(keyRecords), []byte("12345"))
		}), []string{"damaged", "number of records"}},
		{"a record that vanished", edit(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketRecords)).Delete([]byte(one)) }),
			[]string{"damaged", "should hold 2 records and holds 1"}},
		{"all records vanished", edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketRecords)) }), []string{"damaged", "no records"}},
		{"a record without its checksum", record(one, encode(nil, lease.Record{Lease: "1"})), []string{"damaged", "checksum"}},
		{"a record with a field of a later release", record(one, sealed([]byte{200})), []string{"damaged", "field 200"}},
		{"a record under another's name", record(one, sealed(encode(nil, lease.Record{Lease: "2"}))), []string{"damaged", "something else"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			c.make(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(Config{Path: path})
			if err == nil {
				_, err = lease.NewMemory(lease.Config{Log: l})
				closed(t, l)
			}
			wantError(t, err, append(c.says, "lease file "+path)...)
			if after, err := os.ReadFile(path); err != nil || string(before) != string(after) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

// TestDamagedFile: a file that was cut short, or in which a byte of a page in use was changed, is refused.
func TestDamagedFile(t *testing.T) {
	made := newPath(t)
	l := openTest(t, made)
	var n uint64
	for i := range 500 {
		n = l.Append(lease.Record{Lease: fmt.Sprint("lease-", i), Key: "default/a", Expires: at(1e9, 5)})
	}
	synced(t, l, n)
	want := reopened(t, l, made)
	content, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	path := newPath(t)
	opens := func(content []byte) (got map[string]lease.Record) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Config{Path: path})
		if err != nil {
			return nil
		}
		got = map[string]lease.Record{}
		err = l.Load(func(r lease.Record) error {
			got[string(keyOf(r))] = r
			return nil
		})
		closed(t, l)
		if err != nil {
			return nil
		}
		return got
	}
	refused := 0
	for at := 0; at < len(content); at += 997 {
		damaged := slices.Clone(content)
		damaged[at] ^= 0x10
		switch got := opens(damaged); {
		case got == nil:
			refused++
		case at >= 2*os.Getpagesize() && !maps.EqualFunc(want, got, func(a, b lease.Record) bool { return cmp.Equal(a, b) }):
			t.Errorf("with byte %d of %d damaged it opens with other records", at, len(content))
		}
	}
	if refused < len(content)/997/10 { // most pages are free
		t.Errorf("only %d files were refused", refused)
	}
	for _, part := range []int{1, 100, os.Getpagesize(), 2 * os.Getpagesize(), 3 * os.Getpagesize()} {
		if got := opens(content[:part]); got != nil {
			t.Errorf("cut to %d bytes it opens with %d records", part, len(got))
		}
	}
}

// TestCutShortWhileOpen: the file may be cut short under the process, which lives.
func TestCutShortWhileOpen(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	for i := range 500 {
		l.Append(lease.Record{Lease: fmt.Sprint("lease-", i), Key: "default/a", Expires: at(1e9, 5)})
	}
	synced(t, l, 500)
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context(), l.Append(lease.Record{Lease: "lease-7", Gone: true})); err == nil {
		t.Error("the write succeeds")
	}
	<-l.Failed()
	if err := l.Close(); err == nil {
		t.Error("Close says that all is well")
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := newPath(t)
	closed(t, openTest(t, path))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v, want -rw-------", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is something beside the file: %v, %v", left, err)
	}
}

// TestInUse: whoever has the file has it alone.
func TestInUse(t *testing.T) {
	path := newPath(t)
	l := openTest(t, path)
	_, err := Open(Config{Path: path, Timeout: 100 * time.Millisecond})
	wantError(t, err, "lease file "+path, "is in use by another process")
	closed(t, l)
	closed(t, openTest(t, path))
}

// TestNoCredentials: what lets somebody use a proxy is not in the file.
func TestNoCredentials(t *testing.T) {
	const user, password = "planted-user", "planted-password"
	path := newPath(t)
	l := openTest(t, path)
	store, err := lease.NewMemory(lease.Config{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	store.Set(lease.Candidate{Key: "default/planted-name", MaxLeases: 1, Healthy: true,
		Endpoint: lease.Endpoint{Namespace: "default", Name: "planted-name", Host: "planted-host", User: secret.New(user), Password: secret.New(password)}})
	g, err := store.Acquire(t.Context(), lease.Request{ID: "planted-request", Session: "planted-session"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Report(t.Context(), g.Leases[0].ID, lease.Report{Outcome: lease.Banned, Target: "planted-target"}); err != nil {
		t.Fatal(err)
	}
	closed(t, l)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{user: false, password: false, "planted-host": false,
		"planted-name": true, "planted-request": true, "planted-session": true, "planted-target": true} {
		if strings.Contains(string(content), word) != want {
			t.Errorf("%q in the file: %v, want %v", word, !want, want)
		}
	}
}
