package manifest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/proxy"
)

// doc is a Proxy document whose provider tells versions apart.
func doc(name, provider string) string {
	return "---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: " + name + "}\nspec: {provider: " + provider + "}\n"
}

func docs(n int) string {
	var s strings.Builder
	for i := range n {
		s.WriteString(doc(fmt.Sprintf("p%02d", i), "local"))
	}
	return s.String()
}

func secretDoc(name, password string) string {
	return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", labels: {crawl.example.com/credentials: 'true'}}\n" +
		"stringData: {username: u, password: " + password + "}\n"
}

// withSecret is a Proxy document that refers to a Secret.
func withSecret(name, secret string) string {
	return strings.TrimSuffix(doc(name, "local"), "}\n") + ", credentials: {secretRef: {name: " + secret + "}}}\n"
}

const (
	config = "---\napiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: home\n"
	poll   = time.Second
)

// fixture is an applier over a memory store and one file.
type fixture struct {
	t          *testing.T
	file       string
	secretsDir string
	secrets    *manifest.Secrets
	memory     *proxy.Memory
	store      manifest.Store // memory, unless a test puts something in front
	allow      int
	applier    *manifest.Applier
	log        journal
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// take returns what was logged since the last call.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

func newFixture(t *testing.T, text string) *fixture {
	t.Helper()
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), "fleet.yaml"), secrets: manifest.NewSecrets()}
	f.memory = proxy.NewMemory(proxy.MemoryConfig{Fleet: "home", Secrets: f.secrets})
	f.store = f.memory
	f.write(text)
	return f
}

func (f *fixture) write(text string) { writeFile(f.t, f.file, text) }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// apply does what a process does when it starts.
func (f *fixture) apply() error {
	f.t.Helper()
	return f.applyWithin(f.t.Context())
}

func (f *fixture) applyWithin(ctx context.Context) error {
	f.t.Helper()
	sources := manifest.Sources{Files: []string{f.file}, SecretsDir: f.secretsDir}
	set, err := manifest.Load(sources)
	if err != nil {
		return err
	}
	f.applier, err = manifest.NewApplier(manifest.ApplierConfig{
		Sources: sources, Store: f.store, Secrets: f.secrets, AllowDelete: f.allow, Poll: poll,
		Logger: slog.New(slog.NewJSONHandler(&f.log, nil)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return f.applier.Apply(ctx, set)
}

// run applies and follows until the test ends.
func (f *fixture) run() {
	f.t.Helper()
	if err := f.apply(); err != nil {
		f.t.Fatal(err)
	}
	go f.applier.Run(f.t.Context())
	f.polls(0)
}

// polls lets the applier look n times, and a little longer.
func (f *fixture) polls(n int) {
	time.Sleep(time.Duration(n)*poll + poll/4)
	synctest.Wait()
}

// edit writes the file and lets the applier take it.
func (f *fixture) edit(text string) {
	f.write(text)
	f.polls(3)
}

// wants checks which proxies are declared, as name=provider.
func (f *fixture) wants(want ...string) {
	f.t.Helper()
	all, err := f.memory.List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		s := p.Name + "=" + p.Spec.Provider
		if p.Deleting {
			s += " deleting"
		}
		got = append(got, s)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		f.t.Errorf("proxies, -want +got:\n%s", diff)
	}
}

func (f *fixture) count(want int) {
	f.t.Helper()
	all, err := f.memory.List(f.t.Context())
	if err != nil || len(all) != want {
		f.t.Errorf("there are %d proxies, want %d (%v)", len(all), want, err)
	}
}

// logged returns the entries of a level since the last call, each as its message and then its problems.
func (f *fixture) logged(level slog.Level) (entries []string) {
	f.t.Helper()
	for line := range strings.Lines(f.log.take()) {
		var e struct {
			Level    slog.Level
			Msg      string
			Problems []string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			f.t.Fatal(err)
		}
		if e.Level == level {
			entries = append(entries, strings.Join(append([]string{e.Msg}, e.Problems...), "\n"))
		}
	}
	return entries
}

// complains checks that exactly one error was logged, and that it says something.
func (f *fixture) complains(want ...string) {
	f.t.Helper()
	errs := f.logged(slog.LevelError)
	if len(errs) != 1 {
		f.t.Fatalf("%d errors were logged, want 1: %q", len(errs), errs)
	}
	for _, s := range want {
		if !strings.Contains(errs[0], s) {
			f.t.Errorf("the error does not say %q:\n%s", s, errs[0])
		}
	}
}

func (f *fixture) silent() {
	f.t.Helper()
	if errs := f.logged(slog.LevelError); len(errs) > 0 {
		f.t.Errorf("logged: %q", errs)
	}
}

func bubble(t *testing.T, text string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t, text)) })
}

