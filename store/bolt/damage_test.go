package bolt

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/proxyfleet/fleet/proxy"
)

// reopened opens a copy of a file with other content, and says what it holds: an error that names the file, or records.
func reopened(t *testing.T, path string, content []byte) ([]*proxy.Proxy, error) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Path: path, Fleet: "test"})
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%q does not name the file", err)
		}
		return nil, err
	}
	return closed(t, s), nil
}

// A file that was cut short anywhere is refused, or nothing that is in use was cut off. None of it ends this process.
func TestTruncatedFiles(t *testing.T) {
	made, want := filled(t, 40)
	content, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.db")
	used := inUse(t, made)
	refused := 0
	lengths := map[int]bool{1: true, 15: true, 16: true, 17: true, 79: true, 80: true, len(content) - 1: true}
	for n := 512; n < len(content); n += 1024 {
		lengths[n] = true
	}
	for n := os.Getpagesize(); n < len(content); n += os.Getpagesize() {
		lengths[n-1], lengths[n], lengths[n+1] = true, true, true
	}
	for n := range lengths {
		got, err := reopened(t, path, content[:n])
		if err != nil {
			refused++
			continue
		}
		if n < used {
			t.Errorf("cut to %d bytes it opens, though %d are in use", n, used)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cut to %d of %d bytes it opens with other records (-want +got):\n%s", n, len(content), diff)
		}
	}
	if refused < len(lengths)/2 {
		t.Errorf("only %d of %d were refused", refused, len(lengths))
	}
	if got, err := reopened(t, path, content); err != nil || !cmp.Equal(want, got) {
		t.Errorf("the whole file is refused or differs: %v", err)
	}
}

// inUse returns how many bytes of a file are in use.
func inUse(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		n = int(tx.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A file with a damaged byte is refused, or the byte did not matter. A damaged newest meta page cannot be told from one
// whose write a crash cut off: then the state before the last write is there, in which the last record was not yet removed.
func TestDamagedFiles(t *testing.T) {
	made, want := filled(t, 40)
	content, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.db")
	pageSize := os.Getpagesize()
	random := rand.New(rand.NewPCG(1, 2))
	var at []int
	for page := 0; page < len(content); page += pageSize {
		for i := range 96 { // the header and the first elements, or the meta
			at = append(at, page+i)
		}
	}
	for range len(at) / 4 {
		at = append(at, random.IntN(len(content)))
	}
	random.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	at = at[:min(len(at), 15*kills(t))]
	refused, earlier := 0, 0
	for _, i := range at {
		damaged := append([]byte(nil), content...)
		switch random.IntN(3) {
		case 0:
			damaged[i] ^= 1 << random.IntN(8)
		case 1:
			damaged[i] = ^damaged[i]
		case 2:
			damaged[i]++
		}
		got, err := reopened(t, path, damaged)
		switch {
		case err != nil:
			refused++
		case i < 2*pageSize && len(got) == len(want)+1 && cmp.Equal(want, got[:len(want)]):
			earlier++
		case !cmp.Equal(want, got):
			t.Errorf("with byte %d of page %d damaged it opens with other records (-want +got):\n%s", i%pageSize, i/pageSize, cmp.Diff(want, got))
		}
	}
	t.Logf("%d damaged files: %d refused, %d in the state before the last write", len(at), refused, earlier)
	if refused < len(at)/10 {
		t.Errorf("only %d of %d were refused", refused, len(at))
	}
}

// The checksums find what the pages cannot tell: here each byte of one record in turn.
func TestDamagedRecord(t *testing.T) {
	made, want := filled(t, 1)
	content, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	// Pages that were freed hold earlier states of it, so each copy is damaged.
	record := []byte(`"name":"p-000"`)
	path := filepath.Join(t.TempDir(), "damaged.db")
	for i := range record {
		damaged := append([]byte(nil), content...)
		found := 0
		for at := 0; at+len(record) <= len(damaged); at++ {
			if string(content[at:at+len(record)]) == string(record) {
				damaged[at+i] ^= 1
				found++
			}
		}
		if found == 0 {
			t.Fatal("the record is not in the file")
		}
		if got, err := reopened(t, path, damaged); err == nil {
			t.Errorf("with byte %d damaged it opens:\n%s", i, cmp.Diff(want, got))
		}
	}
}

// The file may be cut short while it is open, by a full network disk or by hand. The write fails, and the process lives.
func TestCutShortWhileOpen(t *testing.T) {
	path, want := filled(t, 40)
	s, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := want[0].Clone()
		p.Status.Phase = proxy.Failed
		if _, err := s.UpdateStatus(t.Context(), p); err == nil {
			t.Error("the write succeeds")
		} else {
			t.Log(err)
		}
	}
	select {
	case <-s.Failed():
	default:
		t.Error("Failed does not tell")
	}
	if got, err := s.List(t.Context()); err != nil || !cmp.Equal(want, got) {
		t.Errorf("the failed write shows, or reads fail: %v", err)
	}
	if err := s.Close(); err == nil {
		t.Error("Close says that all is well")
	}
}

func FuzzOpen(f *testing.F) {
	made, _ := filled(f, 3)
	content, err := os.ReadFile(made)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(4096), []byte{2})
	f.Add(uint32(8192+8), []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		damaged := append([]byte(nil), content...)
		copy(damaged[int(at)%len(damaged):], with)
		_, _ = reopened(t, filepath.Join(t.TempDir(), "state.db"), damaged)
	})
}
