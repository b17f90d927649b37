package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// broken is a store that breaks a promise, and the case that must find it out.
type broken struct {
	name   string
	caught string
	// wrap breaks a sound store, or journal one that restarts.
	wrap    func(m *proxy.Memory) Store
	journal func(j *journal)
	// secrets breaks the Secrets that the store is given.
	secrets func(s *Secrets) proxy.Secrets
}

func (b broken) harness() Harness {
	if b.journal != nil {
		return journalled(b.journal)
	}
	return journalled(func(j *journal) {
		if b.secrets != nil {
			j.wrap = func(*proxy.Memory) Store {
				return proxy.NewMemory(proxy.MemoryConfig{Fleet: "test", Secrets: b.secrets(j.secrets)})
			}
			return
		}
		j.wrap = b.wrap
	})
}

// faulty is a store whose methods may be replaced.
type faulty struct {
	*proxy.Memory
	get          func(context.Context, proxy.Key) (*proxy.Proxy, error)
	list         func(context.Context) ([]*proxy.Proxy, error)
	live         func(context.Context) (map[string]proxy.Held, error)
	watch        func(context.Context, func(proxy.Key)) error
	updateMeta   func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)
	updateStatus func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)
	inputs       func(context.Context, *proxy.Proxy) (proxy.Inputs, error)
	put          func(context.Context, proxy.Key, proxy.Declaration, string) (*proxy.Proxy, error)
	delete       func(context.Context, proxy.Key) error
	declared     func(context.Context, string) ([]proxy.Key, error)
}

func (s *faulty) Get(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) {
	if s.get != nil {
		return s.get(ctx, k)
	}
	return s.Memory.Get(ctx, k)
}

func (s *faulty) List(ctx context.Context) ([]*proxy.Proxy, error) {
	if s.list != nil {
		return s.list(ctx)
	}
	return s.Memory.List(ctx)
}

func (s *faulty) Live(ctx context.Context) (map[string]proxy.Held, error) {
	if s.live != nil {
		return s.live(ctx)
	}
	return s.Memory.Live(ctx)
}

func (s *faulty) Watch(ctx context.Context, fn func(proxy.Key)) error {
	if s.watch != nil {
		return s.watch(ctx, fn)
	}
	return s.Memory.Watch(ctx, fn)
}

func (s *faulty) UpdateMeta(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	if s.updateMeta != nil {
		return s.updateMeta(ctx, p)
	}
	return s.Memory.UpdateMeta(ctx, p)
}

func (s *faulty) UpdateStatus(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	if s.updateStatus != nil {
		return s.updateStatus(ctx, p)
	}
	return s.Memory.UpdateStatus(ctx, p)
}

func (s *faulty) Inputs(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, error) {
	if s.inputs != nil {
		return s.inputs(ctx, p)
	}
	return s.Memory.Inputs(ctx, p)
}

func (s *faulty) Put(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
	if s.put != nil {
		return s.put(ctx, k, d, source)
	}
	return s.Memory.Put(ctx, k, d, source)
}

func (s *faulty) Delete(ctx context.Context, k proxy.Key) error {
	if s.delete != nil {
		return s.delete(ctx, k)
	}
	return s.Memory.Delete(ctx, k)
}

func (s *faulty) Declared(ctx context.Context, source string) ([]proxy.Key, error) {
	if s.declared != nil {
		return s.declared(ctx, source)
	}
	return s.Memory.Declared(ctx, source)
}

type (
	update  = func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)
	putFunc = func(context.Context, proxy.Key, proxy.Declaration, string) (*proxy.Proxy, error)
)

// onStatus, onMeta and onPut replace one method.
func onStatus(f func(m *proxy.Memory) update) func(*proxy.Memory) Store {
	return func(m *proxy.Memory) Store { return &faulty{Memory: m, updateStatus: f(m)} }
}

func onMeta(f func(m *proxy.Memory) update) func(*proxy.Memory) Store {
	return func(m *proxy.Memory) Store { return &faulty{Memory: m, updateMeta: f(m)} }
}

