package main

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/controller"
	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// crowd is a large fleet in a cluster: External proxies, all of which are this process, and two replicas, each of which the API
// server knows by a name of its own.
type crowd struct {
	*realm
	size        int
	interval    time.Duration // of probes
	steady      time.Duration // for which nothing happens but probes
	measured    bool          // there is time for all figures
	objects     rest.Interface
	addresses   []string // of the proxies
	kubeconfigs []string
	began       time.Time // when the first was declared

	mu     sync.Mutex
	phases map[string]proxy.Phase
	turns  int // changes of objects to another phase
	moves  int // those of one that stays Ready: its latency moved
}

// What a fleet costs its cluster, and how long it takes. Few proxies show what holds on any machine: how many requests there are.
// With FIGURES=N there are N, probed as often as by default, and the log has all that docs/performance.md shows.
func TestCrowd(t *testing.T) {
	c := &crowd{size: 200, interval: time.Second, steady: 5 * time.Second, phases: map[string]proxy.Phase{}}
	if n, err := strconv.Atoi(os.Getenv("FIGURES")); err == nil {
		c.size, c.interval, c.steady, c.measured = n, 30*time.Second, 5*time.Minute, true
	} else {
		t.Parallel()
	}
	c.begin(t)
	one, two := c.enlist(0), c.enlist(1)
	leader, follower := c.leaderOf(one, two)
	c.follow()
	c.declare()
	c.rest(leader, follower)
	c.again(leader, follower)
}

// begin starts the cluster and the proxies, and makes the users.
func (c *crowd) begin(t *testing.T) {
	c.realm = newRealm(t, cluster.Config{})
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gv := v1alpha1.GroupVersion()
	config.QPS, config.GroupVersion, config.APIPath = -1, &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.objects, err = rest.RESTClientFor(config); err != nil {
		t.Fatal(err)
	}
	for range 16 { // so that connections that were closed a moment ago do not use up the ports
		c.addresses = append(c.addresses, answering(t, 50*time.Millisecond))
	}
	for _, user := range []string{"one", "two"} {
		c.kubectl("create", "serviceaccount", user)
		c.kubectl("create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--serviceaccount=default:"+user)
		path, err := c.cluster.KubeconfigFor(t.Context(), "default", user)
		if err != nil {
			t.Fatal(err)
		}
		c.kubeconfigs = append(c.kubeconfigs, path)
	}
	c.write("fleet.yaml", fmt.Sprintf("apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: crowd\nhealthCheck: {url: %q, interval: %v}\n",
		"http://target.example/", c.interval))
}

// answering is a proxy that takes its time and then answers for every target. It returns its address.
func answering(t *testing.T, after time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(after):
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// enlist starts a replica, as one of the two users.
func (c *crowd) enlist(user int) *server {
	c.t.Helper()
	s := launch(c.t, "--kubernetes", "--kubeconfig", c.kubeconfigs[user], "-f", c.path("fleet.yaml"), "--health-workers=64", "--log-level=info").serving()
	within(c.t, 5*patience, 20*time.Millisecond, s.ready)
	return s
}

// follow notes what the objects become until the end of the test.
func (c *crowd) follow() {
	c.t.Helper()
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(c.objects, "proxies", metav1.NamespaceAll, fields.Everything()), &v1alpha1.Proxy{}, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { c.note(nil, now.(*v1alpha1.Proxy)) },
		UpdateFunc: func(was, now any) { c.note(was.(*v1alpha1.Proxy), now.(*v1alpha1.Proxy)) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		informer.RunWithContext(c.t.Context())
		close(ended)
	}()
	c.t.Cleanup(func() { <-ended })
	eventually(c.t, func() string {
		if !informer.HasSynced() {
			return "the proxies are not followed"
		}
		return ""
	})
}

func (c *crowd) note(was, now *v1alpha1.Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phases[now.Name] = now.Status.Phase
	switch {
	case was == nil || was.ResourceVersion == now.ResourceVersion:
	case now.Status.Phase == proxy.Ready && was.Status.Phase == proxy.Ready:
		c.moves++
	default:
		c.turns++
	}
}

// changes returns how often objects changed so far, to another phase and without that.
func (c *crowd) changes() (turns, moves int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turns, c.moves
}

// unready says how many proxies are not Ready.
func (c *crowd) unready() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[proxy.Phase]int{}
	for _, p := range c.phases {
		counts[p]++
	}
	if counts[proxy.Ready] == c.size {
		return ""
	}
	return fmt.Sprintf("want %d, and the phases are %v", c.size, counts)
}

