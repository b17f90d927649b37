package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/proxy"
)

// bySecret is the index of proxies by the Secrets that they refer to.
const bySecret = "secret"

// Store is a [proxy.Store] whose records are Proxy objects. It reads out of caches, which are filled while Run runs, and sends
// each write to the API server with the version that it is based on.
type Store struct {
	cfg     Config
	proxies rest.Interface
	core    typedcorev1.CoreV1Interface
	events  *events
	objects *source
	secrets secrets
	recent  *recent
	ended   chan struct{} // closed when Run returned

	mu       sync.Mutex
	started  bool
	shared   bool // it was said that another fleet keeps proxies here too
	watchers map[*watcher]bool
}

var _ proxy.Store = (*Store)(nil)

// New makes a store. It sends no request; the error names everything that is wrong with cfg.
func New(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg.withDefaults(), ended: make(chan struct{}), watchers: map[*watcher]bool{}}
	if err := s.connect(); err != nil {
		return nil, fmt.Errorf("controller: REST: %w", err)
	}
	s.events = newEvents()
	if err := s.follow(); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}

// connect makes the clients.
func (s *Store) connect() error {
	client, err := rest.HTTPClientFor(s.cfg.REST)
	if err != nil {
		return err
	}
	if s.proxies, err = groupClient(s.cfg.REST, client, wireScheme()); err != nil {
		return err
	}
	s.core, err = typedcorev1.NewForConfigAndClient(s.cfg.REST, client)
	return err
}

// groupClient makes a client of the objects of this project, in the types that the scheme has for them.
func groupClient(cfg *rest.Config, client *http.Client, scheme *runtime.Scheme) (rest.Interface, error) {
	gv := v1alpha1.GroupVersion()
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(c, client)
}

// follow makes the caches, and has the watches told of what changes in them.
func (s *Store) follow() error {
	var err error
	c := sourceConfig{what: "Proxies", client: s.proxies, resource: "proxies", namespace: s.cfg.Namespace, example: &wire{}, keep: keepObject,
		indexers: cache.Indexers{bySecret: func(item any) ([]string, error) { return item.(*object).secrets(), nil }},
		timeout:  s.cfg.Timeout, trouble: newTrouble(s.cfg.Logger, "Proxies and Secrets")}
	if s.objects, err = newSource(c); err != nil {
		return err
	}
	s.recent = newRecent(s.objects.informer.GetIndexer())
	if _, err := s.objects.informer.AddEventHandler(changed(s.proxyChanged)); err != nil {
		return err
	}
	c.client, c.resource, c.example, c.keep, c.indexers = s.core.RESTClient(), "secrets", &corev1.Secret{}, seal, nil
	for _, label := range []string{proxy.CloudInitLabel, proxy.CredentialsLabel} {
		c.label, c.what = label, "Secrets labelled "+label
		source, err := newSource(c)
		if err != nil {
			return err
		}
		if _, err := source.informer.AddEventHandler(changed(s.secretChanged)); err != nil {
			return err
		}
		s.secrets = append(s.secrets, source)
	}
	return nil
}

func keepObject(item any) (any, error) {
	if w, ok := item.(*wire); ok {
		return understood(w), nil
	}
	return item, nil // it is understood already, or says that one is gone
}

// sources are all caches.
func (s *Store) sources() []*source { return append([]*source{s.objects}, s.secrets...) }

// Run keeps the caches like the cluster until ctx ends; it returns nil then. While the API server cannot be reached, or refuses,
// it keeps trying, and Ready says why. A store runs once.
func (s *Store) Run(ctx context.Context) error {
	s.mu.Lock()
	started := s.started
	s.started = true
	s.mu.Unlock()
	if started {
		return errors.New("controller: the store runs already, or has run")
	}
	defer close(s.ended)
	ctx = klog.NewContext(ctx, klog.New(nil)) // client-go says much, and what matters is said by sources
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { s.events.run(ctx, s.core, s.cfg.Timeout) })
	for _, source := range s.sources() {
		group.Go(func() { source.informer.RunWithContext(ctx) })
	}
	<-ctx.Done()
	return nil
}

// Ready says why the store cannot answer yet: what it has not read, and why. Once it has read everything it is nil, also while
// the API server cannot be reached: then the store answers what it knows, and its writes fail.
func (s *Store) Ready() error {
	var problems []error
	for _, source := range s.sources() {
		problems = append(problems, source.ready())
	}
	return errors.Join(problems...)
}

// Synced waits until the store can answer. When ctx ends first, or Run, the error says why it cannot.
func (s *Store) Synced(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		why := s.Ready()
		if why == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), why)
		case <-s.ended:
			return errors.Join(errEnded, why)
		case <-ticker.C:
		}
	}
}

