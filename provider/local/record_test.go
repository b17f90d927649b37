package local

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func aRecord() record {
	return record{
		Version: 1, Name: "proxy-abc", Fleet: "lab", UID: "uid", Hash: "v1-0", Incarnation: "i",
		Address: netip.MustParseAddr("127.0.0.9"), Port: 3128, Created: time.Unix(1, 0).UTC(),
		Login: &login{Salt: []byte("salt"), Iterations: 1, Hash: []byte("hash")},
	}
}

func TestRecords(t *testing.T) {
	d := records{filepath.Join(t.TempDir(), "made", "when-needed")}
	if all, err := d.load(); err != nil || len(all) != 0 {
		t.Fatalf("load without a directory = %v, %v, want nothing", all, err)
	}
	held, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	first, second := aRecord(), aRecord()
	second.Name, second.Login, second.Address = "proxy-def", nil, netip.MustParseAddr("::1")
	for _, r := range []record{first, second, first} {
		if err := d.save(r); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.load()
	if diff := cmp.Diff([]record{first, second}, all, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("load: %v (-want +got):\n%s", err, diff)
	}
	for range 2 {
		if err := d.remove(first.Name); err != nil {
			t.Fatal(err)
		}
	}
	if all, err = d.load(); err != nil || len(all) != 1 || all[0].Name != second.Name {
		t.Errorf("load after remove = %v, %v, want the second alone", all, err)
	}
}

func TestOnlyTheOwnerReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := records{dir}
	held, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := d.save(aRecord()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, d.path("proxy-abc"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s has the mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}

// What a crash leaves half-written is neither an instance nor an error, and Run clears it away.
func TestHalfWritten(t *testing.T) {
	d := records{t.TempDir()}
	part := d.path("proxy-abc") + partSuffix
	if err := os.WriteFile(part, []byte(`{"version"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := d.load(); err != nil || len(all) != 0 {
		t.Errorf("load = %v, %v, want nothing", all, err)
	}
	held, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := os.Stat(part); !os.IsNotExist(err) {
		t.Errorf("the half-written file is still there: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = `{"version":1,"name":"proxy-abc","fleet":"lab","uid":"u","hash":"h","incarnation":"i","address":"127.0.0.9","port":3128,"created":"2026-01-02T03:04:05Z"}`
	if _, err := parseRecord([]byte(good)); err != nil {
		t.Fatalf("what the others are variations of is refused: %v", err)
	}
	edit := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	for _, c := range []struct{ name, file, text, want string }{
		{"foreign file", "notes.txt", "hello", "no file of this provider"},
		{"empty", "proxy-abc.json", "", "unexpected end"},
		{"cut off", "proxy-abc.json", good[:40], "unexpected end"},
		{"not JSON", "proxy-abc.json", "address: 127.0.0.9", "invalid character"},
		{"too long", "proxy-abc.json", good + strings.Repeat(" ", maxRecord), "too long"},
		{"newer", "proxy-abc.json", edit(`"version":1`, `"version":2,"more":true`), "written by a newer one"},
		{"no version", "proxy-abc.json", edit(`"version":1,`, ``), "unknown format version 0"},
		{"unknown field", "proxy-abc.json", edit(`"port"`, `"host":"x","port"`), `unknown field "host"`},
		{"another name", "proxy-def.json", good, "an instance of another name"},
		{"name that is a path", "proxy-abc.json", edit("proxy-abc", "../abc"), `the name "../abc"`},
		{"no incarnation", "proxy-abc.json", edit(`"incarnation":"i",`, ``), "lacks incarnation"},
		{"no address", "proxy-abc.json", edit(`"address":"127.0.0.9",`, ``), "the address invalid IP"},
		{"no port", "proxy-abc.json", edit(`3128`, `0`), "the port 0"},
		{"login without a hash", "proxy-abc.json", edit(`"port"`, `"login":{"salt":"","iterations":1,"hash":""},"port"`), "lets nobody in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := records{t.TempDir()}
			path := filepath.Join(d.dir, c.file)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := d.load()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("load returned %v, want an error that names %s and says %q", err, path, c.want)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		d := records{t.TempDir()}
		if err := os.Mkdir(d.path("proxy-abc"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := d.load(); err == nil || !strings.Contains(err.Error(), "no file of this provider") {
			t.Errorf("load returned %v", err)
		}
	})
	t.Run("file instead of the directory", func(t *testing.T) {
		d := records{filepath.Join(t.TempDir(), "file")}
		if err := os.WriteFile(d.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.load(); err == nil || !strings.Contains(err.Error(), d.dir) {
			t.Errorf("load returned %v, want an error that names the file", err)
		}
	})
}

func TestSaveRefusesWhatLoadWould(t *testing.T) {
	d := records{t.TempDir()}
	r := aRecord()
	r.UID = ""
	if err := d.save(r); err == nil {
		t.Error("save wrote an instance without a UID")
	}
	if entries, err := os.ReadDir(d.dir); err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v (%v), want nothing", entries, err)
	}
}

// What is read can be written and read again.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"a","fleet":"f","uid":"u","incarnation":"i","address":"::1","port":1}`))
	f.Add([]byte(`{"version":1,"name":"a","fleet":"f","uid":"u","incarnation":"i","address":"1.2.3.4","port":1,"login":{"salt":"","iterations":1,"hash":"eA=="}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		d := records{t.TempDir()}
		if err := d.save(r); err != nil {
			t.Fatalf("%q can be read and not be written: %v", text, err)
		}
		all, err := d.load()
		if err != nil || len(all) != 1 {
			t.Fatalf("%q was written as what cannot be read: %v", text, err)
		}
		if diff := cmp.Diff(r, all[0], cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-read +written and read):\n%s", text, diff)
		}
	})
}
