package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Record is a proxy with what only its store needs to know of it.
type Record struct {
	Proxy
	// Source is who declared it.
	Source string `json:"source,omitempty"`
	// Declared are the annotations that the source declared last.
	Declared map[string]string `json:"declared,omitempty"`
}

// clone returns a copy that shares nothing with r.
func (r *Record) clone() *Record {
	return &Record{Proxy: *r.Proxy.Clone(), Source: r.Source, Declared: maps.Clone(r.Declared)}
}

// Journal makes the records of a [Memory] durable. Its methods are called one at a time, before the change is visible to
// anybody; when one fails the change does not happen, and its caller gets the error. Reads do not wait for it. A journal
// neither keeps nor changes what it is given.
type Journal interface {
	// Save keeps a record in the place of an earlier one of its key.
	Save(r Record) error
	// Remove forgets a record.
	Remove(k Key) error
}

// MemoryConfig is what a [Memory] is made of.
type MemoryConfig struct {
	// Fleet is the identity from which UIDs are derived, together with the name: the same name in the same fleet has the
	// same UID, even if all records were lost. Defaults to a random one.
	Fleet string
	// Secrets are where the references of specs lead. Defaults to none.
	Secrets Secrets
	// Journal makes records durable. Defaults to none.
	Journal Journal
	// Records are what the journal kept.
	Records []Record
}

// Memory is a [Store] and a [Declarer] in the memory of this process. Its answers are never stale.
type Memory struct {
	cfg MemoryConfig
	// life makes versions that no other process has used: tokens are made from them.
	life string

	// writing is held over a write as a whole, its journal included; who holds it may read all below.
	writing sync.Mutex
	seq     uint64
	// mu is held for moments: by readers, and by the writer while it changes what they read.
	mu       sync.RWMutex
	records  map[Key]*Record
	refs     map[Key]map[Key]bool // by Secret: who refers to it
	watchers map[*watcher]bool
}

var (
	_ Store    = (*Memory)(nil)
	_ Declarer = (*Memory)(nil)
)

// NewMemory makes a store.
func NewMemory(cfg MemoryConfig) *Memory {
	cfg.Fleet = cmp.Or(cfg.Fleet, strings.ToLower(rand.Text()))
	m := &Memory{cfg: cfg, life: rand.Text()[:8], records: map[Key]*Record{}, refs: map[Key]map[Key]bool{}, watchers: map[*watcher]bool{}}
	for _, r := range cfg.Records {
		m.place(r.Key, r.clone())
	}
	m.cfg.Records = nil
	return m
}

// Get returns a record as it is now.
func (m *Memory) Get(_ context.Context, k Key) (*Proxy, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.records[k]
	if r == nil {
		return nil, fmt.Errorf("%v: %w", k, ErrNotFound)
	}
	return r.Proxy.Clone(), nil
}