func onPut(f func(m *proxy.Memory) putFunc) func(*proxy.Memory) Store {
	return func(m *proxy.Memory) Store { return &faulty{Memory: m, put: f(m)} }
}

// unversioned writes from the version that is stored, whatever was read.
func unversioned(m *proxy.Memory, write update) update {
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		for {
			now, err := m.Get(ctx, p.Key)
			if err != nil {
				return nil, err
			}
			p = p.Clone()
			p.UID, p.Version = now.UID, now.Version
			got, err := write(ctx, p)
			if !errors.Is(err, proxy.ErrConflict) {
				return got, err
			}
		}
	}
}

// anyUID writes whatever life the record that was read belongs to.
func anyUID(m *proxy.Memory, write update) update {
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		now, err := m.Get(ctx, p.Key)
		if err != nil {
			return nil, err
		}
		p = p.Clone()
		p.UID = now.UID
		return write(ctx, p)
	}
}

// uncompared answers a write that changes nothing without comparing versions.
func uncompared(m *proxy.Memory, write update, same func(a, b *proxy.Proxy) bool) update {
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		if now, err := m.Get(ctx, p.Key); err == nil && same(now, p) {
			return now, nil
		}
		return write(ctx, p)
	}
}

// checkThenAct compares versions, and writes later.
func checkThenAct(m *proxy.Memory, write update) update {
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		now, err := m.Get(ctx, p.Key)
		if err != nil {
			return nil, err
		}
		if now.UID != p.UID || now.Version != p.Version {
			return nil, proxy.ErrConflict
		}
		time.Sleep(time.Millisecond)
		return unversioned(m, write)(ctx, p)
	}
}

// also writes a second time, what the first write returned edited by p.
func also(write, second update, edit func(stored, p *proxy.Proxy)) update {
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		p = p.Clone()
		got, err := write(ctx, p)
		if err != nil {
			return nil, err
		}
		edit(got, p)
		return second(ctx, got)
	}
}

// onEach lets edit change each record that the store answers with.
func onEach(m *proxy.Memory, edit func(*proxy.Proxy) *proxy.Proxy) *faulty {
	one := func(p *proxy.Proxy, err error) (*proxy.Proxy, error) {
		if err != nil {
			return nil, err
		}
		return edit(p), nil
	}
	return &faulty{
		Memory: m,
		get:    func(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) { return one(m.Get(ctx, k)) },
		list: func(ctx context.Context) ([]*proxy.Proxy, error) {
			all, err := m.List(ctx)
			for i := range all {
				all[i] = edit(all[i])
			}
			return all, err
		},
		updateMeta:   func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) { return one(m.UpdateMeta(ctx, p)) },
		updateStatus: func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) { return one(m.UpdateStatus(ctx, p)) },
		put: func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			return one(m.Put(ctx, k, d, source))
		},
	}
}

// shared answers with the same object for the same state.
func shared(m *proxy.Memory, pick func(s, sound *faulty)) Store {
	var mu sync.Mutex
	objects := map[string]*proxy.Proxy{}
	all := onEach(m, func(p *proxy.Proxy) *proxy.Proxy {
		mu.Lock()
		defer mu.Unlock()
		if objects[p.Version] == nil {
			objects[p.Version] = p
		}
		return objects[p.Version]
	})
	s := &faulty{Memory: m, get: all.get}
	pick(s, all)
	return s
}

// counted numbers the versions of each life of a name from 1.
func counted(m *proxy.Memory) Store {
	var mu sync.Mutex
	states := map[proxy.Key][]string{}
	s := onEach(m, func(p *proxy.Proxy) *proxy.Proxy {
		mu.Lock()
		defer mu.Unlock()
		if p.Generation == 1 && p.Status.Phase == "" && p.Status.LatencyMillis == 0 && !slices.Contains(states[p.Key], p.Version) {
			states[p.Key] = nil
		}
		if !slices.Contains(states[p.Key], p.Version) {
			states[p.Key] = append(states[p.Key], p.Version)
		}
		p.Version = strconv.Itoa(1 + slices.Index(states[p.Key], p.Version))
		return p
	})
	translated := func(write update) update {
		return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
			mu.Lock()
			p = p.Clone()
			if n, _ := strconv.Atoi(p.Version); n >= 1 && n <= len(states[p.Key]) {
				p.Version = states[p.Key][n-1]
			}
			mu.Unlock()
			return write(ctx, p)
		}
	}
	s.updateMeta, s.updateStatus = translated(s.updateMeta), translated(s.updateStatus)
	return s
}

