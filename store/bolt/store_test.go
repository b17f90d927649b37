package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/internal/boltfile"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/proxy/storetest"
	"github.com/proxyfleet/fleet/secret"
)

func openTest(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func bg() context.Context { return context.Background() }

func key(i int) proxy.Key { return proxy.Key{Namespace: "crawl", Name: fmt.Sprintf("p-%03d", i)} }

// filled makes a file with n records, some of which had a longer life, and returns its path and its records.
func filled(t testing.TB, n int) (path string, records []*proxy.Proxy) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, Config{Path: path, Fleet: "test"})
	for i := range n + 5 {
		d := proxy.Declaration{Spec: proxy.Spec{Provider: "lab", CloudInit: &proxy.CloudInit{Inline: strings.Repeat("#", 30*i)}}}
		if i < 3 {
			d.Spec.CloudInit.Inline = strings.Repeat("overflow ", 2000) // more than a page
		}
		p, err := s.Put(t.Context(), key(i), d, "test")
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = proxy.Ready
		if _, err := s.UpdateStatus(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if err := s.Delete(t.Context(), key(n+i)); err != nil {
			t.Fatal(err)
		}
	}
	return path, closed(t, s)
}

// closed closes a store and returns what it held.
func closed(t testing.TB, s *Store) []*proxy.Proxy {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestConformance(t *testing.T) {
	paths := map[*Store]string{}
	opened := func(t testing.TB, path string, secrets *storetest.Secrets) storetest.Subject {
		s := openTest(t, Config{Path: path, Secrets: secrets})
		paths[s] = path
		return storetest.Subject{Store: s, Secrets: secrets}
	}
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) storetest.Subject {
			return opened(t, filepath.Join(t.TempDir(), "state.db"), storetest.NewSecrets())
		},
		Reopen: func(t testing.TB, old storetest.Subject) storetest.Subject {
			s := old.Store.(*Store)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return opened(t, paths[s], old.Secrets.(*storetest.Secrets))
		},
	})
}

func TestConfig(t *testing.T) {
	_, err := Open(Config{Fleet: "Not An Identity", Timeout: -1})
	for _, field := range []string{"Path is", "Fleet must", "Timeout must"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestFleetIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, Config{Path: path})
	made := s.Fleet()
	if !fleetIdentity.MatchString(made) {
		t.Errorf("the identity that was made is %q", made)
	}
	p, err := s.Put(t.Context(), key(1), proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)

	for name, fleet := range map[string]string{"kept": "", "declared": made} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Config{Path: path, Fleet: fleet})
			if s.Fleet() != made {
				t.Errorf("the fleet is %q, want %q", s.Fleet(), made)
			}
			closed(t, s)
		})
	}
	t.Run("another", func(t *testing.T) {
		_, err := Open(Config{Path: path, Fleet: "prod"})
		wantError(t, err, path, made, "prod")
	})
	t.Run("the same again after the file was lost", func(t *testing.T) {
		s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "new.db"), Fleet: made})
		again, err := s.Put(t.Context(), key(1), proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "test")
		if err != nil || again.UID != p.UID {
			t.Errorf("UID %s, %v; want %s as before", again.UID, err, p.UID)
		}
	})
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

