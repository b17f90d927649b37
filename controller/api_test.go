package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// people declares proxies past the stores under test.
func people(t testing.TB, cfg *rest.Config) *declarer {
	t.Helper()
	return &declarer{newStore(t, Config{REST: cfg}), &book{notes: map[types.UID]note{}}}
}

func (d *declarer) declare(t testing.TB, k proxy.Key, to proxy.Declaration) *proxy.Proxy {
	t.Helper()
	p, err := d.Put(t.Context(), k, to, "people")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// observed collects the keys that a Watch delivers.
type observed struct {
	mu   sync.Mutex
	keys map[proxy.Key]int
}

func observe(t testing.TB, s *Store) *observed {
	t.Helper()
	o := &observed{keys: map[proxy.Key]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(ctx, func(k proxy.Key) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.keys[k]++
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return o
}

// take returns what was delivered since the last call.
func (o *observed) take() map[proxy.Key]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := maps.Clone(o.keys)
	clear(o.keys)
	return keys
}

// sees waits until a key was delivered.
func (o *observed) sees(t testing.TB, k proxy.Key) {
	t.Helper()
	until(t, "Watch delivered "+k.String(), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.keys[k] > 0
	})
}

// While the cache hears nothing, reads go by what the store wrote and was answered, and not behind it; afterwards by the cache.
func TestReadsBeforeTheCacheCatchesUp(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	old := d.declare(t, key("a"), external())
	kept := d.declare(t, key("kept"), external())
	s, _ := runStore(t, Config{REST: way.rest})
	way.freeze()

	p := old
	for i := range 3 {
		p.Status.LatencyMillis = int64(i + 1)
		p, _ = must(t)(s.UpdateStatus(t.Context(), p))
		shows(t, s, p)
	}
	old.Status.LatencyMillis = 9
	if _, err := s.UpdateStatus(t.Context(), old); !errors.Is(err, proxy.ErrConflict) {
		t.Errorf("a write from what the cache still holds: %v, want ErrConflict", err)
	}
	p.Finalizer = true
	p, _ = must(t)(s.UpdateMeta(t.Context(), p))
	if err := d.Delete(t.Context(), p.Key); err != nil {
		t.Fatal(err)
	}
	born := d.declare(t, key("born"), external())
	if err := d.Delete(t.Context(), kept.Key); err != nil {
		t.Fatal(err)
	}

	// What Live was answered counts too: an object that was born, one that is gone, and one that is being deleted.
	if _, err := s.Live(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows(t, s, born)
	gone(t, s, kept.Key)
	p, err := s.Get(t.Context(), p.Key)
	if err != nil || !p.Deleting {
		t.Fatalf("%+v, %v: not as Live had it", p, err)
	}
	p.Finalizer = false
	must(t)(s.UpdateMeta(t.Context(), p))
	gone(t, s, p.Key)
	again := d.declare(t, p.Key, external())
	gone(t, s, p.Key) // the next life is not known yet, but the last one is over

	way.thaw()
	until(t, "the cache shows the next life", func() bool {
		got, err := s.Get(t.Context(), again.Key)
		return err == nil && got.UID == again.UID
	})
	until(t, "nothing is remembered any more", func() bool {
		_, _ = s.List(t.Context())
		s.recent.mu.Lock()
		defer s.recent.mu.Unlock()
		return len(s.recent.answers) == 0
	})
}

// A write that changes nothing, from what a cache still holds though somebody has written since, is a conflict: who is about to
// delete an instance learns by it that the record is another.
func TestWriteFromStaleCacheThatChangesNothing(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	d.declare(t, key("a"), external())
	s, _ := runStore(t, Config{REST: way.rest})
	way.freeze()
	p, _ := must(t)(s.Get(t.Context(), key("a")))
	writes := map[string]func(context.Context, *proxy.Proxy) (*proxy.Proxy, error){"UpdateMeta": s.UpdateMeta, "UpdateStatus": s.UpdateStatus}
	for name, write := range writes {
		if got, err := write(t.Context(), p.Clone()); err != nil || got.Version != p.Version {
			t.Errorf("%s that changes nothing: %+v, %v", name, got, err)
		}
	}
	d.declare(t, key("a"), proxy.Declaration{Spec: external().Spec, Annotations: map[string]string{"somebody": "wrote"}})
	for name, write := range writes {
		if got, err := write(t.Context(), p.Clone()); !errors.Is(err, proxy.ErrConflict) {
			t.Errorf("%s that changes nothing, from a stale read: %+v, %v; want ErrConflict", name, got, err)
		}
	}
}

// must ends the test on an error.
func must(t testing.TB) func(*proxy.Proxy, error) (*proxy.Proxy, error) {
	return func(p *proxy.Proxy, err error) (*proxy.Proxy, error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p, nil
	}
}

// shows checks that Get and List show a record in its version.
func shows(t testing.TB, s *Store, p *proxy.Proxy) {
	t.Helper()
	got, err := s.Get(t.Context(), p.Key)
	if err != nil || got.Version != p.Version {
		t.Fatalf("Get shows %+v, %v; want version %s", got, err, p.Version)
	}
	all, err := s.List(t.Context())
	i := slices.IndexFunc(all, func(q *proxy.Proxy) bool { return q.Key == p.Key })
	if err != nil || i < 0 || all[i].Version != p.Version {
		t.Fatalf("List does not show %v in version %s: %v", p.Key, p.Version, err)
	}
}

func gone(t testing.TB, s *Store, k proxy.Key) {
	t.Helper()
	if p, err := s.Get(t.Context(), k); !errors.Is(err, proxy.ErrNotFound) {
		t.Fatalf("Get shows %+v, %v; want ErrNotFound", p, err)
	}
	all, err := s.List(t.Context())
	if err != nil || slices.ContainsFunc(all, func(q *proxy.Proxy) bool { return q.Key == k }) {
		t.Fatalf("List shows %v: %v", k, err)
	}
}

// A merge patch that changes nothing is refused when its version is not the newest, and keeps the version when it is. This is
// the API server's promise, and the reconciler's deletions hang on it.
func TestAPIServerComparesWhatChangesNothing(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	old := d.declare(t, key("a"), external())
	now := d.declare(t, key("a"), proxy.Declaration{Spec: external().Spec, Annotations: map[string]string{"a": "b"}})
	for _, subresource := range []string{"", "status"} {
		for version, conflict := range map[string]bool{old.Version: true, now.Version: false} {
			body := patch{"metadata": patch{"uid": now.UID, "resourceVersion": version}}
			o, err := d.patch(t.Context(), key("a"), subresource, body)
			if errors.Is(err, proxy.ErrConflict) != conflict || !conflict && (err != nil || o.ResourceVersion != now.Version) {
				t.Errorf("patch of %q from version %s of %s: %v", subresource, version, now.Version, err)
			}
		}
	}
}

// What others keep in the metadata stays.
func TestMetadataOfOthers(t *testing.T) {
	c := sharedCluster(t)
	s, _ := runStore(t, Config{REST: restOf(t, c.Kubeconfig())})
	manifest := `{"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "a", "namespace": "crawl",
		"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}, "finalizers": ["example.org/first", "example.org/last"]},
		"spec": {"mode": "External", "endpoint": {"scheme": "http", "host": "proxy.example", "port": 3128}}}`
	if _, err := c.KubectlInput(t.Context(), manifest, "apply", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	var p *proxy.Proxy
	until(t, "the store shows it", func() (ok bool) {
		var err error
		p, err = s.Get(t.Context(), key("a"))
		return err == nil
	})
	p.Finalizer, p.Annotations["ours"] = true, "1"
	p, _ = must(t)(s.UpdateMeta(t.Context(), p))
	got, err := c.Kubectl(t.Context(), "get", "proxy", "a", "--namespace=crawl", "--output=jsonpath={.metadata.finalizers} {.metadata.labels} {.metadata.annotations}")
	for _, want := range []string{`["example.org/first","example.org/last","crawl.example.com/instance"] {"theirs":"1"}`, `"theirs":"1"}`, `"ours":"1"`,
		"last-applied-configuration"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s: %v", got, want, err)
		}
	}
	delete(p.Annotations, "ours")
	p.Finalizer = false
	if err := remove(t.Context(), s, p.Key); err != nil {
		t.Fatal(err)
	}
	until(t, "the store shows that it is being deleted", func() (ok bool) {
		p, err = s.Get(t.Context(), key("a"))
		return err == nil && p.Deleting
	})
	p.Finalizer = false
	if p, _ = must(t)(s.UpdateMeta(t.Context(), p)); !p.Deleting {
		t.Error("it is not being deleted any more")
	}
	if _, err := s.Get(t.Context(), key("a")); err != nil {
		t.Errorf("others keep the record, and Get says: %v", err)
	}
}

// Only labelled Secrets are seen, and the error names the label. A rotation wakes exactly those who refer to the Secret.
func TestSecrets(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	way := newLink(t, cfg)
	asked := &observed{keys: map[proxy.Key]int{}}
	way.answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") {
			asked.mu.Lock()
			defer asked.mu.Unlock()
			asked.keys[proxy.Key{Name: r.URL.Query().Get("labelSelector")}]++
		}
		return false
	})
	s, _ := runStore(t, Config{REST: way.rest})
	w := secretWriter{t, s}
	refers := external()
	refers.Spec.Credentials = &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "login"}}
	p := d.declare(t, key("refers"), refers)
	d.declare(t, key("bystander"), external())
	o := observe(t, s)
	o.sees(t, key("refers"))
	o.sees(t, key("bystander"))
	o.take()

	login := proxy.Secret{Data: map[string]secret.Text{"username": secret.New("u"), "password": secret.New("hunter2")}}
	w.Set("crawl", "login", login)
	login.Labels = map[string]string{proxy.CloudInitLabel: "true"} // the wrong one
	w.Set("crawl", "login", login)
	o.sees(t, key("refers"))
	_, err := s.Inputs(t.Context(), p)
	if input, ok := errors.AsType[*proxy.InputError](err); !ok || input.Reason != proxy.CredentialsError || !strings.Contains(err.Error(), proxy.CredentialsLabel) {
		t.Errorf("Inputs: %v, want a CredentialsError that names the label", err)
	}
	login.Labels = map[string]string{proxy.CredentialsLabel: "true"}
	w.Set("crawl", "login", login)
	until(t, "the references are resolved", func() bool {
		in, err := s.Inputs(t.Context(), p)
		return err == nil && in.Password.Reveal() == "hunter2"
	})
	w.Set("crawl", "other", login)
	o.take()
	login.Data["password"] = secret.New("hunter3")
	w.Set("crawl", "login", login)
	o.sees(t, key("refers"))
	if seen := o.take(); seen[key("bystander")] > 0 {
		t.Errorf("a rotation woke %v", seen)
	}
	if text := fmt.Sprintf("%+v", s.secrets[1].informer.GetStore().List()); strings.Contains(text, "hunter") {
		t.Error("a password prints")
	}
	want := map[proxy.Key]bool{{Name: proxy.CloudInitLabel + "=true"}: true, {Name: proxy.CredentialsLabel + "=true"}: true}
	for selector := range asked.take() {
		if !want[selector] {
			t.Errorf("Secrets were asked for by the selector %q", selector.Name)
		}
	}
}