// declare declares the proxies, and waits until all are Ready and it is quiet.
func (c *crowd) declare() {
	c.t.Helper()
	c.began = time.Now()
	c.parallel(32, c.size, func(i int) error {
		host, port, _ := net.SplitHostPort(c.addresses[i%len(c.addresses)])
		n, _ := strconv.Atoi(port)
		p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("proxy-%05d", i), Labels: map[string]string{"app.kubernetes.io/part-of": "crowd"}},
			Spec: proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: host, Port: int32(n)},
				Attributes: map[string]string{"region": "eu", "kind": "datacentre"}}}
		return c.objects.Post().Namespace("default").Resource("proxies").Body(p).Do(c.t.Context()).Error()
	})
	applied := time.Since(c.began)
	within(c.t, 20*patience, 20*time.Millisecond, c.unready)
	c.t.Logf("%d proxies: declared in %.1fs, all Ready after %.1fs", c.size, applied.Seconds(), time.Since(c.began).Seconds())
	last := -1
	within(c.t, 20*patience, 2*time.Second, func() string { // Events come behind
		n := c.asked(c.began, time.Now()).sum("events")
		if n == last && n >= 2*c.size {
			return ""
		}
		last = n
		return "Events are still written"
	})
	start := c.asked(c.began, time.Now())
	c.t.Logf("requests at the start: %v", start)
	if turns, moves := c.changes(); turns != 2*c.size {
		c.t.Errorf("there are %d changes of phases and %d of latencies: want each proxy to become Probing and then Ready", turns, moves)
	}
	if n := start.sum("events"); n > 2*c.size {
		c.t.Errorf("there are %d Events, want 2 for each proxy", n)
	}
	if n := start.sum("") - start.sum("events") - start.sum("patch proxies/status") - start.sum("leases"); n > 20+c.size/100 {
		c.t.Errorf("there are %d other requests, want a few in all: %v", n, start)
	}
}

// account waits until each write that the replicas ever made is seen as a change of an object: there is none that changes
// nothing. Nobody writes any more. Of what the end of a replica cut short nobody knows whether it was done.
func (c *crowd) account() {
	c.t.Helper()
	eventually(c.t, func() string {
		turns, moves := c.changes()
		all := c.asked(c.began, time.Now())
		writes, cut := all.sum("patch proxies")-all.sum("patch proxies/status ("), all.sum("patch proxies/status (5")
		if changes := turns + moves; changes < writes || changes > writes+cut {
			return fmt.Sprintf("there are %d writes, %d cut short, and %d changes of phases and %d of latencies", writes, cut, turns, moves)
		}
		return ""
	})
}

// rest looks at what goes on when nothing changes.
func (c *crowd) rest(leader, follower *server) {
	c.t.Helper()
	c.pause(4 * c.interval) // the first latencies were those of all proxies at once
	turns, moves := c.changes()
	busy, began := usage(c.t, leader), time.Now()
	c.pause(c.steady)
	steady, took := c.asked(began, time.Now()), time.Since(began)
	c.t.Logf("requests in %v: %v", took.Round(time.Second), steady)
	c.t.Logf("CPU of the leader %.1f %%; memory: leader %s, follower %s", float64(usage(c.t, leader)-busy)/float64(took)*100,
		memory(c.t, leader), memory(c.t, follower))
	turned, moved := c.changes()
	if turned != turns {
		c.t.Errorf("%d proxies changed their phase while nothing happened", turned-turns)
	}
	if most := c.size * (1 + int(c.steady/time.Minute)); moved-moves > most {
		c.t.Errorf("the latency of proxies was written %d times, want once a minute for each at most", moved-moves)
	}
	if n := steady.sum("") - steady.sum("patch proxies/status") - steady.sum("leases") - steady.sum("watch"); n != 0 {
		c.t.Errorf("%d requests ask for what watches tell anyway: %v", n, steady)
	}
	if c.measured {
		c.whole()
	}
}