func TestFollowsEdits(t *testing.T) {
	bubble(t, doc("a", "one")+doc("b", "one"), func(t *testing.T, f *fixture) {
		f.run()
		f.wants("a=one", "b=one")
		f.edit(doc("a", "two") + doc("c", "one"))
		f.wants("a=two", "c=one")
		if got := f.log.take(); !strings.Contains(got, `"created":1,"changed":1,"deleted":1,"waiting":0`) || strings.Contains(got, "ERROR") {
			f.t.Errorf("the log does not count what was done:\n%s", got)
		}
		f.polls(10)
		if got := f.log.take(); got != "" {
			f.t.Errorf("logged though nothing changed: %s", got)
		}
	})
}

func TestAnnotationsFollow(t *testing.T) {
	annotated := func(value string) string {
		return strings.Replace(doc("a", "one"), "{name: a}", "{name: a, annotations: {crawl.example.com/retry: '"+value+"'}}", 1)
	}
	bubble(t, annotated("1"), func(t *testing.T, f *fixture) {
		f.run()
		f.edit(annotated("2"))
		p, err := f.memory.Get(f.t.Context(), proxy.Key{Namespace: "default", Name: "a"})
		if err != nil || p.Annotations[proxy.RetryAnnotation] != "2" {
			t.Errorf("annotations are %v, %v", p.Annotations, err)
		}
		if got := f.log.take(); !strings.Contains(got, `"created":0,"changed":1`) {
			t.Errorf("the change is not counted:\n%s", got)
		}
	})
}

func TestDocumentMovesBetweenFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	store := proxy.NewMemory(proxy.MemoryConfig{})
	apply := func(inOne, inTwo string) *proxy.Proxy {
		writeFile(t, one, inOne)
		writeFile(t, two, inTwo)
		set, err := manifest.Load(manifest.Sources{Files: []string{one, two}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := manifest.NewApplier(manifest.ApplierConfig{Store: store, Secrets: manifest.NewSecrets()})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Apply(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		p, err := store.Get(t.Context(), proxy.Key{Namespace: "default", Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := apply(config+doc("a", "one"), doc("b", "one"))
	after := apply(config, doc("b", "one")+doc("a", "one"))
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("moving a document changed its proxy: -before +after\n%s", diff)
	}
}

func TestHalfSavedFileIsNotTaken(t *testing.T) {
	whole := docs(8)
	bubble(t, whole, func(t *testing.T, f *fixture) {
		f.run()
		for _, part := range []int{10, 200, 350, 500, 650} {
			f.write(whole[:len(whole)*part/1000])
			time.Sleep(poll)
		}
		f.edit(whole)
		f.count(8)
		f.silent()
	})
}

func TestBrokenEditChangesNothing(t *testing.T) {
	good := doc("a", "one") + doc("b", "one") + doc("c", "one") + secretDoc("s", "old")
	edited := doc("a", "two") + doc("new", "one") + secretDoc("s", "new")
	for _, c := range []struct {
		name  string
		text  string
		wants []string
	}{
		{"not YAML", edited + "---\nkind: [", []string{"fleet.yaml:17: document 4: is not YAML"}},
		{"unknown field", edited + strings.Replace(doc("x", "y"), "spec:", "spek:", 1), []string{"document 4, Proxy default/x: spek: unknown field"}},
		{"declared twice", edited + doc("new", "one"), []string{"Proxy default/new: is declared twice; the other one is at ", "fleet.yaml:7: document 2"}},
		{"emptied", "", []string{"fleet.yaml: holds no document", "put the documents back"}},
		{"mode cannot change", edited + external(doc("b", "one")),
			[]string{"document 4, Proxy default/b: spec.mode: cannot change from Managed to External; delete the proxy and declare it anew"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, good, func(t *testing.T, f *fixture) {
				f.run()
				f.write(c.text)
				f.polls(10)
				f.wants("a=one", "b=one", "c=one")
				f.password("s", "old")
				f.complains(append(c.wants, "refused the documents: nothing is applied", "stays in force")...)

				f.write(c.text + "# still broken\n")
				f.polls(10)
				f.complains()

				f.edit(edited)
				f.wants("a=two", "new=one")
				f.password("s", "new")
				f.silent()
			})
		})
	}
}

// password checks what a Secret holds, or with "" that there is none.
func (f *fixture) password(name, want string) {
	f.t.Helper()
	s, err := f.secrets.Get(f.t.Context(), "default", name)
	if want == "" {
		if !errors.Is(err, proxy.ErrSecretNotFound) {
			f.t.Errorf("Secret %s is there, or fails with %v", name, err)
		}
		return
	}
	if err != nil || s.Data["password"].Reveal() != want {
		f.t.Errorf("Secret %s does not hold %q: %v", name, want, err)
	}
}

func TestMissingFileChangesNothing(t *testing.T) {
	bubble(t, docs(2), func(t *testing.T, f *fixture) {
		f.run()
		if err := os.Rename(f.file, f.file+"~"); err != nil {
			t.Fatal(err)
		}
		f.polls(10)
		f.count(2)
		f.complains("fleet.yaml: cannot be read: no such file or directory")
		if err := os.Rename(f.file+"~", f.file); err != nil {
			t.Fatal(err)
		}
		f.polls(3)
		f.silent()
	})
}

func TestBrake(t *testing.T) {
	for _, c := range []struct {
		name                   string
		before, after, allowed int
		refused                bool
	}{
		{"all of a few", 3, 0, 0, false},
		{"three of four", 4, 1, 0, false},
		{"four of four", 4, 0, 0, true},
		{"half the fleet", 10, 5, 0, true},
		{"a fifth", 20, 16, 0, false},
		{"more than a fifth", 19, 15, 0, true},
		{"as many as allowed", 10, 5, 5, false},
		{"more than allowed", 10, 4, 5, true},
	} {
		after := config + docs(c.after) + doc("new", "local")
		check := func(f *fixture) {
			f.t.Helper()
			if c.refused {
				f.count(c.before)
			} else {
				f.count(c.after + 1)
			}
		}
		message := fmt.Sprintf("--allow-delete %d", c.before-c.after)
		t.Run("at start/"+c.name, func(t *testing.T) {
			f := newFixture(t, config+docs(c.before))
			if err := f.apply(); err != nil {
				t.Fatal(err)
			}
			f.allow = c.allowed
			f.write(after)
			err := f.apply()
			if (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), message) {
				t.Errorf("error %v", err)
			}
			check(f)
		})
		if c.allowed > 0 {
			continue
		}
		t.Run("while running/"+c.name, func(t *testing.T) {
			bubble(t, config+docs(c.before), func(t *testing.T, f *fixture) {
				f.run()
				f.edit(after)
				check(f)
				if c.refused {
					f.complains(message, "put the documents back", fmt.Sprintf("%d of %d declared proxies", c.before-c.after, c.before))
				}
			})
		})
	}
}

func TestAllowDeleteIsForTheFirstSet(t *testing.T) {
	bubble(t, config+docs(10), func(t *testing.T, f *fixture) {
		f.allow = 10
		f.run()
		f.edit(config + docs(1))
		f.count(10)
		f.complains("9 of 10 declared proxies")
	})
}

func TestRefusedAtStart(t *testing.T) {
	f := newFixture(t, docs(10))
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"emptied": "", "half of it": docs(5), "not YAML": "{"} {
		t.Run(name, func(t *testing.T) {
			f.write(text)
			if err := f.apply(); err == nil {
				t.Error("was accepted")
			}
			f.count(10)
		})
	}
}

func TestNoProxiesAtStart(t *testing.T) {
	f := newFixture(t, config)
	if err := f.apply(); err != nil {
		t.Error(err)
	}
}

// faults say what a faulty store does.
type faults struct {
	put, remove, declared, get error
	fail                       string              // the name whose Put fails; all if empty
	before                     func(key proxy.Key) // is called before each write
}

// faulty is a store that fails as it is told.
type faulty struct {
	*proxy.Memory
	mu     sync.Mutex
	faults faults
}

func (s *faulty) set(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *faulty) now() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func (f faults) write(k proxy.Key) {
	if f.before != nil {
		f.before(k)
	}
}

func (s *faulty) Put(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
	f := s.now()
	f.write(k)
	if f.put != nil && cmp.Or(f.fail, k.Name) == k.Name {
		return nil, f.put
	}
	return s.Memory.Put(ctx, k, d, source)
}

func (s *faulty) Delete(ctx context.Context, k proxy.Key) error {
	f := s.now()
	f.write(k)
	if f.remove != nil {
		return f.remove
	}
	return s.Memory.Delete(ctx, k)
}

func (s *faulty) Declared(ctx context.Context, source string) ([]proxy.Key, error) {
	if err := s.now().declared; err != nil {
		return nil, err
	}
	return s.Memory.Declared(ctx, source)
}

func (s *faulty) Get(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) {
	if err := s.now().get; err != nil {
		return nil, err
	}
	return s.Memory.Get(ctx, k)
}

// faulty puts a store that can fail in front of the memory.
func (f *fixture) faulty() *faulty {
	s := &faulty{Memory: f.memory}
	f.store = s
	return s
}

func TestStoreErrorsAreTriedAgain(t *testing.T) {
	full := errors.New("no space left on device")
	for _, c := range []struct {
		name     string
		faults   faults
		wants    []string // while the fault lasts
		complain string
	}{
		{"all writes", faults{put: full, remove: full}, []string{"a=one"}, "document 1, Proxy default/b: no space left on device"},
		{"put of one", faults{put: full, fail: "b"}, []string{"c=one"}, "document 1, Proxy default/b: no space left on device"},
		{"delete", faults{remove: full}, []string{"a=one", "b=one", "c=one"}, "cannot delete Proxy default/a: no space left on device"},
		{"declared", faults{declared: full}, []string{"a=one"}, "the store does not say what is declared: no space left on device"},
		{"get", faults{get: full}, []string{"a=one"}, "the store does not return a proxy: no space left on device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, doc("a", "one"), func(t *testing.T, f *fixture) {
				store := f.faulty()
				f.run()
				store.set(c.faults)
				f.write(doc("b", "one") + doc("c", "one"))
				f.polls(10)
				f.wants(c.wants...)
				f.complains(c.complain, "tried again")

				store.set(faults{})
				f.polls(1)
				f.wants("b=one", "c=one")
				if got := f.log.take(); strings.Count(got, `"created":2,"changed":0,"deleted":1,"waiting":0`) != 1 {
					t.Errorf("what was done in the end is not logged: %s", got)
				}
			})
		})
	}
}