// A spec that the schema accepts and Go refuses is unresolved for a reason that says so: nothing is made, nothing deleted.
func TestSpecThatOnlyGoRefuses(t *testing.T) {
	c := sharedCluster(t)
	s, _ := runStore(t, Config{REST: restOf(t, c.Kubeconfig())})
	manifest := `{"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "a", "namespace": "crawl"}, "spec": {"mode": "External",
		"endpoint": {"scheme": "https", "host": "proxy.example", "port": 3128, "tls": {"ca": "-----BEGIN CERTIFICATE-----\nnone"}}}}`
	if _, err := c.KubectlInput(t.Context(), manifest, "create", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	var p *proxy.Proxy
	until(t, "the store shows it", func() (ok bool) {
		var err error
		p, err = s.Get(t.Context(), key("a"))
		return err == nil
	})
	_, err := s.Inputs(t.Context(), p)
	if input, ok := errors.AsType[*proxy.InputError](err); !ok || input.Reason != InvalidSpec || !strings.Contains(err.Error(), "spec.endpoint.tls.ca") {
		t.Errorf("Inputs: %v, want InvalidSpec that names the field", err)
	}
	if live, err := s.Live(t.Context()); err != nil || live[p.UID].Key != p.Key {
		t.Errorf("Live: %v, %v", live, err)
	}
}

// A watch that is cut, and one whose version is too old, lose nothing: neither what changed, nor what came, nor what went.
func TestWatchIsCut(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	for _, name := range []string{"stays", "changes", "goes"} {
		d.declare(t, key(name), external())
	}
	log := &lines{}
	s, _ := runStore(t, Config{REST: way.rest, Logger: slog.New(slog.NewTextHandler(log, nil))})
	o := observe(t, s)
	for _, name := range []string{"stays", "changes", "goes"} {
		o.sees(t, key(name))
	}
	for _, tooOld := range []bool{false, true} {
		way.sever()
		o.take()
		d.declare(t, key("changes"), proxy.Declaration{Spec: external().Spec, Annotations: map[string]string{"too-old": fmt.Sprint(tooOld)}})
		d.declare(t, key("comes"), external())
		if err := d.Delete(t.Context(), key("goes")); err != nil {
			t.Fatal(err)
		}
		expired := sync.OnceValue(func() bool { return tooOld })
		way.answers(func(w http.ResponseWriter, r *http.Request) bool {
			if !watches(r) || r.URL.Query().Get("sendInitialEvents") != "" || !strings.HasSuffix(r.URL.Path, "/proxies") || !tooOld || !expired() {
				return false
			}
			_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`))
			tooOld = false
			return true
		})
		way.mend()
		for _, name := range []string{"changes", "comes", "goes"} {
			o.sees(t, key(name))
		}
		gone(t, s, key("goes"))
		if err := d.Delete(t.Context(), key("comes")); err != nil {
			t.Fatal(err)
		}
		d.declare(t, key("goes"), external())
		until(t, "the store is as before", func() bool {
			_, comes := s.Get(t.Context(), key("comes"))
			_, goes := s.Get(t.Context(), key("goes"))
			return errors.Is(comes, proxy.ErrNotFound) && goes == nil
		})
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// While the API server is down, reads are answered, writes and Live fail, and it is asked now and then only. When it is back
// all goes on.
func TestAPIServerIsDown(t *testing.T) {
	c := ownCluster(t)
	cfg := restOf(t, c.Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	p := d.declare(t, key("a"), external())
	log := &lines{}
	s, _ := runStore(t, Config{REST: way.rest, Logger: slog.New(slog.NewTextHandler(log, nil))})
	o := observe(t, s)
	o.sees(t, key("a"))

	c.StopAPI()
	until(t, "it is said that it is down", func() bool { return strings.Contains(log.String(), "server fail") })
	if live, err := s.Live(t.Context()); err == nil {
		t.Errorf("Live: %v, which may be wrong", live)
	}
	if _, err := s.UpdateStatus(t.Context(), p); err == nil || errors.Is(err, proxy.ErrConflict) || errors.Is(err, proxy.ErrNotFound) {
		t.Errorf("UpdateStatus: %v", err)
	}
	shows(t, s, p)
	if err := s.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	before := way.requests.Load()
	<-time.After(5 * time.Second)
	if n := way.requests.Load() - before; n > 60 {
		t.Errorf("%d requests in 5s", n)
	}
	if n := strings.Count(log.String(), "server fail"); n != 1 {
		t.Errorf("the log says %d times that it is down:\n%s", n, log)
	}

	if err := c.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.declare(t, key("b"), external())
	o.sees(t, key("b"))
	p.Status.LatencyMillis = 1
	must(t)(s.UpdateStatus(t.Context(), p))
	if live, err := s.Live(t.Context()); err != nil || len(live) != 2 {
		t.Errorf("Live: %v, %v", live, err)
	}
	until(t, "it is said that it is back", func() bool { return strings.Count(log.String(), "succeed again") == 1 })
}

// Without the rights the store is not ready, and says which are missing, once; with them it goes on by itself.
func TestRightsAreMissing(t *testing.T) {
	c := sharedCluster(t)
	for _, args := range [][]string{
		{"create", "serviceaccount", "fleet", "--namespace=other"},
		{"create", "clusterrole", "reads-proxies", "--verb=get,list,watch", "--resource=proxies.crawl.example.com"},
		{"create", "clusterrolebinding", "reads-proxies", "--clusterrole=reads-proxies", "--serviceaccount=other:fleet"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := c.KubeconfigFor(t.Context(), "other", "fleet")
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	s := newStore(t, Config{REST: restOf(t, kubeconfig), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if _, err := s.Get(t.Context(), key("a")); err == nil || errors.Is(err, proxy.ErrNotFound) {
		t.Errorf("Get before anything was read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var why error
	until(t, "Ready names what is forbidden", func() bool {
		why = s.Ready()
		return why != nil && strings.Count(why.Error(), "forbidden") == 2
	})
	for _, want := range []string{proxy.CloudInitLabel, proxy.CredentialsLabel, "secrets is forbidden"} {
		if !strings.Contains(why.Error(), want) {
			t.Errorf("Ready: %v, want %q in it", why, want)
		}
	}
	limited, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if err := s.Synced(limited); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Synced: %v", err)
	}
	if n := strings.Count(log.String(), "WARN"); n != 2 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
	for _, args := range [][]string{
		{"create", "clusterrole", "reads-secrets", "--verb=get,list,watch", "--resource=secrets"},
		{"create", "clusterrolebinding", "reads-secrets", "--clusterrole=reads-secrets", "--serviceaccount=other:fleet"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it is ready", func() bool { return s.Ready() == nil })
	if err := s.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
	watching := make(chan error, 1)
	go func() { watching <- s.Watch(t.Context(), func(proxy.Key) {}) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := <-watching; err == nil {
		t.Error("Watch does not say that it is lost")
	}
}

// A list that expires under way is begun anew, a few times.
func TestLiveBeginsAnew(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	p := d.declare(t, key("a"), external())
	s := newStore(t, Config{REST: way.rest})
	for _, c := range []struct {
		name  string
		fails int
		want  bool
	}{{"once", 1, true}, {"always", 100, false}} {
		t.Run(c.name, func(t *testing.T) {
			pages, left := 0, c.fails
			way.answers(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Query().Get("continue") != "" && left > 0:
					left--
					refuse(w, http.StatusGone, "Expired")
				case left > 0 || pages > 0 && r.URL.Query().Get("continue") == "x":
					pages++
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"kind":"ProxyList","apiVersion":"crawl.example.com/v1alpha1","metadata":{"continue":"x","resourceVersion":"1"},"items":[]}`))
				default:
					return false
				}
				return true
			})
			live, err := s.Live(t.Context())
			if (err == nil) != c.want || c.want && live[p.UID].Key != p.Key {
				t.Errorf("Live: %v, %v", live, err)
			}
			if pages > lists {
				t.Errorf("the list was begun %d times", pages)
			}
		})
	}
}

