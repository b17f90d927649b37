package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxyfleet/fleet/proxy"
)

// plan is what is left to be done so that a store is like a set.
type plan struct {
	set         *Set
	before      known
	put, remove []proxy.Key

	// What was done already.
	begun                     bool
	created, changed, deleted int
}

// known is what the store held when the set was judged.
type known struct {
	declared []proxy.Key // by this package
	records  map[proxy.Key]*proxy.Proxy
}

// refusedError says why a set must not be applied, however often that is tried.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// look reads what the store holds of the names in a set. Its errors are the store's.
func look(ctx context.Context, store Store, set *Set) (k known, err error) {
	if k.declared, err = store.Declared(ctx, source); err != nil {
		return known{}, fmt.Errorf("the store does not say what is declared: %w", err)
	}
	k.records = make(map[proxy.Key]*proxy.Proxy, len(set.Proxies))
	for key := range set.Proxies {
		p, err := store.Get(ctx, key)
		switch {
		case errors.Is(err, proxy.ErrNotFound):
		case err != nil:
			return known{}, fmt.Errorf("the store does not return a proxy: %w", err)
		case !p.Deleting:
			k.records[key] = p
		}
	}
	return k, nil
}

// judge plans how the store becomes like the set, or returns a refusedError. At most allow proxies may vanish at once,
// unless they are few anyway.
func judge(set *Set, before known, allow int) (*plan, error) {
	p := &plan{set: set, before: before, put: slices.SortedFunc(maps.Keys(set.Proxies), proxy.Key.Compare)}
	for _, k := range before.declared {
		if _, stays := set.Proxies[k]; !stays {
			p.remove = append(p.remove, k)
		}
	}
	problems := []error{brake(p.remove, len(before.declared), allow)}
	for _, k := range p.put {
		if old := before.records[k]; old != nil {
			if err := proxy.ValidateUpdate(old.Spec, set.Proxies[k].Spec); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", set.where(k), err))
			}
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, &refusedError{err}
	}
	return p, nil
}

// Up to fewVanish proxies, and up to a share of 1/vanishShare of them, may vanish at once without further ado.
const (
	fewVanish   = 3
	vanishShare = 5
)

// brake refuses to delete more proxies at once than an edit usually means to.
func brake(vanished []proxy.Key, declared, allow int) error {
	n := len(vanished)
	if n <= fewVanish || n*vanishShare <= declared || n <= allow {
		return nil
	}
	var names []string
	for _, k := range vanished[:fewVanish] {
		names = append(names, k.String())
	}
	return fmt.Errorf("%d of %d declared proxies are in no document any more (%s and %d others), which looks like an accident: "+
		"nothing is applied; put the documents back, or start again with --allow-delete %d to delete those proxies",
		n, declared, strings.Join(names, ", "), n-fewVanish, n)
}

// where says where a proxy is declared.
func (s *Set) where(k proxy.Key) string {
	if at, ok := s.places[k]; ok {
		return at.String()
	}
	return "Proxy " + k.String()
}

// carryOut does what is left of the plan, as far as it can, and returns what failed. What waits for a record that is on
// its way out has not failed. When ctx ends, so does the work, after the record that it is at.
func (p *plan) carryOut(ctx context.Context, store Store) error {
	var problems []error
	p.put = slices.DeleteFunc(p.put, func(k proxy.Key) bool {
		if ctx.Err() != nil {
			return false
		}
		after, err := store.Put(ctx, k, p.set.Proxies[k], source)
		switch {
		case err == nil:
			p.count(p.before.records[k], after)
		case !errors.Is(err, proxy.ErrTerminating):
			problems = append(problems, fmt.Errorf("%s: %w", p.set.where(k), unnamed(k, err)))
		}
		return err == nil
	})
	p.remove = slices.DeleteFunc(p.remove, func(k proxy.Key) bool {
		if ctx.Err() != nil {
			return false
		}
		err := store.Delete(ctx, k)
		if err != nil {
			problems = append(problems, fmt.Errorf("cannot delete Proxy %v: %w", k, unnamed(k, err)))
		} else {
			p.deleted++
		}
		return err == nil
	})
	if p.left() > 0 {
		problems = append(problems, ctx.Err())
	}
	return errors.Join(problems...)
}

// unnamed leaves out the name of a proxy, which its place has already.
func unnamed(k proxy.Key, err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == k.String()+": "+inner.Error() {
		return inner
	}
	return err
}

func (p *plan) count(before, after *proxy.Proxy) {
	switch {
	case before == nil:
		p.created++
	case before.Generation != after.Generation || !maps.Equal(before.Annotations, after.Annotations):
		p.changed++
	}
}

func (p *plan) left() int { return len(p.put) + len(p.remove) }
