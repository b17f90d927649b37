package manifest_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/proxy"
)

// names collects what a watch reports.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) add(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, namespace+"/"+name)
}

// take returns what was reported since the last call, each name once.
func (n *names) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.all = nil }()
	slices.Sort(n.all)
	return slices.Compact(n.all)
}

func (f *fixture) watch() *names {
	n := &names{}
	go func() {
		if err := f.secrets.Watch(f.t.Context(), n.add); err != nil {
			f.t.Errorf("the watch was lost: %v", err)
		}
	}()
	synctest.Wait()
	return n
}

func reports(t *testing.T, n *names, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, n.take()); diff != "" {
		t.Errorf("reported, -want +got:\n%s", diff)
	}
}

func TestSecretsOfDocuments(t *testing.T) {
	bubble(t, doc("a", "one")+secretDoc("s", "old")+secretDoc("u", "same"), func(t *testing.T, f *fixture) {
		early := f.watch()
		f.run()
		late := f.watch()
		reports(t, early, "default/s", "default/u")
		reports(t, late, "default/s", "default/u")

		f.edit(doc("a", "one") + secretDoc("s", "new") + secretDoc("u", "same") + secretDoc("v", "x"))
		f.password("s", "new")
		reports(t, early, "default/s", "default/v")

		f.edit(doc("a", "one") + strings.Replace(secretDoc("s", "new"), "'true'", "'false'", 1) + secretDoc("u", "same"))
		f.password("v", "")
		reports(t, early, "default/s", "default/v")
		reports(t, late, "default/s", "default/v")

		f.polls(5)
		reports(t, early)
	})
}