// List returns all records as they are now, in the order of their keys.
func (m *Memory) List(context.Context) ([]*Proxy, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*Proxy, 0, len(m.records))
	for _, r := range m.records {
		all = append(all, r.Proxy.Clone())
	}
	slices.SortFunc(all, func(a, b *Proxy) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// Live returns what each UID holds now.
func (m *Memory) Live(context.Context) (map[string]Held, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	live := make(map[string]Held, len(m.records))
	for _, r := range m.records {
		live[r.UID] = HeldBy(&r.Proxy)
	}
	return live, nil
}

// Inputs resolves what the spec of p refers to.
func (m *Memory) Inputs(ctx context.Context, p *Proxy) (Inputs, error) {
	return Resolve(ctx, m.cfg.Secrets, p.Namespace, p.Spec)
}

// Put declares a proxy or changes its declaration.
func (m *Memory) Put(_ context.Context, k Key, d Declaration, source string) (*Proxy, error) {
	if err := errors.Join(ValidateKey(k), Validate(d.Spec)); err != nil {
		return nil, fmt.Errorf("%v: %w", k, err)
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	old := m.records[k]
	if old == nil {
		old = &Record{Proxy: Proxy{Key: k, UID: uid(m.cfg.Fleet, k), Created: At(time.Now())}, Source: source}
	} else if err := old.accepts(d, source); err != nil {
		return nil, fmt.Errorf("%v: %w", k, err)
	}
	r := old.redeclared(d)
	if r.Generation == old.Generation && maps.Equal(r.Declared, old.Declared) && maps.Equal(r.Annotations, old.Annotations) {
		return r.Proxy.Clone(), nil
	}
	return m.save(r)
}

// accepts says whether a source may declare the record anew.
func (r *Record) accepts(d Declaration, source string) error {
	switch {
	case r.Deleting:
		return ErrTerminating
	case r.Source != source:
		return fmt.Errorf("%w: %s", ErrOtherSource, r.Source)
	}
	return ValidateUpdate(r.Spec, d.Spec)
}

// redeclared returns what a record becomes by a declaration.
func (r *Record) redeclared(d Declaration) *Record {
	c := r.clone()
	c.Declared = maps.Clone(d.Annotations)
	if spec := d.Spec.Canonical(); c.Generation == 0 || !reflect.DeepEqual(spec, c.Spec) {
		c.Spec = spec
		c.Generation++
	}
	for k, v := range r.Declared {
		if _, stays := d.Annotations[k]; !stays && c.Annotations[k] == v {
			delete(c.Annotations, k)
		}
	}
	for k, v := range d.Annotations {
		if was, known := r.Declared[k]; known && was == v {
			continue // somebody may have changed it since it was declared
		}
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[k] = v
	}
	return c
}

// Delete removes a record, or marks it as being deleted where it has a finalizer.
func (m *Memory) Delete(_ context.Context, k Key) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	r := m.records[k]
	if r == nil || r.Deleting {
		return nil
	}
	c := r.clone()
	c.Deleting = true
	_, err := m.save(c)
	return err
}

// Declared returns the keys that belong to a source.
func (m *Memory) Declared(_ context.Context, source string) ([]Key, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var keys []Key
	for k, r := range m.records {
		if r.Source == source && !r.Deleting {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys, nil
}

// UpdateMeta writes finalizer and annotations.
func (m *Memory) UpdateMeta(_ context.Context, p *Proxy) (*Proxy, error) {
	return m.update(p, func(r *Record) bool {
		same := r.Finalizer == p.Finalizer && maps.Equal(r.Annotations, p.Annotations)
		r.Finalizer, r.Annotations = p.Finalizer, maps.Clone(p.Annotations)
		return !same
	})
}

// UpdateStatus writes the status.
func (m *Memory) UpdateStatus(_ context.Context, p *Proxy) (*Proxy, error) {
	return m.update(p, func(r *Record) bool {
		same := r.Status.Equal(p.Status)
		r.Status = p.Status.Clone()
		return !same
	})
}

// update lets change edit the record that p was read from, and saves it if change says that it did.
func (m *Memory) update(p *Proxy, change func(*Record) bool) (*Proxy, error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	r := m.records[p.Key]
	switch {
	case r == nil:
		return nil, fmt.Errorf("%v: %w", p.Key, ErrNotFound)
	case r.UID != p.UID || r.Version != p.Version:
		return nil, fmt.Errorf("%v: %w", p.Key, ErrConflict)
	}
	c := r.clone()
	if !change(c) {
		return r.Proxy.Clone(), nil
	}
	return m.save(c)
}

// save makes r the record of its key, durably, or removes it when nothing keeps it any more. r is not changed afterwards.
func (m *Memory) save(r *Record) (*Proxy, error) {
	m.seq++
	r.Version = m.life + "-" + strconv.FormatUint(m.seq, 10)
	gone := r.Deleting && !r.Finalizer
	if err := m.journal(r, gone); err != nil {
		return nil, fmt.Errorf("%v: %w", r.Key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		m.place(r.Key, nil)
	} else {
		m.place(r.Key, r)
	}
	m.touch(r.Key)
	return r.Proxy.Clone(), nil
}

func (m *Memory) journal(r *Record, gone bool) error {
	switch {
	case m.cfg.Journal == nil:
		return nil
	case gone:
		return m.cfg.Journal.Remove(r.Key)
	}
	return m.cfg.Journal.Save(*r)
}

// place puts r in the place of the record of a key, nil for none, and keeps the index of references.
func (m *Memory) place(k Key, r *Record) {
	if old := m.records[k]; old != nil {
		for _, name := range secretRefs(old.Spec) {
			ref := Key{k.Namespace, name}
			delete(m.refs[ref], k)
			if len(m.refs[ref]) == 0 {
				delete(m.refs, ref)
			}
		}
	}
	if r == nil {
		delete(m.records, k)
		return
	}
	m.records[k] = r
	for _, name := range secretRefs(r.Spec) {
		ref := Key{k.Namespace, name}
		if m.refs[ref] == nil {
			m.refs[ref] = map[Key]bool{}
		}
		m.refs[ref][k] = true
	}
}