// filtered is a Watch that passes on what pass lets through.
func filtered(pass func(m *proxy.Memory, k proxy.Key) bool) func(*proxy.Memory) Store {
	return func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			return m.Watch(ctx, func(k proxy.Key) {
				if pass(m, k) {
					fn(k)
				}
			})
		}}
	}
}

// blind Secrets are never seen to change.
type blind struct{ *Secrets }

func (blind) Watch(ctx context.Context, _ func(string, string)) error {
	<-ctx.Done()
	return nil
}

// forgetful Secrets do not say what hides.
type forgetful struct {
	*Secrets
	says func(s *Secrets, namespace, name string) bool
}

func (s forgetful) Watch(ctx context.Context, fn func(string, string)) error {
	return s.Secrets.Watch(ctx, func(namespace, name string) {
		if s.says(s.Secrets, namespace, name) {
			fn(namespace, name)
		}
	})
}

// stuck Secrets answer for ever what they answered first.
type stuck struct {
	*Secrets
	first map[string]proxy.Secret
}

func (s stuck) Get(ctx context.Context, namespace, name string) (proxy.Secret, error) {
	if got, ok := s.first[name]; ok {
		return got, nil
	}
	got, err := s.Secrets.Get(ctx, namespace, name)
	if err == nil {
		s.first[name] = got
	}
	return got, err
}

func bg() context.Context { return context.Background() }