// edit changes an existing file in one transaction.
func edit(t *testing.T, path string, do func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(do), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read is refused by name, and nothing in its place is made or changed.
func TestForeignFiles(t *testing.T) {
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := func(do func(tx *bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) { edit(t, path, do) }
	}
	ours := func(do func(tx *bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			made, _ := filled(t, 3)
			if err := os.Rename(made, path); err != nil {
				t.Fatal(err)
			}
			edit(t, path, do)
		}
	}
	setMeta := func(k, v string) func(*testing.T, string) {
		return ours(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put([]byte(k), []byte(v)) })
	}
	setRecord := func(v string) func(*testing.T, string) {
		return ours(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketProxies)).Put([]byte("crawl/p-001"), []byte(v))
		})
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		says []string
	}{
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{"is a directory"}},
		{"a device", func(t *testing.T, path string) {
			if err := os.Symlink(os.DevNull, path); err != nil {
				t.Fatal(err)
			}
		}, []string{"not a regular file"}},
		{"a link to nothing", func(t *testing.T, path string) {
			if err := os.Symlink(path+".nowhere", path); err != nil {
				t.Fatal(err)
			}
		}, []string{"no such file"}},
		{"nothing in it", write(""), []string{"is empty"}},
		{"JSON", write(`{"kind":"Proxy"}`), []string{"is not a state file"}},
		{"a long text", write(strings.Repeat("kind: Proxy\n", 10000)), []string{"is not a state file"}},
		{"zeros", write(strings.Repeat("\x00", 1<<20)), []string{"is not a state file"}},
		{"an empty database", other(func(*bbolt.Tx) error { return nil }), []string{"another program"}},
		{"a database of another program", other(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("images"))
			return err
		}), []string{"another program"}},
		{"a database of another program, with a bucket of the same name", other(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(bucketMeta))
			return errors.Join(err, b.Put([]byte(boltfile.KeyFormat), []byte("1")))
		}), []string{"another program"}},
		{"a later format", setMeta(boltfile.KeyFormat, "proxyfleet state 2"), []string{"format 2", "later"}},
		{"a format that is no number", setMeta(boltfile.KeyFormat, "proxyfleet state x"), []string{"damaged", "format"}},
		{"an identity that was edited", setMeta(keyFleet, "00000000 test"), []string{"damaged", "identity"}},
		{"a number of records that was edited", setMeta(keyRecords, "00000000 3"), []string{"damaged", "number of records"}},
		{"a record that vanished", ours(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketProxies)).Delete([]byte("crawl/p-001"))
		}), []string{"damaged", "should hold 3 records and holds 2"}},
		{"all records vanished", ours(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketProxies)) }), []string{"damaged", "no records"}},
		{"a record without its checksum", setRecord(`{"namespace":"crawl","name":"p-001"}`), []string{"crawl/p-001", "checksum"}},
		{"a record that is no JSON", setRecord(string(seal([]byte(`{`)))), []string{"crawl/p-001"}},
		{"a record with a field of a later release", setRecord(string(seal([]byte(`{"namespace":"crawl","name":"p-001","colour":"red"}`)))),
			[]string{"crawl/p-001", "colour"}},
		{"a record under another's name", setRecord(string(seal([]byte(`{"namespace":"crawl","name":"p-002"}`)))),
			[]string{"crawl/p-001", "crawl/p-002"}},
		{"a bucket in a record's place", ours(func(tx *bbolt.Tx) error {
			_, err := tx.Bucket([]byte(bucketProxies)).CreateBucket([]byte("crawl"))
			return err
		}), []string{"record crawl"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			c.make(t, path)
			before := dump(t, path)
			_, err := Open(Config{Path: path})
			wantError(t, err, append(c.says, "state file "+path)...)
			if diff := cmp.Diff(before, dump(t, path)); diff != "" {
				t.Errorf("the file was changed:\n%s", diff)
			}
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
				t.Errorf("there is something beside it: %v, %v", left, err)
			}
		})
	}
}

// TestOlderRecords: what was written before records knew when they were declared is read, and says that nobody knows.
func TestOlderRecords(t *testing.T) {
	path, _ := filled(t, 1)
	older := `{"namespace":"crawl","name":"p-000","uid":"u-1","generation":2,"version":"v-1","finalizer":true,"spec":{"provider":"lab"},` +
		`"status":{"format":1,"phase":"Ready","instance":{"id":"a/p-1"}},"source":"test"}`
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketProxies)).Put([]byte("crawl/p-000"), seal([]byte(older)))
	})
	all := closed(t, openTest(t, Config{Path: path}))
	if len(all) != 1 || all[0].UID != "u-1" || !all[0].Created.IsZero() || !all[0].Status.FirstReadyTime.IsZero() || all[0].Status.Phase != proxy.Ready {
		t.Errorf("read %+v", all)
	}
}

// dump returns what is at a path, or why it cannot be read.
func dump(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Sprint(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d bytes, %08x", len(b), checksum(b))
}

func TestNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "state.db")
	_, err := Open(Config{Path: path})
	wantError(t, err, path, "no such file or directory")
}

func TestFileIsPrivate(t *testing.T) {
	path, _ := filled(t, 1)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v, want -rw-------", info.Mode())
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is something beside the file: %v, %v", left, err)
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	s := openTest(t, Config{Path: "state.db"})
	closed(t, s)
	closed(t, openTest(t, Config{Path: "state.db", Fleet: s.Fleet()}))
}

