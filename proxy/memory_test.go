package proxy_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/proxy/storetest"
)

func lab() proxy.Declaration { return proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}} }

func putUID(t *testing.T, fleet string, k proxy.Key) string {
	t.Helper()
	p, err := proxy.NewMemory(proxy.MemoryConfig{Fleet: fleet}).Put(t.Context(), k, lab(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return p.UID
}

// Instances in clouds bear these for years: they may never change.
func TestUIDIsStable(t *testing.T) {
	for _, c := range []struct {
		fleet string
		key   proxy.Key
		want  string
	}{
		{"prod", proxy.Key{Namespace: "crawl", Name: "eu-1"}, "a8057e75-dda9-517d-850a-a8e1e9aac0ff"},
		{"prod", proxy.Key{Namespace: "crawl-eu", Name: "1"}, "6594a230-75b0-5209-8787-24e7cfa33070"},
		{"lab", proxy.Key{Namespace: "crawl", Name: "eu-1"}, "cf34513c-1673-5515-8b1c-41d5a03ff95f"},
	} {
		if got := putUID(t, c.fleet, c.key); got != c.want {
			t.Errorf("the UID of %v in fleet %s is %s, want %s", c.key, c.fleet, got, c.want)
		}
	}
}

func TestUIDs(t *testing.T) {
	v5 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]proxy.Key{}
	for _, fleet := range []string{"a", "ab"} {
		for _, k := range []proxy.Key{{Namespace: "a", Name: "b"}, {Namespace: "ab", Name: "a"}, {Namespace: "a", Name: "ba"}, {Namespace: "b", Name: "a"}} {
			uid := putUID(t, fleet, k)
			if !v5.MatchString(uid) {
				t.Errorf("%q is no UUID of version 5", uid)
			}
			if other, twice := seen[uid]; twice {
				t.Errorf("%v and %v have one UID", k, other)
			}
			seen[uid] = k
		}
	}
	k := proxy.Key{Namespace: "a", Name: "b"}
	if one := putUID(t, "", k); one == putUID(t, "", k) {
		t.Error("two fleets without an identity give one UID")
	}
}

// ledger is a journal that can fail.
type ledger struct {
	err            error
	saved, removed []proxy.Key
}

func (l *ledger) Save(r proxy.Record) error {
	if l.err == nil {
		l.saved = append(l.saved, r.Key)
	}
	return l.err
}

func (l *ledger) Remove(k proxy.Key) error {
	if l.err == nil {
		l.removed = append(l.removed, k)
	}
	return l.err
}

// A write that was not kept did not happen: not for its caller, not for readers, not for watchers.
// TestCreated: a record keeps the time at which its name was declared, until the name is declared in another life.
func TestCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := proxy.NewMemory(proxy.MemoryConfig{})
		k := proxy.Key{Namespace: "crawl", Name: "a"}
		put := func(d proxy.Declaration, want time.Time) {
			t.Helper()
			p, err := m.Put(t.Context(), k, d, "test")
			if err != nil {
				t.Fatal(err)
			}
			if p.Created != proxy.At(want) {
				t.Errorf("created %v, want %v", p.Created, want)
			}
		}
		begun := time.Now()
		put(lab(), begun)
		time.Sleep(time.Hour)
		put(lab(), begun)
		edited := lab()
		edited.Spec.Port = 8080
		put(edited, begun)
		if err := m.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		put(lab(), time.Now())
	})
}