// whole looks at the whole of the objects.
func (c *crowd) whole() {
	t := c.t
	for line := range strings.Lines(c.kubectl("get", "--raw", "/metrics")) {
		if strings.HasPrefix(line, "apiserver_storage_size_bytes") || strings.HasPrefix(line, "apiserver_storage_objects") && strings.Contains(line, "proxies") ||
			strings.HasPrefix(line, "apiserver_storage_objects") && strings.Contains(line, `"events"`) {
			t.Log(strings.TrimSpace(line))
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	store, err := controller.New(controller.Config{REST: config})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		began := time.Now()
		raw, err := c.objects.Get().Resource("proxies").DoRaw(t.Context())
		bare := time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		live, err := store.Live(t.Context())
		if err != nil || len(live) != c.size {
			t.Fatalf("%d are live, %v", len(live), err)
		}
		t.Logf("Live takes %v; a bare list, not read, is %d bytes and takes %v", time.Since(began), len(raw), bare)
	}
}

// again ends the leader, and starts replicas that find everything as it is.
func (c *crowd) again(leader, follower *server) {
	t := c.t
	turns, _ := c.changes()
	begun := time.Now()
	if c.measured {
		leader.kill()
		c.lease(follower)
		t.Logf("a lease %v after kill -9 of the leader", time.Since(begun).Round(100*time.Millisecond))
	} else {
		leader.signal(syscall.SIGTERM)
		leader.wait()
	}
	follower.signal(syscall.SIGTERM)
	follower.wait()
	begun = time.Now()
	last := c.enlist(0)
	known := time.Since(begun)
	if ready := last.list(); len(ready) != c.size {
		t.Errorf("a replica is ready when it knows %d proxies", len(ready))
	}
	c.lease(last)
	t.Logf("a new replica knows all proxies after %v, and grants a lease after %v", known.Round(10*time.Millisecond), time.Since(begun).Round(10*time.Millisecond))
	c.pause(2 * c.interval)
	asked := c.asked(begun, time.Now())
	t.Logf("requests of a start that finds all proxies Ready, in %v: %v; memory %s", time.Since(begun).Round(time.Second), asked, memory(t, last))
	if turned, _ := c.changes(); turned != turns || asked.sum("events") != 0 {
		t.Errorf("%d proxies change when a replica starts, and there are %d Events", turned-turns, asked.sum("events"))
	}
	last.kill()
	c.account()
	if c.measured {
		c.floor()
	}
}

// lease waits until a replica leads, and has it grant a lease.
func (c *crowd) lease(s *server) {
	c.t.Helper()
	within(c.t, 5*patience, 10*time.Millisecond, func() string {
		if !s.leads() {
			return "it does not lead"
		}
		return ""
	})
	s.grants(lease.Request{Target: "example.com", Wait: 45 * time.Second})
}

// floor is how long the API server takes for the writes of the start by themselves.
func (c *crowd) floor() {
	c.t.Helper()
	began := time.Now()
	c.parallel(3, 2*c.size, func(i int) error {
		body := fmt.Appendf(nil, `{"status":{"latencyMillis":%d}}`, 100+i)
		return c.objects.Patch(apitypes.MergePatchType).Namespace("default").Resource("proxies").Name(fmt.Sprintf("proxy-%05d", i%c.size)).
			SubResource("status").Body(body).Do(c.t.Context()).Error()
	})
	c.t.Logf("%d bare patches of statuses, three at a time, take %.1fs", 2*c.size, time.Since(began).Seconds())
}

// parallel does something n times, so many at once.
func (c *crowd) parallel(workers, n int, do func(i int) error) {
	c.t.Helper()
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					c.t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// pause lets time pass in which nothing is to happen.
func (c *crowd) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// requests are numbers of requests, by who asked for what: "one: patch proxies/status".
type requests map[string]int

// asked returns the requests of the replicas.
func (c *crowd) asked(from, to time.Time) requests {
	c.t.Helper()
	events, err := c.cluster.Audit()
	if err != nil {
		c.t.Fatal(err)
	}
	counted := requests{}
	for _, e := range events {
		user, ours := strings.CutPrefix(e.User, "system:serviceaccount:default:")
		if !ours || e.Time.Before(from) || e.Time.After(to) {
			continue
		}
		what := e.Verb + " " + e.Resource
		if e.Subresource != "" {
			what += "/" + e.Subresource
		}
		if e.Code >= http.StatusBadRequest {
			what += fmt.Sprintf(" (%d)", e.Code)
		}
		counted[user+": "+what]++
	}
	return counted
}

// sum returns how many requests there are of those with a word in what was asked for.
func (r requests) sum(word string) (n int) {
	for what, count := range r {
		if strings.Contains(what, word) {
			n += count
		}
	}
	return n
}

func (r requests) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		all = append(all, fmt.Sprintf("%s %d", what, r[what]))
	}
	return strings.Join(all, ", ")
}

// memory returns how much of it a replica has, and has had at most.
func memory(t *testing.T, s *server) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var now, most string
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS":
			now = strings.TrimSpace(value)
		case "VmHWM":
			most = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s (at most %s)", now, most)
}

// usage returns the time that a replica has computed.
func usage(t *testing.T, s *server) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	all := strings.Fields(rest)
	user, err1 := strconv.Atoi(all[11])
	system, err2 := strconv.Atoi(all[12])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // the clock of /proc has 100 ticks a second
}