func TestSecretsAreNotInTheFile(t *testing.T) {
	const password, userData, inline = "hunter2-password", "hunter2-user-data", "inline is for everybody"
	secrets := storetest.NewSecrets()
	secrets.Set("crawl", "login", proxy.Secret{
		Labels: map[string]string{proxy.CredentialsLabel: "true", proxy.CloudInitLabel: "true"},
		Data:   map[string]secret.Text{"username": secret.New("me"), "password": secret.New(password), "user-data": secret.New(userData)},
	})
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, Config{Path: path, Secrets: secrets})
	credentials := &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "login"}}
	for i, c := range []*proxy.CloudInit{{Inline: inline}, {SecretRef: &proxy.SecretKeyRef{Name: "login", Key: "user-data"}}} {
		p, err := s.Put(t.Context(), key(i), proxy.Declaration{Spec: proxy.Spec{Provider: "lab", CloudInit: c, Credentials: credentials}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.Inputs(t.Context(), p)
		if err != nil || in.Password.Reveal() != password {
			t.Fatalf("Inputs: %v", err)
		}
		p.Status.SetCondition(proxy.Condition{Type: proxy.Resolved, Status: proxy.True, Message: in.Password.String()})
		if _, err := s.UpdateStatus(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	var backup bytes.Buffer
	if err := s.Backup(&backup); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{"file": file, "backup": backup.Bytes()} {
		if bytes.Contains(b, []byte(password)) || bytes.Contains(b, []byte(userData)) {
			t.Errorf("a secret is in the %s", what)
		}
		if !bytes.Contains(b, []byte(inline)) {
			t.Errorf("inline user data is not in the %s, so nothing was tested", what)
		}
	}
}

func TestBackup(t *testing.T) {
	path, want := filled(t, 20)
	s := openTest(t, Config{Path: path})
	copied := filepath.Join(t.TempDir(), "copy.db")
	f, err := os.Create(copied)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Backup(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), key(99), proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "test"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, closed(t, openTest(t, Config{Path: copied, Fleet: "test"}))); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
	if err := s.Backup(brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("to nobody: %v", err)
	}
	closed(t, s)
	if err := s.Backup(io.Discard); err == nil {
		t.Error("a closed store was copied")
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Whoever takes a copy slowly must not stop the fleet: the file has to grow meanwhile.
func TestBackupToASlowReader(t *testing.T) {
	path, _ := filled(t, 3)
	s := openTest(t, Config{Path: path})
	in, out := io.Pipe()
	go func() { _ = out.CloseWithError(s.Backup(out)) }()
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	big := proxy.Declaration{Spec: proxy.Spec{Provider: "lab", CloudInit: &proxy.CloudInit{Inline: strings.Repeat("#", 1<<20)}}}
	if _, err := s.Put(t.Context(), key(50), big, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsWriting(t *testing.T) {
	path, want := filled(t, 3)
	s := openTest(t, Config{Path: path})
	closed(t, s)
	if _, err := s.UpdateStatus(t.Context(), func() *proxy.Proxy { p := want[0].Clone(); p.Status.Phase = proxy.Failed; return p }()); err == nil {
		t.Error("a closed store was written")
	}
	if got, err := s.List(t.Context()); err != nil || !cmp.Equal(want, got) {
		t.Errorf("the failed write shows, or reads fail: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// After a last sync that failed bbolt goes on from what it wrote, while its list of free pages is that of before: one more
// write could destroy the file.
func TestFailedSyncEndsWriting(t *testing.T) {
	path, want := filled(t, 3)
	s := openTest(t, Config{Path: path})
	failed := errors.New("input/output error")
	if err := s.Err(); err != nil {
		t.Errorf("before the failure: %v", err)
	}
	update := s.journal.update
	s.journal.update = func(do func(*bbolt.Tx) error) error { return errors.Join(update(do), failed) }
	p := want[0].Clone()
	p.Status.Phase = proxy.Failed
	if _, err := s.UpdateStatus(t.Context(), p); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	select {
	case <-s.Failed():
	default:
		t.Error("Failed does not tell")
	}
	if err := s.Err(); !errors.Is(err, failed) {
		t.Errorf("Err() = %v, want %v", err, failed)
	}
	s.journal.update = update
	if _, err := s.UpdateStatus(t.Context(), p); !errors.Is(err, failed) {
		t.Errorf("the next write: %v, want the same failure", err)
	}
	if diff := cmp.Diff(want, closed(t, s)); diff != "" {
		t.Errorf("the failed write shows (-want +got):\n%s", diff)
	}
	if got := closed(t, openTest(t, Config{Path: path})); len(got) != len(want) {
		t.Errorf("%d records after opening again, want %d", len(got), len(want))
	}
}

// A transaction that failed before it reached the file is as if it had never been.
func TestFailedWriteIsForgotten(t *testing.T) {
	path, want := filled(t, 3)
	s := openTest(t, Config{Path: path})
	full := errors.New("no space left on device")
	update := s.journal.update
	s.journal.update = func(do func(*bbolt.Tx) error) error {
		return update(func(tx *bbolt.Tx) error { return errors.Join(do(tx), full) })
	}
	p := want[0].Clone()
	p.Status.Phase = proxy.Failed
	if _, err := s.UpdateStatus(t.Context(), p); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	s.journal.update = update
	p, err := s.UpdateStatus(t.Context(), p)
	if err != nil {
		t.Fatalf("after there is space again: %v", err)
	}
	want[0] = p
	closed(t, s)
	if diff := cmp.Diff(want, closed(t, openTest(t, Config{Path: path}))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLocked(t *testing.T) {
	path, _ := filled(t, 1)
	s := openTest(t, Config{Path: path})
	for _, timeout := range []time.Duration{0, 10 * time.Millisecond} {
		start := time.Now()
		_, err := Open(Config{Path: path, Timeout: timeout})
		wantError(t, err, path, "in use by another process")
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v to say so", d)
		}
	}
	closed(t, s)
	closed(t, openTest(t, Config{Path: path}))
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, openTest(b, Config{Path: filepath.Join(b.TempDir(), "state.db")}))
}