func TestJournalFailureChangesNothing(t *testing.T) {
	full := errors.New("disk full")
	var (
		a        = proxy.Key{Namespace: "crawl", Name: "a"}
		deleting = proxy.Key{Namespace: "crawl", Name: "deleting"}
	)
	for _, c := range []struct {
		name string
		do   func(t *testing.T, m *proxy.Memory) error
	}{
		{"Put of a new name", func(t *testing.T, m *proxy.Memory) error {
			_, err := m.Put(t.Context(), proxy.Key{Namespace: "crawl", Name: "new"}, lab(), "test")
			return err
		}},
		{"Put of an edit", func(t *testing.T, m *proxy.Memory) error {
			d := lab()
			d.Spec.Port = 1
			d.Spec.Credentials = loginRef("login", "", "").Credentials
			_, err := m.Put(t.Context(), a, d, "test")
			return err
		}},
		{"UpdateStatus", func(t *testing.T, m *proxy.Memory) error {
			p, err := m.Get(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			p.Status.Phase = proxy.Ready
			_, err = m.UpdateStatus(t.Context(), p)
			return err
		}},
		{"UpdateMeta that removes", func(t *testing.T, m *proxy.Memory) error {
			p, err := m.Get(t.Context(), deleting)
			if err != nil {
				t.Fatal(err)
			}
			p.Finalizer = false
			_, err = m.UpdateMeta(t.Context(), p)
			return err
		}},
		{"Delete", func(t *testing.T, m *proxy.Memory) error { return m.Delete(t.Context(), a) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, secrets := &ledger{}, storetest.NewSecrets()
				m := proxy.NewMemory(proxy.MemoryConfig{Journal: j, Secrets: secrets})
				for _, k := range []proxy.Key{a, deleting} {
					if _, err := m.Put(t.Context(), k, lab(), "test"); err != nil {
						t.Fatal(err)
					}
				}
				p, _ := m.Get(t.Context(), deleting)
				p.Finalizer = true
				if _, err := m.UpdateMeta(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				if err := m.Delete(t.Context(), deleting); err != nil {
					t.Fatal(err)
				}
				before, _ := m.List(t.Context())

				calls := 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go m.Watch(ctx, func(proxy.Key) { calls++ })
				synctest.Wait()
				calls = 0

				j.err = full
				if err := c.do(t, m); !errors.Is(err, full) {
					t.Errorf("got error %v, want %v", err, full)
				}
				secrets.Set("crawl", "login", proxy.Secret{})
				synctest.Wait()
				after, _ := m.List(t.Context())
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("something changed (-before +after):\n%s", diff)
				}
				if calls != 0 {
					t.Errorf("a watcher was told of %d changes", calls)
				}

				j.err = nil
				if err := c.do(t, m); err != nil {
					t.Errorf("after the repair: %v", err)
				}
				synctest.Wait()
				if calls == 0 {
					t.Error("a watcher was not told of the change after the repair")
				}
			})
		})
	}
}

func TestJournalIsToldWhatToKeep(t *testing.T) {
	j := &ledger{}
	m := proxy.NewMemory(proxy.MemoryConfig{Journal: j})
	k := proxy.Key{Namespace: "crawl", Name: "a"}
	for range 3 { // only the first one changes anything
		if _, err := m.Put(t.Context(), k, lab(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]proxy.Key{{k}, {k}}, [][]proxy.Key{j.saved, j.removed}); diff != "" {
		t.Errorf("saved and removed (-want +got):\n%s", diff)
	}
}

func TestWatchFailsWithItsSecrets(t *testing.T) {
	lost := errors.New("permission denied")
	for _, c := range []struct {
		name string
		err  error
	}{
		{"with their error", lost},
		{"with one of its own where they have none", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := proxy.NewMemory(proxy.MemoryConfig{Secrets: failing{c.err}})
				err := m.Watch(t.Context(), func(proxy.Key) {})
				if err == nil || c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("Watch: %v, want %v", err, c.err)
				}
			})
		})
	}
}

// An end that was asked for is no failure, whatever the Secrets make of it.
type sulking struct{ *storetest.Secrets }

func (s sulking) Watch(ctx context.Context, fn func(string, string)) error {
	_ = s.Secrets.Watch(ctx, fn)
	return ctx.Err()
}

