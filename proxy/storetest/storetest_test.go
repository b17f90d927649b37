package storetest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

func TestMemory(t *testing.T) {
	Run(t, Harness{New: func(testing.TB) Subject {
		secrets := NewSecrets()
		return Subject{proxy.NewMemory(proxy.MemoryConfig{Secrets: secrets}), secrets}
	}})
}

func TestMemoryWithJournal(t *testing.T) {
	Run(t, journalled(func(*journal) {}))
}

// The suite is as good as what it finds: each of these stores breaks one promise, and the case that is about it must fail.
func TestBrokenStores(t *testing.T) {
	byName := map[string]testCase{}
	for _, c := range cases() {
		if _, twice := byName[c.name]; twice {
			t.Errorf("two cases are named %q", c.name)
		}
		if c.explanation == "" {
			t.Errorf("case %q explains nothing", c.name)
		}
		byName[c.name] = c
	}
	caught := map[string]bool{}
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			c, ok := byName[b.caught]
			if !ok {
				t.Fatalf("there is no case %q", b.caught)
			}
			caught[c.name] = true
			failures := record(t, c, b.harness())
			if len(failures) == 0 {
				t.Errorf("case %q passes", c.name)
			}
			for _, f := range failures {
				if strings.Contains(f, "panic") {
					t.Errorf("case %q panics: %s", c.name, f)
				}
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if !caught[name] {
			t.Errorf("no broken store is caught by case %q, so it may be a case that cannot fail", name)
		}
	}
}

// The same recorder must find nothing in a store that keeps its promises, or it would prove nothing above.
func TestRecorderIsInnocent(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if failures := record(t, c, journalled(func(*journal) {})); len(failures) > 0 {
				t.Errorf("a sound store fails:\n%s", strings.Join(failures, "\n"))
			}
		})
	}
}

// record runs a case in a bubble, where what never comes costs no time, and returns its failures.
func record(t *testing.T, c testCase, h Harness) []string {
	t.Helper()
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.Errorf("panic: %v", p)
				}
			}()
			c.run(newFixture(r, h))
		}()
		<-done
		time.Sleep(time.Hour) // what a broken store began ends before the bubble does
	})
	return r.failures
}

// recorder is a testing.TB that notes failures in the place of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) FailNow()                          { runtime.Goexit() }

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	r.FailNow()
}

func (r *recorder) Fatal(args ...any) {
	r.note(fmt.Sprint(args...))
	r.FailNow()
}

// journal keeps records as a file would, for stores that can be reopened. A fault edits what it keeps.
type journal struct {
	secrets *Secrets
	records map[proxy.Key]proxy.Record
	fault   func(*proxy.Record)
	keep    bool // it forgets to remove
	fleet   func() string
	wrap    func(*proxy.Memory) Store
}

func (j *journal) Save(r proxy.Record) error {
	c := proxy.Record{Proxy: *r.Proxy.Clone(), Source: r.Source, Declared: maps.Clone(r.Declared)}
	if j.fault != nil {
		j.fault(&c)
	}
	j.records[r.Key] = c
	return nil
}

func (j *journal) Remove(k proxy.Key) error {
	if !j.keep {
		delete(j.records, k)
	}
	return nil
}

func (j *journal) open() Subject {
	m := proxy.NewMemory(proxy.MemoryConfig{Fleet: j.fleet(), Secrets: j.secrets, Journal: j, Records: slices.Collect(maps.Values(j.records))})
	return Subject{j.wrap(m), j.secrets}
}

// journalled is a harness of memory stores with a journal that break makes faulty.
func journalled(breakIt func(*journal)) Harness {
	var current *journal
	return Harness{
		New: func(testing.TB) Subject {
			current = &journal{
				secrets: NewSecrets(), records: map[proxy.Key]proxy.Record{},
				fleet: func() string { return "test" }, wrap: func(m *proxy.Memory) Store { return m },
			}
			breakIt(current)
			return current.open()
		},
		Reopen: func(testing.TB, Subject) Subject { return current.open() },
	}
}