var errEnded = errors.New("the store does not run any more")

// Restricted says whether the store shows only some of the proxies: those of one namespace.
func (s *Store) Restricted() bool { return s.cfg.Namespace != "" }

// Get returns a record out of the cache, or as this store knows it from a later answer of the API server. A Proxy object that
// cannot be understood is an error, unless its deletion is all that is left to do.
func (s *Store) Get(_ context.Context, k proxy.Key) (*proxy.Proxy, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	o := s.recent.get(k)
	if o == nil || s.foreign(o) {
		return nil, fmt.Errorf("%v: %w", k, proxy.ErrNotFound)
	}
	if err := o.problem(); err != nil {
		return nil, fmt.Errorf("%v cannot be understood: %w", k, err)
	}
	return o.record(s.cfg.Fleet), nil
}

// foreign says whether another fleet keeps an object.
func (s *Store) foreign(o *object) bool {
	keeper := o.keeper()
	return s.cfg.Fleet != "" && keeper != "" && keeper != s.cfg.Fleet
}

// List returns all records as Get has them. Objects that cannot be understood are left out.
func (s *Store) List(context.Context) ([]*proxy.Proxy, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	objects := s.recent.list()
	all := make([]*proxy.Proxy, 0, len(objects))
	for _, o := range objects {
		if !s.foreign(o) && o.problem() == nil {
			all = append(all, o.record(s.cfg.Fleet))
		}
	}
	slices.SortFunc(all, func(a, b *proxy.Proxy) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// Inputs resolves what the spec of p refers to. A spec that the API server let pass and [proxy.Validate] refuses is an
// [proxy.InputError] too: nothing is made of it, and what runs goes on.
func (s *Store) Inputs(ctx context.Context, p *proxy.Proxy) (proxy.Inputs, error) {
	if err := s.Ready(); err != nil {
		return proxy.Inputs{}, err
	}
	if o := s.recent.get(p.Key); o != nil && string(o.UID) == p.UID && o.invalid != nil {
		return proxy.Inputs{}, &proxy.InputError{Reason: InvalidSpec, Err: o.invalid}
	}
	return proxy.Resolve(ctx, s.secrets, p.Namespace, p.Spec)
}

// InvalidSpec is the reason of the condition Resolved of a proxy whose spec is not valid, though the API server took it.
const InvalidSpec = "InvalidSpec"

// pageSize is how many objects a page of a list has, and lists how often one is begun anew that expired under way.
const (
	pageSize = 500
	lists    = 3
)

// Live asks the API server for all proxies, page by page. Those of other fleets are there too: what has their UID is no orphan.
func (s *Store) Live(ctx context.Context) (map[string]proxy.Held, error) {
	var all []*object
	var version string
	var err error
	for range lists {
		if all, version, err = s.list(ctx); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list of all proxies: %w", err)
	}
	live := make(map[string]proxy.Held, len(all))
	for _, o := range all {
		err := o.statusUnreadable
		if o.status.Format > proxy.StatusFormat {
			err = fmt.Errorf("its status has format %d, and this release knows up to %d", o.status.Format, proxy.StatusFormat)
		}
		if err != nil {
			return nil, fmt.Errorf("%v cannot be understood, and nobody knows which instance it has: %w", o.key(), err)
		}
		live[string(o.UID)] = proxy.HeldBy(o.record(s.cfg.Fleet))
	}
	s.noteAll(all, version)
	return live, nil
}

// list returns all objects as they are in one version of the whole, which is no older than the call.
func (s *Store) list(ctx context.Context) (all []*object, version string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page := &wireList{}
		limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		err := s.proxies.Get().Namespace(s.cfg.Namespace).Resource("proxies").VersionedParams(&options, metav1.ParameterCodec).Do(limited).Into(page)
		cancel()
		if err == nil && page.ResourceVersion == "" {
			err = errStranger
		}
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			all = append(all, understood(&page.Items[i]))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, page.ResourceVersion, nil
		}
	}
}

// noteAll has later reads not go behind a list of all objects.
func (s *Store) noteAll(all []*object, version string) {
	if !s.objects.informer.HasSynced() {
		return // there are no reads yet
	}
	listed := make(map[proxy.Key]bool, len(all))
	for _, o := range all {
		listed[o.key()] = true
		s.recent.note(o)
	}
	for _, o := range s.recent.list() {
		if !listed[o.key()] && reached(version, o.ResourceVersion) {
			s.recent.noteGone(o, version)
		}
	}
}