func TestWatchEndsWithoutError(t *testing.T) {
	for name, secrets := range map[string]proxy.Secrets{"no Secrets": nil, "Secrets": storetest.NewSecrets(), "Secrets that fail at the end": sulking{storetest.NewSecrets()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := proxy.NewMemory(proxy.MemoryConfig{Secrets: secrets})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := m.Watch(ctx, func(proxy.Key) {}); err != nil {
					t.Errorf("Watch: %v", err)
				}
			})
		})
	}
}

func TestWatchCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := oneRecord(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls, open := 0, make(chan struct{})
		go m.Watch(ctx, func(proxy.Key) {
			calls++
			<-open
		})
		synctest.Wait()
		for range 100 {
			p, err := m.Get(ctx, k)
			if err != nil {
				t.Fatal(err)
			}
			p.Status.LatencyMillis++
			if _, err := m.UpdateStatus(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		close(open)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("fn was called %d times, want once for the start and once for 100 changes", calls)
		}
	})
}

// Who reads a Secret before its watch is under way must still hear of a change.
func TestWatchLeavesNoGapAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := storetest.NewSecrets()
		m := proxy.NewMemory(proxy.MemoryConfig{Secrets: late{secrets}})
		k := proxy.Key{Namespace: "crawl", Name: "a"}
		if _, err := m.Put(t.Context(), k, proxy.Declaration{Spec: proxy.Spec{Provider: "lab", Credentials: loginRef("login", "", "").Credentials}}, "test"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		go m.Watch(ctx, func(proxy.Key) { calls++ })
		synctest.Wait()
		secrets.Set("crawl", "login", proxy.Secret{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("fn was called %d times, want at the start and for the Secret", calls)
		}
	})
}

// late Secrets take a while until they watch.
type late struct{ *storetest.Secrets }

func (s late) Watch(ctx context.Context, fn func(string, string)) error {
	time.Sleep(time.Second)
	return s.Secrets.Watch(ctx, fn)
}

// What a store is opened with stays the caller's.
func TestRecordsAreCopied(t *testing.T) {
	d := lab()
	d.Spec.Attributes, d.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	r := proxy.Record{Source: "test", Declared: map[string]string{"c": "d"}, Proxy: proxy.Proxy{
		Key: proxy.Key{Namespace: "crawl", Name: "a"}, UID: "u", Version: "v", Generation: 7,
		Spec: d.Spec.Canonical(), Annotations: map[string]string{"c": "d"}}}
	m := proxy.NewMemory(proxy.MemoryConfig{Records: []proxy.Record{r}})
	want := r.Proxy.Clone()
	r.Annotations["x"], r.Spec.Attributes["x"], r.Declared["c"] = "x", "x", "x"
	got, err := m.Put(t.Context(), r.Key, d, "test")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the same declaration changes the record (-want +got):\n%s", diff)
	}
}

func BenchmarkMemory(b *testing.B) {
	storetest.Benchmark(b, proxy.NewMemory(proxy.MemoryConfig{}))
}

// slow is a journal whose disk takes a minute.
type slow struct{ ledger }

func (s *slow) Save(r proxy.Record) error {
	time.Sleep(time.Minute)
	return s.ledger.Save(r)
}

func TestReadsDoNotWaitForTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := proxy.NewMemory(proxy.MemoryConfig{Journal: &slow{}})
		k := proxy.Key{Namespace: "crawl", Name: "a"}
		if _, err := m.Put(t.Context(), k, lab(), "test"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := proxy.Update(t.Context(), m, k, m.UpdateStatus, func(p *proxy.Proxy) error { p.Status.Phase = proxy.Ready; return nil })
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		p, err := m.Get(t.Context(), k)
		if err != nil || p.Status.Phase != "" || time.Since(start) != 0 {
			t.Errorf("during a write Get answers phase %q, %v after %v; want at once what was before", p.Status.Phase, err, time.Since(start))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if p, err = m.Get(t.Context(), k); err != nil || p.Status.Phase != proxy.Ready {
			t.Errorf("after the write Get answers phase %q, %v", p.Status.Phase, err)
		}
	})
}