// A store may name the proxy as the place of its document does.
func TestStoreErrorNamesTheProxyOnce(t *testing.T) {
	f := newFixture(t, doc("a", "one"))
	f.faulty().set(faults{put: fmt.Errorf("default/a: %w", errors.New("no space left on device"))})
	if err := f.apply(); err == nil || !strings.HasSuffix(err.Error(), "document 1, Proxy default/a: no space left on device") {
		t.Errorf("error %v", err)
	}
}

// A process that is told to end does not wait for all of its documents.
func TestApplyEndsBetweenTwoDocuments(t *testing.T) {
	f := newFixture(t, docs(10))
	ctx, cancel := context.WithCancel(t.Context())
	f.faulty().set(faults{before: func(k proxy.Key) {
		if k.Name == "p02" {
			cancel()
		}
	}})
	if err := f.applyWithin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.wants("p00=local", "p01=local", "p02=local")
	f.store = f.memory
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	f.count(10)

	f.write(config)
	f.allow = 10
	gone := 0
	ctx, cancel = context.WithCancel(t.Context())
	f.faulty().set(faults{before: func(proxy.Key) {
		if gone++; gone == 3 {
			cancel()
		}
	}})
	if err := f.applyWithin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.count(7)
}

func TestStoreErrorAtStart(t *testing.T) {
	f := newFixture(t, doc("a", "one"))
	full := errors.New("no space left on device")
	f.faulty().set(faults{put: full})
	if err := f.apply(); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

func TestBrokenEditDoesNotStopWhatIsPending(t *testing.T) {
	bubble(t, doc("a", "one"), func(t *testing.T, f *fixture) {
		store := f.faulty()
		f.run()
		store.set(faults{put: errors.New("no space left on device")})
		f.edit(doc("a", "one") + doc("b", "one"))
		f.edit("broken")
		f.logged(slog.LevelError)
		store.set(faults{})
		f.polls(2)
		f.wants("a=one", "b=one")
	})
}

func TestOtherSource(t *testing.T) {
	bubble(t, doc("a", "one"), func(t *testing.T, f *fixture) {
		f.run()
		_, err := f.memory.Put(t.Context(), proxy.Key{Namespace: "default", Name: "theirs"}, proxy.Declaration{Spec: proxy.Spec{Provider: "x"}}, "embedder")
		if err != nil {
			t.Fatal(err)
		}
		f.write(doc("a", "two") + doc("theirs", "one"))
		f.polls(10)
		f.wants("a=two", "theirs=x")
		f.complains("document 2, Proxy default/theirs: ", "declared by another source: embedder")
		f.edit(doc("a", "two"))
		f.wants("a=two", "theirs=x")
	})
}

// external makes a Proxy document one of mode External.
func external(doc string) string {
	return strings.Replace(doc, "{provider: one}", "{mode: External, endpoint: {scheme: http, host: h, port: 1}}", 1)
}

// TestDeletedAndDeclaredOtherwise changes the mode in the one way in which it can be: by another life of the name.
func TestDeletedAndDeclaredOtherwise(t *testing.T) {
	bubble(t, doc("a", "one")+doc("b", "one"), func(t *testing.T, f *fixture) {
		f.run()
		f.finalizer("a", true)
		f.edit(doc("b", "one"))
		f.edit(external(doc("a", "one")) + doc("b", "two"))
		f.wants("a=one deleting", "b=two")
		f.silent()
		f.finalizer("a", false)
		f.polls(1)
		f.wants("a=", "b=two")
	})
}

func TestDeletedAndDeclaredAgain(t *testing.T) {
	bubble(t, doc("a", "one")+doc("b", "one"), func(t *testing.T, f *fixture) {
		f.run()
		a := f.finalizer("a", true)
		f.edit(doc("b", "one"))
		f.wants("a=one deleting", "b=one")
		f.edit(doc("a", "two") + doc("b", "two"))
		f.wants("a=one deleting", "b=two")
		f.polls(10)
		f.silent()

		f.finalizer("a", false)
		f.polls(1)
		f.wants("a=two", "b=two")
		if p, err := f.memory.Get(t.Context(), a.Key); err != nil || p.Generation != 1 {
			t.Errorf("the record is not a new one: %+v, %v", p, err)
		}
	})
}

func (f *fixture) finalizer(name string, set bool) *proxy.Proxy {
	f.t.Helper()
	p, err := proxy.Update(f.t.Context(), f.memory, proxy.Key{Namespace: "default", Name: name}, f.memory.UpdateMeta,
		func(p *proxy.Proxy) error { p.Finalizer = set; return nil })
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func TestConfigurationNeedsRestart(t *testing.T) {
	changed := config + "healthCheck: {interval: 5s}\n"
	bubble(t, config+doc("a", "one"), func(t *testing.T, f *fixture) {
		f.run()
		warnings := func(want int) {
			t.Helper()
			if got := f.logged(slog.LevelWarn); len(got) != want || want > 0 && !strings.Contains(got[0], "starts again") {
				t.Errorf("%d warnings, want %d: %q", len(got), want, got)
			}
		}
		f.edit(changed + doc("a", "two"))
		f.wants("a=two")
		warnings(1)
		f.edit(changed + doc("a", "three"))
		f.wants("a=three")
		warnings(0)
		f.edit(config + "# as it was\n" + doc("a", "three"))
		warnings(0)
		f.edit(doc("a", "three"))
		warnings(1)
	})
}

func TestManyProblemsAreLoggedShort(t *testing.T) {
	bubble(t, doc("a", "one"), func(t *testing.T, f *fixture) {
		f.run()
		f.edit(strings.Repeat(strings.Replace(doc("x", "y"), "Proxy", "Proxi", 1), 30))
		f.complains("document 20: kind", "and 10 more")
	})
}

// TestSetOfOnesOwn applies a set that no document holds.
func TestSetOfOnesOwn(t *testing.T) {
	a, err := manifest.NewApplier(manifest.ApplierConfig{Store: proxy.NewMemory(proxy.MemoryConfig{}), Secrets: manifest.NewSecrets()})
	if err != nil {
		t.Fatal(err)
	}
	set := func(s proxy.Spec) *manifest.Set {
		return &manifest.Set{Proxies: map[proxy.Key]proxy.Declaration{{Namespace: "default", Name: "a"}: {Spec: s}}}
	}
	if err := a.Apply(t.Context(), set(proxy.Spec{Provider: "local"})); err != nil {
		t.Fatal(err)
	}
	err = a.Apply(t.Context(), set(proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "h", Port: 1}}))
	if !errors.Is(err, proxy.ErrImmutable) || !strings.HasPrefix(err.Error(), "Proxy default/a: spec.mode: ") {
		t.Errorf("error %v", err)
	}
}

