package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/lease"
)

// reign is a fleet of two replicas whose proxies are objects in a namespace of a cluster and whose instances, at the example
// cloud, outlive both.
type reign struct {
	*world
	cluster   *cluster.Cluster
	namespace string
	flags     []string // of its replicas
	objects   dynamic.Interface
	ways      [2]*way
	readers   sync.WaitGroup
	still     map[string]int64 // the instances of proxies that nobody touches, by name
	founder   *replica         // the first that ever led
	counted   map[string]int
	slowest   time.Duration // from the end of a leader until leases were granted

	unwatch func()

	mu      sync.Mutex
	written func(name string) // hears of each change of a proxy, or nil
}

// way is how a replica reaches the API server, and the replica.
type way struct {
	*cluster.Relay
	kubeconfig string
	replica    *replica
}

// replica is one that somebody reads from until it is known to be dying.
type replica struct {
	*server
	way   *way
	dying atomic.Bool
}

func newReign(t *testing.T, c *cluster.Cluster, namespace string, flags ...string) *reign {
	t.Helper()
	m := &reign{world: newWorld(t), cluster: c, namespace: namespace, flags: flags, counted: map[string]int{}, still: map[string]int64{}}
	for n := range 2 {
		m.proxies[fmt.Sprintf("still%d", n)] = &wish{declared: true, zone: "a"}
	}
	rest, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1
	if m.objects, err = dynamic.NewForConfig(rest); err != nil {
		t.Fatal(err)
	}
	m.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n")
	m.place.write("fleet.yaml", fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: kills
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: toy
  type: example
  config: {url: %q, zones: [a, b]}
`, m.url+"/healthz", m.url))
	t.Cleanup(m.readers.Wait)
	for i := range m.ways {
		m.ways[i] = m.newWay()
	}
	return m
}

// newWay opens a way to the API server that lasts as long as the test.
func (m *reign) newWay() *way {
	m.t.Helper()
	relay, err := m.cluster.Relay()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(relay.Close)
	kubeconfig, err := relay.Kubeconfig(m.cluster.Kubeconfig())
	if err != nil {
		m.t.Fatal(err)
	}
	return &way{Relay: relay, kubeconfig: kubeconfig}
}

// begin declares all proxies, starts both replicas, and waits until each proxy is Ready, and until no answer of the cloud is so old
// that what nobody touches has yet to start in it.
func (m *reign) begin() {
	m.t.Helper()
	m.apply(login("0"))
	for name := range m.proxies {
		m.declare(name)
	}
	for _, w := range m.ways {
		m.launch(w)
	}
	for _, w := range m.ways {
		m.serves(w.replica)
	}
	for name, p := range m.ways[0].replica.await(len(m.proxies), "Ready") {
		m.uids[name] = p.UID
		if strings.HasPrefix(name, "still") {
			m.still[name] = m.instance(p.UID).ID
		}
	}
	eventually(m.t, func() string {
		for name := range m.still {
			if i := m.instance(m.uids[name]); time.Since(i.Running) < lag {
				return name + " has only just started"
			}
		}
		return ""
	})
	m.founder, _ = m.leader()
	m.watch()
	for _, w := range m.ways {
		m.join(w)
	}
}

// join waits until the replica of a way serves, and reads from it from now on.
func (m *reign) join(w *way) {
	m.t.Helper()
	r := w.replica
	m.serves(r)
	m.readers.Go(func() { m.read(r) })
}

// launch starts a replica in place of the one that there was.
func (m *reign) launch(w *way) {
	m.t.Helper()
	w.replica = &replica{server: launch(m.t, append([]string{"--kubernetes", "--kubeconfig", w.kubeconfig, "-f", m.path("fleet.yaml"),
		"--leader-election-namespace", m.namespace, "--gc-min-age", minAge.String(), "--requeue-interval", "50ms", "--deletion-poll", "50ms", "--provisioning-poll", "50ms", "--drift-poll", "500ms", "--first-retry", "100ms",
		"--last-retry", "500ms", "--quota-retry", "500ms", "--permanent-retry", "2s", "--drain-timeout", "500ms", "--log-level", "info"}, m.flags...)...), way: w}
}

// serves waits until a replica is ready.
func (m *reign) serves(r *replica) {
	m.t.Helper()
	r.serving()
	eventually(m.t, r.ready)
}

// read lists the proxies of a replica for as long as it should answer. What nobody touches is Ready all the time.
func (m *reign) read(r *replica) {
	untouched := client.Filter{Attributes: map[string]string{"touched": "false"}}
	for {
		all, err := r.client.ListProxies(m.t.Context(), untouched)
		if m.t.Context().Err() != nil || r.dying.Load() {
			return
		}
		if err != nil {
			m.t.Errorf("a replica that runs answers: %v", err)
			return
		}
		ready := 0
		for _, p := range all {
			if p.Phase == "Ready" {
				ready++
			}
		}
		if ready != len(m.still) {
			m.t.Errorf("a replica says of those that nobody touches: %+v", all)
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-m.t.Context().Done():
			return
		}
	}
}

// at returns where the API has objects of a kind.
func (m *reign) at(resource string) dynamic.ResourceInterface {
	where := map[string]schema.GroupVersionResource{
		"proxies":    {Group: "crawl.example.com", Version: "v1alpha1", Resource: "proxies"},
		"secrets":    {Version: "v1", Resource: "secrets"},
		"leases":     {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		"namespaces": {Version: "v1", Resource: "namespaces"},
	}[resource]
	if resource == "namespaces" {
		return m.objects.Resource(where)
	}
	return m.objects.Resource(where).Namespace(m.namespace)
}

// apply applies a document.
func (m *reign) apply(document string) {
	m.t.Helper()
	if err := m.tryApply(document); err != nil {
		m.t.Fatal(err)
	}
}

// tryApply does what kubectl apply --server-side does.
func (m *reign) tryApply(document string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		return err
	}
	resource := map[string]string{"Proxy": "proxies", "Secret": "secrets", "Namespace": "namespaces"}[o.GetKind()]
	_, err := m.at(resource).Apply(m.t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

// declare applies a proxy as it should be by now.
func (m *reign) declare(name string) {
	m.t.Helper()
	p := m.proxies[name]
	p.declared = true
	m.apply(declared{name: name, provider: "toy",
		more: fmt.Sprintf("placement: {zone: %s}\n  attributes: {region: %q, touched: %q}", p.zone, strconv.Itoa(p.region),
			strconv.FormatBool(!strings.HasPrefix(name, "still")))}.String())
}

// undeclare deletes one, and does not wait until it is gone.
func (m *reign) undeclare(name string) {
	m.t.Helper()
	m.proxies[name].declared = false
	if err := m.at("proxies").Delete(m.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// move moves one to the other zone: its instance is deleted, and another one created.
func (m *reign) move(name string) {
	m.t.Helper()
	p := m.proxies[name]
	p.zone = map[string]string{"a": "b", "b": "a"}[p.zone]
	m.declare(name)
}

// pick returns a proxy that is declared or gone, and may be touched.
func (m *reign) pick(declared bool) string {
	m.t.Helper()
	var names []string
	for name, p := range m.proxies {
		if p.declared == declared && !strings.HasPrefix(name, "still") && (declared || m.removed(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return names[m.random.IntN(len(names))]
}

// removed says whether the object of a proxy is gone.
func (m *reign) removed(name string) bool {
	m.t.Helper()
	_, err := m.at("proxies").Get(m.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		m.t.Fatal(err)
	}
	return err != nil
}

// spared makes sure that one can be undeclared.
func (m *reign) spared() {
	if m.count() <= len(m.proxies)-gone {
		if name := m.pick(false); name != "" {
			m.declare(name)
		}
	}
}

// wanted makes sure that one can be declared.
func (m *reign) wanted() {
	if m.count() == len(m.proxies) {
		m.undeclare(m.pick(true))
	}
	eventually(m.t, func() string {
		if m.pick(false) == "" {
			return "what is undeclared does not go"
		}
		return ""
	})
}

// stir edits something, or lets an instance die.
func (m *reign) stir() {
	m.t.Helper()
	name := m.pick(true)
	switch m.random.IntN(5) {
	case 0:
		if m.count() > len(m.proxies)-gone {
			m.undeclare(name)
		}
	case 1:
		m.move(name)
	case 2:
		m.proxies[name].region++
		m.declare(name)
	case 3:
		if i := m.instance(m.uids[name]); i != nil {
			_ = m.cloud.Kill(i.Zone, i.Name) // it may have gone meanwhile
		}
	case 4:
		if again := m.pick(false); again != "" {
			m.declare(again)
		}
	}
}

// watch hears of each change of a proxy until the end of the test.
func (m *reign) watch() {
	m.t.Helper()
	changes, err := m.at("proxies").Watch(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	m.unwatch = changes.Stop
	m.t.Cleanup(changes.Stop)
	m.readers.Go(func() {
		for change := range changes.ResultChan() {
			o, ok := change.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); m.still[o.GetName()] != 0 && phase != "Ready" {
				m.t.Errorf("%s, which nobody touches, is %s", o.GetName(), phase)
			}
			m.mu.Lock()
			written := m.written
			m.mu.Unlock()
			if written != nil {
				written(o.GetName())
			}
		}
	})
}

// hear has a function hear of each change of a proxy from now on; nil: nobody.
func (m *reign) hear(written func(name string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = written
}

// leader waits until one of the replicas that live leads, and returns it and the other one.
func (m *reign) leader() (leads, follows *replica) {
	m.t.Helper()
	a, b := m.ways[0].replica, m.ways[1].replica
	eventually(m.t, func() string {
		switch {
		case a.grantsLeases():
			leads, follows = a, b
		case b.grantsLeases():
			leads, follows = b, a
		default:
			return "nobody leads"
		}
		return ""
	})
	return leads, follows
}

// lastOfTerms returns the last line of a log that is about terms.
func (r *replica) lastOfTerms() (last string) {
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, `"msg":"this replica leads`) || strings.Contains(line, `"msg":"leases are granted"`) {
			last = line
		}
	}
	return last
}

