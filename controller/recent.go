package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/proxyfleet/fleet/proxy"
)

// recent puts the answers that the API server gave to this process before what the cache has not shown yet, so that no read
// goes back behind a write. An answer is forgotten as soon as the cache has caught up with it.
type recent struct {
	cache cache.Indexer // of *object

	mu      sync.Mutex
	answers map[proxy.Key]answer
}

// answer is what is known of a key from a version on.
type answer struct {
	version string
	uid     types.UID
	object  *object // nil: the object of that UID is gone
}

func newRecent(c cache.Indexer) *recent { return &recent{cache: c, answers: map[proxy.Key]answer{}} }

// note remembers an object that the API server answered with.
func (r *recent) note(o *object) {
	r.remember(o.key(), answer{version: o.ResourceVersion, uid: o.UID, object: o})
}

// noteGone remembers that an object is not there any more, in a version of the whole.
func (r *recent) noteGone(o *object, version string) {
	r.remember(o.key(), answer{version: version, uid: o.UID})
}

func (r *recent) remember(k proxy.Key, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.answers[k]; ok && reached(old.version, a.version) && old.version != a.version {
		return // answers to concurrent requests may come in any order
	}
	r.answers[k] = a
	r.look(k)
}

// get returns the newest that is known of a key, nil when there is no object.
func (r *recent) get(k proxy.Key) *object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(k)
}

// list returns the newest that is known of all keys.
func (r *recent) list() []*object {
	r.mu.Lock()
	defer r.mu.Unlock()
	cached := r.cache.List()
	all := make([]*object, 0, len(cached)+len(r.answers))
	for _, o := range cached {
		if _, ok := r.answers[o.(*object).key()]; !ok {
			all = append(all, o.(*object))
		}
	}
	for k := range r.answers {
		if o := r.look(k); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// look is get with the lock held.
func (r *recent) look(k proxy.Key) *object {
	a, ok := r.answers[k]
	seen := r.cache.LastStoreSyncResourceVersion() // before the object: it is no older
	var cached *object
	if item, there, err := r.cache.GetByKey(k.String()); err == nil && there {
		cached = item.(*object)
	}
	if ok && !a.overtaken(cached, seen) {
		return a.object
	}
	delete(r.answers, k)
	return cached
}

// overtaken says whether a cache that holds this, and has seen everything up to a version, knows as much as the answer.
func (a answer) overtaken(cached *object, seen string) bool {
	switch {
	case cached == nil:
		return reached(seen, a.version)
	case a.object == nil && cached.UID == a.uid:
		return false
	}
	return reached(cached.ResourceVersion, a.version)
}

// reached says whether a version is no older than another one. What cannot be compared is so only when it is the same.
func reached(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	if err != nil {
		return version == other
	}
	return order >= 0
}