// Live has all pages.
func TestLiveIsComplete(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	const many = 1000
	inParallel(t, many, func(ctx context.Context, i int) error {
		to := external()
		if i%10 == 0 {
			to.Annotations = map[string]string{"keep": "yes"}
		}
		_, err := d.Put(ctx, numbered(i), to, "people")
		return err
	})
	s, _ := runStore(t, Config{REST: cfg})
	live, err := s.Live(t.Context())
	if err != nil || len(live) != many {
		t.Fatalf("Live: %d records, %v", len(live), err)
	}

	// All are deleted at once: those with a finalizer stay until it is taken off, and each is told of.
	o := observe(t, s)
	inParallel(t, many/10, func(ctx context.Context, i int) error {
		_, err := proxy.Update(ctx, s, numbered(10*i), s.UpdateMeta, func(p *proxy.Proxy) error {
			p.Finalizer = true
			return nil
		})
		return err
	})
	o.sees(t, numbered(many-1))
	o.take()
	err = d.proxies.Delete().Namespace("crawl").Resource("proxies").VersionedParams(&metav1.DeleteOptions{}, metav1.ParameterCodec).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	until(t, "those with a finalizer are left", func() bool {
		all, err := s.List(t.Context())
		return err == nil && len(all) == many/10 && !slices.ContainsFunc(all, func(p *proxy.Proxy) bool { return !p.Deleting })
	})
	inParallel(t, many/10, func(ctx context.Context, i int) error {
		_, err := proxy.Update(ctx, s, numbered(10*i), s.UpdateMeta, func(p *proxy.Proxy) error {
			p.Finalizer = false
			return nil
		})
		return err
	})
	all, err := s.List(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("List: %d records, %v", len(all), err)
	}
	for i := range many {
		o.sees(t, numbered(i))
	}
}

