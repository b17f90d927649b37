package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/proxy"
)

// testCluster is the API server of most tests: each begins on one without proxies and Secrets.
var testCluster = sync.OnceValues(func() (*cluster.Cluster, error) {
	return startCluster(context.Background())
})

// startCluster starts an API server that knows the objects of this project.
func startCluster(ctx context.Context) (*cluster.Cluster, error) {
	c, err := cluster.Start(ctx, cluster.Config{})
	if err != nil {
		return nil, err
	}
	_, err = c.Kubectl(ctx, "apply", "--filename=../api/v1alpha1/crds/crawl.example.com_proxies.yaml",
		"--filename=../api/v1alpha1/crds/crawl.example.com_providerhealths.yaml")
	for _, namespace := range []string{"crawl", "other"} {
		if err == nil {
			_, err = c.Kubectl(ctx, "create", "namespace", namespace)
		}
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "--for=condition=Established", "--all", "crd")
	}
	return c, err
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c, err := testCluster(); err == nil {
		c.Close()
	}
	os.Exit(code)
}

// needs ends a test that cannot have its cluster: it fails where everything must be there, and is skipped elsewhere.
func needs(t testing.TB, c *cluster.Cluster, err error) *cluster.Cluster {
	t.Helper()
	switch {
	case err == nil:
		return c
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	}
	t.Skip(err)
	return nil
}

// sharedCluster returns the one of most tests, emptied.
func sharedCluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	c, err := testCluster()
	needs(t, c, err)
	empty(t, restOf(t, c.Kubeconfig()))
	return c
}

// ownCluster returns one that the test may stop and break.
func ownCluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	c, err := startCluster(t.Context())
	if c != nil {
		t.Cleanup(c.Close)
	}
	return needs(t, c, err)
}