// leads says whether it has a term, and grantsLeases whether that has come so far, as the log of one has it that is not dying.
func (r *replica) leads() bool {
	last := r.lastOfTerms()
	return last != "" && !strings.Contains(last, "leads no more") && !r.dying.Load()
}

func (r *replica) grantsLeases() bool {
	return strings.Contains(r.lastOfTerms(), "leases are granted") && !r.dying.Load()
}

// fell ends a replica as kill -9 does.
func (r *replica) fell() {
	r.dying.Store(true)
	r.kill()
}

// free has the Lease of a leader that is dead be as if it had run out.
func (m *reign) free() {
	m.t.Helper()
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": "", "leaseDurationSeconds": 1}})
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.at("leases").Patch(m.t.Context(), "proxyfleet", apitypes.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// leases has a replica grant a lease, and gives it back.
func (m *reign) leases(r *replica) {
	m.t.Helper()
	l := r.grants(lease.Request{Target: "example.com", Wait: 45 * time.Second})
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	_ = r.client.Release(ctx, l.ID) // the next leader does not know it
}

// succeeded waits until another replica than this one leads, and has said that the leases of the earlier leader are lost. Leases
// are granted by then, whoever of those that live is asked.
func (m *reign) succeeded(gone *replica) {
	m.t.Helper()
	begun := time.Now()
	var leader *replica
	eventually(m.t, func() string {
		if leader, _ = m.leader(); leader == gone {
			return "the leader that was leads on"
		}
		return ""
	})
	for _, w := range m.ways {
		if w.replica.client != nil && w != gone.way {
			m.leases(w.replica)
		}
	}
	m.slowest = max(m.slowest, time.Since(begun))
	if took := time.Since(begun); took > 40*time.Second {
		m.t.Errorf("it took %v until leases were granted", took)
	}
	log := leader.log.String()
	terms, lost := strings.Count(log, `"msg":"this replica leads"`), strings.Count(log, "leases and cooldowns of the earlier leader are lost")
	if leader == m.founder {
		terms--
	}
	if lost == 0 || lost != terms {
		m.t.Errorf("after %d terms the log says %d times that leases of an earlier leader are lost", terms, lost)
	}
}

// calm lets the cloud be fair, and waits until the fleet is what is declared.
func (m *reign) calm(s *replica) {
	m.t.Helper()
	m.cloud.Heal()
	eventually(m.t, func() string {
		all := s.list()
		for name, p := range m.proxies {
			if uid := all[name].UID; uid != "" {
				m.uids[name] = uid
			}
			if problem := m.compare(p, all[name], m.instance(m.uids[name])); problem != "" {
				return name + problem
			}
		}
		return ""
	})
	m.judge()
}

// audit lets all calm down, makes one sweep, and looks at each instance that there is.
func (m *reign) audit() {
	m.t.Helper()
	leader, follower := m.leader()
	m.calm(follower)
	<-time.After(2 * minAge)
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	plan, err := leader.client.Sweep(ctx)
	if err != nil || len(plan.Providers) != 1 || plan.Providers[0].Braked || plan.Providers[0].Error != "" {
		m.t.Fatalf("the sweep: %+v, %v", plan, err)
	}
	eventually(m.t, m.unowned)
	m.judge()
	for name, id := range m.still {
		if i := m.instance(m.uids[name]); i == nil || i.ID != id || i.State(time.Now()) != cloud.Running {
			m.t.Fatalf("nobody touched %s, whose instance was %d and is %+v", name, id, i)
		}
	}
}

// unowned says which instance is not the one of a proxy, or which proxy has none.
func (m *reign) unowned() string {
	leader, _ := m.leader()
	ports := map[string]int{}
	for _, p := range leader.list() {
		ports[p.UID] = int(p.Port)
	}
	for _, i := range m.cloud.History() {
		uid := i.Labels["proxyfleet-uid"]
		if i.State(time.Now()) == cloud.Gone {
			continue
		}
		if ports[uid] != i.Port {
			return fmt.Sprintf("no proxy holds %+v", i)
		}
		delete(ports, uid)
	}
	if len(ports) > 0 {
		return fmt.Sprintf("without an instance: %v", slices.Sorted(maps.Keys(ports)))
	}
	return ""
}