// TestRotationReachesTheStore is the whole way: a Secret document changes, and the store's watch names the proxy.
func TestRotationReachesTheStore(t *testing.T) {
	bubble(t, withSecret("a", "s")+doc("b", "one")+secretDoc("s", "old"), func(t *testing.T, f *fixture) {
		f.run()
		var touched names
		go func() {
			_ = f.memory.Watch(f.t.Context(), func(k proxy.Key) { touched.add(k.Namespace, k.Name) })
		}()
		synctest.Wait()
		touched.take()
		f.edit(withSecret("a", "s") + doc("b", "one") + secretDoc("s", "new"))
		reports(t, &touched, "default/a")
		p, err := f.memory.Get(t.Context(), proxy.Key{Namespace: "default", Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if in, err := f.memory.Inputs(t.Context(), p); err != nil || in.Password.Reveal() != "new" {
			t.Errorf("the password does not resolve to the new one: %v", err)
		}
	})
}

func TestSecretsComeBeforeProxiesAndGoAfter(t *testing.T) {
	bubble(t, withSecret("a", "s")+secretDoc("s", "x"), func(t *testing.T, f *fixture) {
		store := f.faulty()
		f.run()
		calls := 0
		store.set(faults{before: func(proxy.Key) {
			calls++
			f.password("s", "x") // of what is being deleted
			f.password("t", "z") // of what is being made
		}})
		f.edit(withSecret("b", "t") + secretDoc("t", "z"))
		if calls != 2 {
			t.Errorf("%d calls of the store, want a Put and a Delete", calls)
		}
		f.password("s", "")
		f.password("t", "z")
	})
}

// mount writes a Secret as Kubernetes mounts one: the values in a folder of their own, behind one link that is swapped.
func mount(t *testing.T, dir, version string, values map[string]string) {
	t.Helper()
	for key, value := range values {
		writeFile(t, filepath.Join(dir, ".."+version, key), value)
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(".."+version, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func TestSecretsDir(t *testing.T) {
	bubble(t, withSecret("a", "s"), func(t *testing.T, f *fixture) {
		f.secretsDir = t.TempDir()
		s := filepath.Join(f.secretsDir, "default", "s")
		mount(t, s, "1", map[string]string{"username": "u", "password": "old\n"})
		writeFile(t, filepath.Join(f.secretsDir, "crawl", "t.u", ".key"), "\xff")
		writeFile(t, filepath.Join(f.secretsDir, ".git", "config"), "ignored")
		f.run()
		f.password("s", "old\n")
		got, err := f.secrets.Get(t.Context(), "crawl", "t.u")
		if err != nil || got.Data[".key"].Reveal() != "\xff" {
			t.Errorf("the plain directory is not read: %v", err)
		}
		labels := map[string]string{proxy.CloudInitLabel: "true", proxy.CredentialsLabel: "true"}
		if diff := gocmp.Diff(labels, got.Labels); diff != "" {
			t.Errorf("labels, -want +got:\n%s", diff)
		}

		seen := f.watch()
		seen.take()
		mount(t, s, "2", map[string]string{"username": "u", "password": "new"})
		f.polls(3)
		f.password("s", "new")
		reports(t, seen, "default/s")

		if err := os.RemoveAll(filepath.Join(f.secretsDir, "crawl")); err != nil {
			t.Fatal(err)
		}
		f.polls(3)
		reports(t, seen, "crawl/t.u")
		f.silent()
	})
}

func TestBadSecretsDir(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"file where a namespace belongs", map[string]string{"README": ""}, []string{"README: is not a directory: secrets are files NAMESPACE/NAME/KEY"}},
		{"file where a name belongs", map[string]string{"default/password": ""}, []string{"default/password: is not a directory: secrets are files NAMESPACE/NAME/KEY"}},
		{"directory where a key belongs", map[string]string{"default/s/a/b": ""}, []string{"default/s/a: is a directory: name the files in it"}},
		{"names", map[string]string{"Default/s/a": "", "default/s_/a": "", "default/s/a b": ""}, []string{
			"Default/s/a: must be NAMESPACE/NAME/KEY below the directory, each as Kubernetes allows it",
			"default/s/a b: must be NAMESPACE/NAME/KEY below the directory, each as Kubernetes allows it",
			"default/s_/a: must be NAMESPACE/NAME/KEY below the directory, each as Kubernetes allows it",
		}},
		{"large value", map[string]string{"default/s/a": large + "x"}, []string{"default/s/a: is larger than 1 MiB"}},
		{"large Secret", map[string]string{"default/s/a": large, "default/s/b": "x"}, []string{"default/s/b: makes its Secret larger than 1 MiB"}},
		{"in a document too", map[string]string{"default/taken/a": ""}, []string{"default/taken: is declared twice; the other one is at FILE:1: document 1, Secret default/taken"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "fleet.yaml")
			writeFile(t, file, strings.TrimPrefix(secretDoc("taken", "x"), "---\n"))
			for name, text := range c.files {
				writeFile(t, filepath.Join(dir, name), text)
			}
			_, err := manifest.Load(manifest.Sources{Files: []string{file}, SecretsDir: dir})
			if err == nil {
				t.Fatal("was accepted")
			}
			got := strings.Split(strings.NewReplacer(dir+"/", "", file, "FILE").Replace(err.Error()), "\n")
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSecretsDirIsBounded(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "fleet.yaml")
	writeFile(t, file, config)
	for i := range 18 {
		path := filepath.Join(dir, "default", "s"+strings.Repeat("x", i), "key")
		writeFile(t, path, "")
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	_, err := manifest.Load(manifest.Sources{Files: []string{file}, SecretsDir: dir})
	if err == nil || strings.Count(err.Error(), "makes the directory larger than 16 MiB") != 1 {
		t.Errorf("error %v", err)
	}
}

func TestMissingSecretsDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.yaml")
	writeFile(t, file, config)
	_, err := manifest.Load(manifest.Sources{Files: []string{file}, SecretsDir: filepath.Join(dir, "none")})
	if want := filepath.Join(dir, "none") + ": cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	writeFile(t, large, "")
	if err := os.Truncate(large, 16<<20+1); err != nil {
		t.Fatal(err)
	}
	_, err := manifest.Load(manifest.Sources{Files: []string{filepath.Join(dir, "none"), dir, large, "/dev/zero"}})
	if err == nil {
		t.Fatal("was accepted")
	}
	want := []string{
		"DIR/none: cannot be read: no such file or directory",
		"DIR: is a directory: name the files in it",
		"DIR/large.yaml: is larger than 16 MiB",
		"/dev/zero: is not a regular file",
	}
	if diff := gocmp.Diff(want, strings.Split(strings.ReplaceAll(err.Error(), dir, "DIR"), "\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWatchEnds also holds that a watch whose context ended calls nobody any more.
func TestWatchEnds(t *testing.T) {
	bubble(t, secretDoc("s", "x")+secretDoc("t", "x"), func(t *testing.T, f *fixture) {
		f.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		err := f.secrets.Watch(ctx, func(string, string) { calls++; cancel() })
		if err != nil || calls != 1 {
			t.Errorf("%d calls, error %v", calls, err)
		}
	})
}