func restOf(t testing.TB, kubeconfig string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// empty removes all that tests leave.
func empty(t testing.TB, cfg *rest.Config) {
	t.Helper()
	s := newStore(t, Config{REST: cfg})
	all, _, err := s.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if err := remove(t.Context(), s, o.key()); err != nil {
			t.Fatal(err)
		}
		if len(o.Finalizers) > 0 {
			_, err := s.patch(t.Context(), o.key(), "", patch{"metadata": patch{"finalizers": nil}})
			if err != nil && !errors.Is(err, proxy.ErrNotFound) {
				t.Fatal(err)
			}
		}
	}
	for _, namespace := range []string{"crawl", "other"} {
		err := s.core.Secrets(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func remove(ctx context.Context, s *Store, k proxy.Key) error {
	err := s.proxies.Delete().Namespace(k.Namespace).Resource("proxies").Name(k.Name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func newStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runStore runs a store until the test or stop ends, and waits until it can answer.
func runStore(t testing.TB, cfg Config) (s *Store, stop func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s = newStore(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	limited, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := s.Synced(limited); err != nil {
		t.Fatal(err)
	}
	return s, stop
}

// until waits until something is so.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute) // the waits of a reflector grow to one minute
	for wait := time.Millisecond; !so(); wait = min(2*wait, 50*time.Millisecond) {
		select {
		case <-deadline:
			t.Fatalf("it never was so that %s", what)
		case <-time.After(wait):
		}
	}
}

// declarer is what kubectl is to people: it declares proxies with the API server, for whom the tests name. What it must remember
// is with itself, as the cluster keeps no place for that.
type declarer struct {
	*Store
	book *book
}

// book is what a declarer remembers, by UID.
type book struct {
	mu    sync.Mutex
	notes map[types.UID]note
}

type note struct {
	source   string
	declared map[string]string
}

func (d *declarer) note(uid types.UID) note {
	d.book.mu.Lock()
	defer d.book.mu.Unlock()
	return d.book.notes[uid]
}

func (d *declarer) keep(uid types.UID, n note) {
	d.book.mu.Lock()
	defer d.book.mu.Unlock()
	d.book.notes[uid] = n
}

func (d *declarer) Put(ctx context.Context, k proxy.Key, to proxy.Declaration, source string) (*proxy.Proxy, error) {
	if err := errors.Join(proxy.ValidateKey(k), proxy.Validate(to.Spec)); err != nil {
		return nil, err
	}
	for {
		p, err := d.put(ctx, k, to, source)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return p, err
		}
	}
}

func (d *declarer) put(ctx context.Context, k proxy.Key, to proxy.Declaration, source string) (*proxy.Proxy, error) {
	w := &wire{}
	err := d.proxies.Get().Namespace(k.Namespace).Resource("proxies").Name(k.Name).Do(ctx).Into(w)
	switch {
	case apierrors.IsNotFound(err):
		return d.create(ctx, k, to, source)
	case err != nil:
		return nil, err
	}
	o, was := understood(w), d.note(w.UID)
	switch {
	case o.DeletionTimestamp != nil:
		return nil, proxy.ErrTerminating
	case was.source != source:
		return nil, proxy.ErrOtherSource
	}
	if err := proxy.ValidateUpdate(o.spec, to.Spec); err != nil {
		return nil, err
	}
	annotations := redeclared(w.Annotations, was.declared, to.Annotations)
	defer d.keep(w.UID, note{source, maps.Clone(to.Annotations)})
	if maps.Equal(annotations, w.Annotations) && reflect.DeepEqual(o.spec.Canonical(), to.Spec.Canonical()) {
		return o.record(""), nil
	}
	w.Annotations, w.Spec = annotations, specJSON(to.Spec)
	next := &wire{}
	if err := d.proxies.Put().Namespace(k.Namespace).Resource("proxies").Name(k.Name).Body(w).Do(ctx).Into(next); err != nil {
		return nil, err
	}
	return understood(next).record(""), nil
}

func (d *declarer) create(ctx context.Context, k proxy.Key, to proxy.Declaration, source string) (*proxy.Proxy, error) {
	w := &wire{Spec: specJSON(to.Spec)}
	w.SetGroupVersionKind(proxyKind())
	w.Namespace, w.Name, w.Annotations = k.Namespace, k.Name, maps.Clone(to.Annotations)
	made := &wire{}
	if err := d.proxies.Post().Namespace(k.Namespace).Resource("proxies").Body(w).Do(ctx).Into(made); err != nil {
		return nil, err
	}
	d.keep(made.UID, note{source, maps.Clone(to.Annotations)})
	return understood(made).record(""), nil
}

// redeclared returns what annotations become by a declaration.
func redeclared(now, before, declared map[string]string) map[string]string {
	next := maps.Clone(now)
	for k, v := range before {
		if _, stays := declared[k]; !stays && next[k] == v {
			delete(next, k)
		}
	}
	for k, v := range declared {
		if was, known := before[k]; known && was == v {
			continue
		}
		if next == nil {
			next = map[string]string{}
		}
		next[k] = v
	}
	return next
}

func specJSON(s proxy.Spec) json.RawMessage {
	text, err := json.Marshal(s.Canonical())
	if err != nil {
		panic(err)
	}
	return text
}

func (d *declarer) Delete(ctx context.Context, k proxy.Key) error { return remove(ctx, d.Store, k) }

func (d *declarer) Declared(ctx context.Context, source string) (keys []proxy.Key, err error) {
	all, _, err := d.list(ctx)
	for _, o := range all {
		if o.DeletionTimestamp == nil && d.note(o.UID).source == source {
			keys = append(keys, o.key())
		}
	}
	slices.SortFunc(keys, proxy.Key.Compare)
	return keys, err
}

// secretWriter changes Secrets with the API server.
type secretWriter struct {
	t testing.TB
	s *Store
}

func (w secretWriter) Set(namespace, name string, to proxy.Secret) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: to.Labels}, Data: map[string][]byte{}}
	for k, v := range to.Data {
		secret.Data[k] = []byte(v.Reveal())
	}
	_, err := w.s.core.Secrets(namespace).Update(w.t.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.s.core.Secrets(namespace).Create(w.t.Context(), secret, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w secretWriter) Remove(namespace, name string) {
	w.t.Helper()
	err := w.s.core.Secrets(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// key names a proxy of most tests.
func key(name string) proxy.Key { return proxy.Key{Namespace: "crawl", Name: cmp.Or(name, "a")} }

// external is a spec that needs nothing.
func external() proxy.Declaration {
	return proxy.Declaration{Spec: proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "proxy.example", Port: 3128}}}
}

func numbered(i int) proxy.Key { return key(fmt.Sprintf("p-%04d", i)) }