var brokenStores = []broken{
	// Declarations.
	{name: "the spec is stored as it was spelled", caught: "put makes a record", wrap: func(m *proxy.Memory) Store {
		return onEach(m, func(p *proxy.Proxy) *proxy.Proxy { p.Spec.MaxLeases = 0; return p })
	}},
	{name: "a new record has no UID", caught: "put makes a record", wrap: func(m *proxy.Memory) Store {
		return onEach(m, func(p *proxy.Proxy) *proxy.Proxy { p.UID = ""; return p })
	}},
	{name: "a new record has no time of creation", caught: "put makes a record", wrap: func(m *proxy.Memory) Store {
		return onEach(m, func(p *proxy.Proxy) *proxy.Proxy { p.Created = proxy.Time{}; return p })
	}},
	{name: "each declaration is a write", caught: "put of the same declaration writes nothing", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if err != nil || p.Status.Format > 0 {
				return p, err
			}
			p.Status.ObservedGeneration++
			if p, err = m.UpdateStatus(ctx, p); err != nil {
				return nil, err
			}
			p.Status.ObservedGeneration--
			return m.UpdateStatus(ctx, p)
		}
	})},
	{name: "the generation stays", caught: "the generation rises with the spec alone", wrap: func(m *proxy.Memory) Store {
		return onEach(m, func(p *proxy.Proxy) *proxy.Proxy { p.Generation = 1; return p })
	}},
	{name: "the generation rises with the status", caught: "the generation rises with the spec alone", wrap: func(m *proxy.Memory) Store {
		return onEach(m, func(p *proxy.Proxy) *proxy.Proxy {
			if p.Status.Format > 0 {
				p.Generation++
			}
			return p
		})
	}},
	{name: "a declaration resets the status", caught: "put writes neither status nor finalizer", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if err != nil {
				return nil, err
			}
			p.Status = proxy.Status{}
			return m.UpdateStatus(ctx, p)
		}
	})},
	{name: "a declaration takes the finalizer", caught: "put writes neither status nor finalizer", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if err != nil {
				return nil, err
			}
			p.Finalizer = false
			return m.UpdateMeta(ctx, p)
		}
	})},
	{name: "invalid specs are accepted", caught: "put refuses what is not valid", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			if d.Spec.Port > 65535 {
				d.Spec.Port = 65535
			}
			return m.Put(ctx, k, d, source)
		}
	})},
	{name: "the mode may change", caught: "put refuses another mode", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if errors.Is(err, proxy.ErrImmutable) {
				if err := m.Delete(ctx, k); err != nil {
					return nil, err
				}
				return m.Put(ctx, k, d, source)
			}
			return p, err
		}
	})},
	{name: "any source may declare", caught: "put refuses the name of another source", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, _ string) (*proxy.Proxy, error) {
			return m.Put(ctx, k, d, source)
		}
	})},
	{name: "another source is accepted where it changes nothing", caught: "put refuses the name of another source", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if errors.Is(err, proxy.ErrOtherSource) && d.Spec.Port == 0 {
				return m.Get(ctx, k)
			}
			return p, err
		}
	})},
	{name: "a name that is being deleted is accepted", caught: "put refuses a name that is being deleted", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if errors.Is(err, proxy.ErrTerminating) {
				return m.Get(ctx, k)
			}
			return p, err
		}
	})},
	{name: "a declaration resets its annotations", caught: "annotations that others set survive a declaration", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if err != nil {
				return nil, err
			}
			maps.Copy(p.Annotations, d.Annotations)
			return m.UpdateMeta(ctx, p)
		}
	})},
	{name: "a declaration takes the annotations of others", caught: "annotations that others set survive a declaration", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			p, err := m.Put(ctx, k, d, source)
			if err != nil {
				return nil, err
			}
			delete(p.Annotations, "added")
			return m.UpdateMeta(ctx, p)
		}
	})},
	{name: "annotations that are left out stay", caught: "annotations that a declaration leaves out are removed", wrap: onPut(func(m *proxy.Memory) putFunc {
		return func(ctx context.Context, k proxy.Key, d proxy.Declaration, source string) (*proxy.Proxy, error) {
			old, err := m.Get(ctx, k)
			if err != nil {
				return m.Put(ctx, k, d, source)
			}
			p, err := m.Put(ctx, k, d, source)
			if err != nil {
				return nil, err
			}
			p.Annotations = old.Annotations
			return m.UpdateMeta(ctx, p)
		}
	})},
	{name: "declared includes what is being deleted", caught: "declared lists the keys of a source", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, declared: func(ctx context.Context, source string) ([]proxy.Key, error) {
			keys, err := m.Declared(ctx, source)
			all, _ := m.List(ctx)
			for _, p := range all {
				if p.Deleting {
					keys = append(keys, p.Key)
				}
			}
			slices.SortFunc(keys, proxy.Key.Compare)
			return keys, err
		}}
	}},
	{name: "declared ignores the source", caught: "declared lists the keys of a source", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, declared: func(ctx context.Context, _ string) ([]proxy.Key, error) {
			return m.Declared(ctx, source)
		}}
	}},
	{name: "declared is in no order", caught: "declared lists the keys of a source", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, declared: func(ctx context.Context, source string) ([]proxy.Key, error) {
			keys, err := m.Declared(ctx, source)
			slices.Reverse(keys)
			return keys, err
		}}
	}},

	// Writes.
	{name: "status writes compare no versions", caught: "a status write from a stale read conflicts",
		wrap: onStatus(func(m *proxy.Memory) update { return unversioned(m, m.UpdateStatus) })},
	{name: "status writes do not see writes of metadata", caught: "a status write from a stale read conflicts",
		wrap: onStatus(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				if now, err := m.Get(ctx, p.Key); err == nil && now.Annotations["a"] == "b" {
					return unversioned(m, m.UpdateStatus)(ctx, p)
				}
				return m.UpdateStatus(ctx, p)
			}
		})},
	{name: "status writes do not see edits", caught: "a status write from a stale read conflicts",
		wrap: onStatus(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				if now, err := m.Get(ctx, p.Key); err == nil && now.Generation > p.Generation {
					return unversioned(m, m.UpdateStatus)(ctx, p)
				}
				return m.UpdateStatus(ctx, p)
			}
		})},
	{name: "metadata writes compare no versions", caught: "a metadata write from a stale read conflicts",
		wrap: onMeta(func(m *proxy.Memory) update { return unversioned(m, m.UpdateMeta) })},
	{name: "metadata writes do not see status writes", caught: "a metadata write from a stale read conflicts",
		wrap: onMeta(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				if now, err := m.Get(ctx, p.Key); err == nil && !now.Status.Equal(p.Status) {
					return unversioned(m, m.UpdateMeta)(ctx, p)
				}
				return m.UpdateMeta(ctx, p)
			}
		})},
	{name: "an unchanged status is not compared", caught: "a write that changes nothing still compares",
		wrap: onStatus(func(m *proxy.Memory) update {
			return uncompared(m, m.UpdateStatus, func(a, b *proxy.Proxy) bool { return a.Status.Equal(b.Status) })
		})},
	{name: "unchanged metadata is not compared", caught: "a write that changes nothing still compares",
		wrap: onMeta(func(m *proxy.Memory) update {
			return uncompared(m, m.UpdateMeta, func(a, b *proxy.Proxy) bool { return a.Finalizer == b.Finalizer })
		})},
	{name: "an unchanged status gets a version", caught: "a write that changes nothing still compares",
		wrap: onStatus(func(m *proxy.Memory) update {
			return also(m.UpdateStatus, also(m.UpdateStatus, m.UpdateStatus, func(stored, _ *proxy.Proxy) { stored.Status.Format = 0 }),
				func(stored, _ *proxy.Proxy) { stored.Status.Format = 7 })
		})},
	{name: "a status write writes annotations", caught: "a status write writes nothing else",
		wrap: onStatus(func(m *proxy.Memory) update {
			return also(m.UpdateStatus, m.UpdateMeta, func(stored, p *proxy.Proxy) { stored.Annotations = p.Annotations })
		})},
	{name: "a status write writes the spec", caught: "a status write writes nothing else",
		wrap: onStatus(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				if _, err := m.UpdateStatus(ctx, p); err != nil {
					return nil, err
				}
				return m.Put(ctx, p.Key, proxy.Declaration{Spec: p.Spec, Annotations: declaration().Annotations}, source)
			}
		})},
	{name: "a status write writes the time of creation", caught: "a status write writes nothing else", wrap: func(m *proxy.Memory) Store {
		var written proxy.Time
		s := onEach(m, func(p *proxy.Proxy) *proxy.Proxy {
			if !written.IsZero() {
				p.Created = written
			}
			return p
		})
		write := s.updateStatus
		s.updateStatus = func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
			written = p.Created
			return write(ctx, p)
		}
		return s
	}},
	{name: "a metadata write writes the status", caught: "a metadata write writes nothing else",
		wrap: onMeta(func(m *proxy.Memory) update {
			return also(m.UpdateMeta, m.UpdateStatus, func(stored, p *proxy.Proxy) { stored.Status = p.Status })
		})},
	{name: "a metadata write merges annotations", caught: "a metadata write writes nothing else",
		wrap: onMeta(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				p = p.Clone()
				if now, err := m.Get(ctx, p.Key); err == nil && p.Annotations == nil {
					p.Annotations = now.Annotations
				}
				return m.UpdateMeta(ctx, p)
			}
		})},
	{name: "status writes compare no UIDs", caught: "a record of an earlier life conflicts",
		wrap: onStatus(func(m *proxy.Memory) update { return anyUID(m, m.UpdateStatus) })},
	{name: "metadata writes compare no UIDs", caught: "a record of an earlier life conflicts",
		wrap: onMeta(func(m *proxy.Memory) update { return anyUID(m, m.UpdateMeta) })},
	{name: "versions begin anew with each life", caught: "a record of an earlier life conflicts", wrap: counted},
	{name: "an unknown name is a conflict", caught: "writes of an unknown name are not found",
		wrap: onStatus(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				got, err := m.UpdateStatus(ctx, p)
				if errors.Is(err, proxy.ErrNotFound) {
					err = proxy.ErrConflict
				}
				return got, err
			}
		})},
	{name: "an unknown name has an error of its own", caught: "writes of an unknown name are not found", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, get: func(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) {
			p, err := m.Get(ctx, k)
			if err != nil {
				return nil, errors.New("no such key")
			}
			return p, nil
		}}
	}},
	{name: "status versions are compared before the lock", caught: "of writers from one read exactly one wins",
		wrap: onStatus(func(m *proxy.Memory) update { return checkThenAct(m, m.UpdateStatus) })},
	{name: "metadata versions are compared before the lock", caught: "of writers from one read exactly one wins",
		wrap: onMeta(func(m *proxy.Memory) update { return checkThenAct(m, m.UpdateMeta) })},

	// Deletions.
	{name: "delete of an unknown name fails", caught: "delete removes a record without finalizer", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, delete: func(ctx context.Context, k proxy.Key) error {
			if _, err := m.Get(ctx, k); err != nil {
				return err
			}
			return m.Delete(ctx, k)
		}}
	}},
	{name: "delete forgets to delete", caught: "delete removes a record without finalizer", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, delete: func(context.Context, proxy.Key) error { return nil }}
	}},
	{name: "delete ignores the finalizer", caught: "delete marks a record with a finalizer", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, delete: func(ctx context.Context, k proxy.Key) error {
			if p, err := m.Get(ctx, k); err == nil {
				p.Finalizer = false
				if _, err := m.UpdateMeta(ctx, p); err != nil {
					return err
				}
			}
			return m.Delete(ctx, k)
		}}
	}},
	{name: "a second delete removes", caught: "delete marks a record with a finalizer", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, delete: func(ctx context.Context, k proxy.Key) error {
			if p, err := m.Get(ctx, k); err == nil && p.Deleting {
				p.Finalizer = false
				_, err := m.UpdateMeta(ctx, p)
				return err
			}
			return m.Delete(ctx, k)
		}}
	}},
	{name: "the last finalizer leaves the record", caught: "the last finalizer of a record that is being deleted removes it",
		wrap: onMeta(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				p = p.Clone()
				p.Finalizer = p.Finalizer || p.Deleting
				return m.UpdateMeta(ctx, p)
			}
		})},
	{name: "any last finalizer removes the record", caught: "the last finalizer of a record that is being deleted removes it",
		wrap: onMeta(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				now, err := m.Get(ctx, p.Key)
				if err == nil && now.Finalizer && !p.Finalizer {
					if err := m.Delete(ctx, p.Key); err != nil {
						return nil, err
					}
					p = p.Clone()
					if now, err = m.Get(ctx, p.Key); err == nil {
						p.Version = now.Version
					}
				}
				return m.UpdateMeta(ctx, p)
			}
		})},
	{name: "what is being deleted cannot be written", caught: "a record that is being deleted can be written",
		wrap: onStatus(func(m *proxy.Memory) update {
			return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				if now, err := m.Get(ctx, p.Key); err == nil && now.Deleting && !now.Status.Equal(p.Status) {
					return nil, proxy.ErrTerminating
				}
				return m.UpdateStatus(ctx, p)
			}
		})},
	{name: "live misses what is being deleted", caught: "live holds all records as they are now", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, live: func(ctx context.Context) (map[string]proxy.Held, error) {
			live, err := m.Live(ctx)
			for uid, h := range live {
				if h.Deleting {
					delete(live, uid)
				}
			}
			return live, err
		}}
	}},
	{name: "live misses External records", caught: "live holds all records as they are now", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, live: func(ctx context.Context) (map[string]proxy.Held, error) {
			live, err := m.Live(ctx)
			for uid, h := range live {
				if h.Mode == proxy.External {
					delete(live, uid)
				}
			}
			return live, err
		}}
	}},
	{name: "live is cached", caught: "live holds all records as they are now", wrap: func(m *proxy.Memory) Store {
		var at time.Time
		var cache map[string]proxy.Held
		return &faulty{Memory: m, live: func(ctx context.Context) (live map[string]proxy.Held, err error) {
			if cache == nil || time.Since(at) > time.Second {
				at = time.Now()
				cache, err = m.Live(ctx)
			}
			return cache, err
		}}
	}},

	// Reads.
	{name: "get answers what was before the last write", caught: "get never goes back behind an own write", wrap: func(m *proxy.Memory) Store {
		var mu sync.Mutex
		var before *proxy.Proxy
		return &faulty{
			Memory: m,
			updateMeta: func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
				mu.Lock()
				before, _ = m.Get(ctx, p.Key)
				mu.Unlock()
				return m.UpdateMeta(ctx, p)
			},
			get: func(ctx context.Context, k proxy.Key) (*proxy.Proxy, error) {
				mu.Lock()
				defer mu.Unlock()
				if p := before; p != nil && p.Key == k {
					before = nil
					return p, nil
				}
				return m.Get(ctx, k)
			},
		}
	}},
	{name: "list answers a while later", caught: "get never goes back behind an own write", wrap: func(m *proxy.Memory) Store {
		var at time.Time
		var cache []*proxy.Proxy
		return &faulty{Memory: m, list: func(ctx context.Context) (all []*proxy.Proxy, err error) {
			if cache == nil || time.Since(at) > time.Second {
				at = time.Now()
				cache, err = m.List(ctx)
			}
			return cache, err
		}}
	}},
	{name: "list is in no order", caught: "list returns all records in order", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, list: func(ctx context.Context) ([]*proxy.Proxy, error) {
			all, err := m.List(ctx)
			slices.Reverse(all)
			return all, err
		}}
	}},
	{name: "list misses what is being deleted", caught: "list returns all records in order", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, list: func(ctx context.Context) ([]*proxy.Proxy, error) {
			all, err := m.List(ctx)
			return slices.DeleteFunc(all, func(p *proxy.Proxy) bool { return p.Deleting }), err
		}}
	}},
	{name: "get shares its results", caught: "results belong to the caller",
		wrap: func(m *proxy.Memory) Store { return shared(m, func(*faulty, *faulty) {}) }},
	{name: "list shares its results", caught: "results belong to the caller",
		wrap: func(m *proxy.Memory) Store {
			return shared(m, func(s, all *faulty) { s.list, s.get = all.list, nil })
		}},
	{name: "a write shares its result", caught: "results belong to the caller",
		wrap: func(m *proxy.Memory) Store {
			return shared(m, func(s, all *faulty) { s.updateStatus = all.updateStatus })
		}},
	{name: "a declaration is shared", caught: "results belong to the caller",
		wrap: func(m *proxy.Memory) Store { return shared(m, func(s, all *faulty) { s.put = all.put }) }},
	{name: "inputs are cached", caught: "inputs are what the Secrets hold now",
		secrets: func(s *Secrets) proxy.Secrets { return stuck{s, map[string]proxy.Secret{}} }},
	{name: "what leads nowhere is empty", caught: "inputs are what the Secrets hold now", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, inputs: func(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, error) {
			in, err := m.Inputs(ctx, p)
			if errors.Is(err, proxy.ErrSecretNotFound) {
				return proxy.Inputs{CloudInit: secret.New("")}, nil
			}
			return in, err
		}}
	}},

	// Watches.
	{name: "watch forgets what exists", caught: "watch begins with all records", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			all, err := m.List(ctx)
			if err != nil {
				return err
			}
			skip := map[proxy.Key]bool{}
			for _, p := range all {
				skip[p.Key] = true
			}
			return m.Watch(ctx, func(k proxy.Key) {
				if !skip[k] {
					fn(k)
				}
				delete(skip, k)
			})
		}}
	}},
	{name: "watch misses status writes", caught: "watch delivers each kind of change of a record",
		wrap: filtered(func(m *proxy.Memory, k proxy.Key) bool {
			p, err := m.Get(bg(), k)
			return err != nil || k.Name != "a" || p.Status.Format == 0 || p.Deleting
		})},
	{name: "watch misses removals", caught: "watch delivers each kind of change of a record",
		wrap: filtered(func(m *proxy.Memory, k proxy.Key) bool { _, err := m.Get(bg(), k); return err == nil })},
	{name: "watch misses marks of deletion", caught: "watch delivers each kind of change of a record",
		wrap: filtered(func(m *proxy.Memory, k proxy.Key) bool { p, err := m.Get(bg(), k); return err != nil || !p.Deleting })},
	{name: "a second watch gets nothing", caught: "watch delivers each kind of change of a record", wrap: func(m *proxy.Memory) Store {
		var once sync.Mutex
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			if !once.TryLock() {
				<-ctx.Done()
				return nil
			}
			return m.Watch(ctx, fn)
		}}
	}},
	{name: "any change wakes all", caught: "watch delivers each kind of change of a record", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			return m.Watch(ctx, func(k proxy.Key) {
				fn(k)
				all, _ := m.List(ctx)
				for _, p := range all {
					if p.Key != k {
						fn(p.Key)
					}
				}
			})
		}}
	}},
	{name: "watch does not see Secrets", caught: "watch delivers who refers to a Secret that changed",
		secrets: func(s *Secrets) proxy.Secrets { return blind{s} }},
	{name: "watch does not see Secrets go", caught: "watch delivers who refers to a Secret that changed",
		secrets: func(s *Secrets) proxy.Secrets {
			return forgetful{s, func(s *Secrets, namespace, name string) bool {
				_, err := s.Get(bg(), namespace, name)
				return err == nil
			}}
		}},
	{name: "a Secret wakes all of its namespace", caught: "watch delivers who refers to a Secret that changed", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			return m.Watch(ctx, func(k proxy.Key) {
				fn(k)
				if k.Name == "init" || k.Name == "login" {
					fn(proxy.Key{Namespace: k.Namespace, Name: "init"})
					fn(proxy.Key{Namespace: k.Namespace, Name: "login"})
				}
			})
		}}
	}},
	{name: "references are those of the first declaration", caught: "watch follows the references of a record",
		secrets: func(s *Secrets) proxy.Secrets {
			return forgetful{s, func(_ *Secrets, _, name string) bool { return name != "login2" }}
		}},
	{name: "the Secret of a removed record wakes it", caught: "watch follows the references of a record", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			return m.Watch(ctx, func(k proxy.Key) {
				fn(k)
				if _, err := m.Get(ctx, key("a")); err != nil {
					fn(key("a"))
				}
			})
		}}
	}},
	{name: "watch drops changes while fn runs", caught: "watch never loses the last change", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			keys := make(chan proxy.Key)
			go func() {
				for {
					select {
					case k := <-keys:
						time.Sleep(time.Millisecond)
						fn(k)
					case <-ctx.Done():
						return
					}
				}
			}()
			return m.Watch(ctx, func(k proxy.Key) {
				select {
				case keys <- k:
				default:
				}
			})
		}}
	}},
	{name: "watch returns the error of its context", caught: "watch ends with its context", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			return errors.Join(m.Watch(ctx, fn), ctx.Err())
		}}
	}},
	{name: "watch goes on after it returned", caught: "watch ends with its context", wrap: func(m *proxy.Memory) Store {
		return &faulty{Memory: m, watch: func(ctx context.Context, fn func(proxy.Key)) error {
			longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			go func() {
				defer cancel()
				_ = m.Watch(longer, fn)
			}()
			<-ctx.Done()
			return nil
		}}
	}},

	// Restarts.
	{name: "removals do not survive", caught: "records survive a restart", journal: func(j *journal) { j.keep = true }},
	{name: "the status does not survive", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Status = proxy.Status{} } }},
	{name: "times do not survive", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Status.Instance.Planned = proxy.Time{} } }},
	{name: "the mark of deletion does not survive", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Deleting = false } }},
	{name: "the generation does not survive", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Generation = 0 } }},
	{name: "the time of creation does not survive", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Created = proxy.Time{} } }},
	{name: "UIDs are made anew", caught: "records survive a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.UID = fmt.Sprint(rand.Int()) } }},
	{name: "the source does not survive", caught: "the rules go on after a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Source = "" } }},
	{name: "what was declared does not survive", caught: "the rules go on after a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Declared = nil } }},
	{name: "references do not survive", caught: "the rules go on after a restart",
		journal: func(j *journal) { j.fault = func(r *proxy.Record) { r.Spec.Credentials = nil } }},
	{name: "versions begin anew with the process", caught: "versions do not repeat over a restart",
		journal: func(j *journal) { j.wrap = counted }},
}
