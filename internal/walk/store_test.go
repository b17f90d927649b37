package walk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// secrets is a place for Secrets that the walk rotates and takes away.
type secrets map[string]string

// Get returns a Secret with the same text under each key.
func (s secrets) Get(_ context.Context, _, name string) (proxy.Secret, error) {
	text, ok := s[name]
	if !ok {
		return proxy.Secret{}, fmt.Errorf("%s: %w", name, proxy.ErrSecretNotFound)
	}
	return proxy.Secret{
		Labels: map[string]string{proxy.CloudInitLabel: "true", proxy.CredentialsLabel: "true"},
		Data:   map[string]secret.Text{"user-data": secret.New(text), "username": secret.New("u"), "password": secret.New(text)},
	}, nil
}

// Watch ends with its context: the walk wakes nobody, its passes come at random.
func (s secrets) Watch(ctx context.Context, _ func(string, string)) error {
	<-ctx.Done()
	return nil
}

// records is the one store behind all processes. The UID of each life of a name is another, as in a cluster, or the same, as
// where it is derived from the name.
type records struct {
	*proxy.Memory
	stable bool
	lives  map[proxy.Key]int
	past   map[proxy.Key][]*proxy.Proxy // every state that a record ever had; nil entries: gone
}

func newRecords(s secrets, stable bool) *records {
	return &records{proxy.NewMemory(proxy.MemoryConfig{Fleet: fleetID, Secrets: s}), stable, map[proxy.Key]int{}, map[proxy.Key][]*proxy.Proxy{}}
}

// now returns a record as it is, nil when there is none. It is not to be changed.
func (r *records) now(k proxy.Key) *proxy.Proxy {
	if past := r.past[k]; len(past) > 0 {
		return past[len(past)-1]
	}
	return nil
}

// named gives a record the UID of its life.
func (r *records) named(p *proxy.Proxy) *proxy.Proxy {
	if !r.stable {
		p.UID = fmt.Sprintf("%s-%d", p.UID, r.lives[p.Key])
	}
	return p
}

// put declares a proxy.
func (r *records) put(k proxy.Key, s proxy.Spec, annotations map[string]string) error {
	if r.now(k) == nil {
		r.lives[k]++
	}
	_, err := r.Put(context.Background(), k, proxy.Declaration{Spec: s, Annotations: annotations}, "walk")
	r.note(k)
	return err
}

// note remembers the state of a record after something may have changed it.
func (r *records) note(k proxy.Key) {
	p, err := r.Memory.Get(context.Background(), k)
	if err != nil {
		p = nil
	} else {
		p = r.named(p)
	}
	past := r.past[k]
	if n := len(past); n > 0 {
		last := past[n-1]
		if p == nil && last == nil || p != nil && last != nil && last.Version == p.Version && last.UID == p.UID {
			return
		}
	}
	r.past[k] = append(past, p)
}

// cache is the store as one thread of one process sees it: Get lags behind, monotonically, as an informer does, even behind
// the thread's own writes, which is worse than the contract allows; and the clock of its host is off by skew, so that the times that it writes are off for everybody else.
type cache struct {
	*records
	t     *thread
	floor map[proxy.Key]int
	lag   int
	skew  time.Duration
	force bool // status writes without a version, as a merge patch without resourceVersion does
}

func (c *cache) Get(_ context.Context, k proxy.Key) (*proxy.Proxy, error) {
	if c.t.dead {
		return nil, errCrash
	}
	past := c.past[k]
	lo := max(c.floor[k], len(past)-1-c.lag)
	at := lo + c.t.rng.IntN(len(past)-lo)
	c.floor[k] = at
	if past[at] == nil {
		return nil, fmt.Errorf("%v: %w", k, proxy.ErrNotFound)
	}
	return shift(past[at].Clone(), c.skew), nil
}

func (c *cache) List(ctx context.Context) (list []*proxy.Proxy, _ error) {
	all, err := c.Memory.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if seen, err := c.Get(ctx, p.Key); err == nil {
			list = append(list, seen)
		}
	}
	return list, nil
}

func (c *cache) Inputs(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, error) {
	in, err := c.Memory.Inputs(ctx, p)
	c.t.known.inputs, c.t.known.failed = in, err != nil
	return in, err
}

func (c *cache) UpdateMeta(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	return c.update(ctx, p, c.Memory.UpdateMeta)
}

func (c *cache) UpdateStatus(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	return c.update(ctx, p, c.Memory.UpdateStatus)
}

func (c *cache) update(ctx context.Context, p *proxy.Proxy, write func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)) (q *proxy.Proxy, err error) {
	err = c.t.effect(func() error {
		now := c.now(p.Key)
		if now != nil && now.UID != p.UID {
			return proxy.ErrConflict
		}
		p = shift(p.Clone(), -c.skew)
		p.UID = unlived(p.UID)
		if c.force && now != nil {
			p.Version = now.Version
		}
		if q, err = write(ctx, p); err == nil {
			q = c.named(q)
			c.t.known.record = q.Clone()
			q = shift(q, c.skew)
		}
		c.note(p.Key)
		return err
	})
	return q, err
}

// unlived is the UID as the store keeps it.
func unlived(uid string) string {
	if strings.Count(uid, "-") > 4 {
		return uid[:strings.LastIndex(uid, "-")]
	}
	return uid
}

// shift moves all times of a status.
func shift(p *proxy.Proxy, by time.Duration) *proxy.Proxy {
	move := func(t *proxy.Time) {
		if !t.IsZero() {
			*t = proxy.At(t.Std().Add(by))
		}
	}
	move(&p.Status.Instance.Planned)
	move(&p.Status.Instance.Retry)
	for i := range p.Status.Conditions {
		move(&p.Status.Conditions[i].LastTransitionTime)
	}
	return p
}