func TestNewApplierNamesAllProblems(t *testing.T) {
	_, err := manifest.NewApplier(manifest.ApplierConfig{AllowDelete: -1, Poll: -1})
	want := "ApplierConfig.Store is required\nApplierConfig.Secrets are required\nApplierConfig.AllowDelete must not be negative, but is -1\nApplierConfig.Poll must not be negative, but is -1ns"
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}

func TestNoSecretIsLogged(t *testing.T) {
	const planted = "hunter2planted"
	bubble(t, withSecret("a", "s")+secretDoc("s", planted), func(t *testing.T, f *fixture) {
		f.secretsDir = t.TempDir()
		writeFile(t, filepath.Join(f.secretsDir, "default", "t", "password"), planted)
		f.run()
		for _, text := range []string{
			secretDoc("s", planted) + secretDoc("s", planted), secretDoc("s", "*"+planted), secretDoc("s", "!!int "+planted),
			strings.Replace(secretDoc("s", planted), "stringData", "data", 1), secretDoc("t", planted),
		} {
			f.edit(text)
			got := f.log.take()
			if !strings.Contains(got, "refused") {
				f.t.Errorf("was not refused: %s", text)
			}
			if strings.Contains(got, planted) {
				f.t.Errorf("a secret was logged: %s", got)
			}
		}
	})
}