// inParallel does something n times.
func inParallel(t testing.TB, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	todo := make(chan int)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for i := range todo {
				if err := do(t.Context(), i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	group.Wait()
}

// An object that cannot be understood hides no other.
func TestListWithWhatCannotBeUnderstood(t *testing.T) {
	text := `{"kind": "ProxyList", "items": [
		{"metadata": {"namespace": "crawl", "name": "spec", "uid": "1"}, "spec": {"port": "none"}, "status": {"instance": {"id": "i-1"}}},
		{"metadata": {"namespace": "crawl", "name": "status", "uid": "2"}, "spec": {"provider": "lab"}, "status": []},
		{"metadata": {"namespace": "crawl", "name": "going", "uid": "3", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"port": "none"}},
		{"metadata": {"namespace": "crawl", "name": "sound", "uid": "4"}, "spec": {"provider": "lab"}}]}`
	var list wireList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var usable []string
	for i := range list.Items {
		o := understood(&list.Items[i])
		if o.problem() == nil {
			usable = append(usable, o.record("").Name)
		}
		if o.Name == "spec" && o.record("").Status.Instance.ID != "i-1" {
			t.Error("its instance is lost")
		}
	}
	if want := []string{"going", "sound"}; !slices.Equal(usable, want) {
		t.Errorf("usable are %v, want %v", usable, want)
	}
}
