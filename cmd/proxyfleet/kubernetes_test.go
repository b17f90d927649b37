package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/lease"
)

// realm is a Kubernetes cluster that has the definitions of this release, and a folder with a target for probes.
type realm struct {
	*place
	cluster *cluster.Cluster
}

func newRealm(t *testing.T, config cluster.Config) *realm {
	t.Helper()
	c, err := cluster.Start(t.Context(), config)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(c.Close)
	r := &realm{newPlace(t), c}
	crds := call(t, "crds")
	r.input(crds.stdout, "apply", "--server-side", "-f", "-")
	r.kubectl("wait", "--for=condition=Established", "customresourcedefinition", "--all", "--timeout=60s")
	return r
}

// kubectl returns what it prints.
func (r *realm) kubectl(args ...string) string {
	r.t.Helper()
	return r.input("", args...)
}

func (r *realm) input(text string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	out, err := r.cluster.KubectlInput(ctx, text, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// apply applies documents.
func (r *realm) apply(documents ...string) {
	r.t.Helper()
	r.input(strings.Join(documents, "---\n"), "apply", "-f", "-")
}

// configure writes the FleetConfiguration of the replicas, with some providers, as YAML.
func (r *realm) configure(providers string) {
	r.t.Helper()
	r.write("fleet.yaml", fmt.Sprintf("apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nhealthCheck: {url: %q, interval: 1s, timeout: 5s}\n%s",
		r.target.plain.URL+"/healthz", providers))
}

// replica starts one, and returns when it serves.
func (r *realm) replica(args ...string) *server {
	r.t.Helper()
	quick := []string{"--kubernetes", "--kubeconfig", r.cluster.Kubeconfig(), "-f", r.path("fleet.yaml"), "--requeue-interval", "50ms",
		"--deletion-poll", "50ms", "--provisioning-poll", "50ms", "--drift-poll", "500ms", "--first-retry", "100ms", "--drain-timeout", "5s"}
	s := launch(r.t, append(quick, args...)...).serving()
	eventually(r.t, func() string { return s.ready() })
	return s
}

// ready says why a replica is not.
func (s *server) ready() string {
	s.t.Helper()
	answer, err := http.Get(s.url + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return answer.Status
	}
	return ""
}

// grants waits until a replica has leases granted, by itself or by the leader, and returns a lease.
func (s *server) grants(r lease.Request) lease.Lease {
	s.t.Helper()
	var granted lease.Grant
	eventually(s.t, func() string {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		var err error
		if granted, err = s.client.Acquire(ctx, r); err != nil {
			return err.Error()
		}
		return ""
	})
	return granted.Leases[0]
}

// leads says whether a replica has a term, as its log has it.
func (s *server) leads() bool {
	return strings.Count(s.log.String(), `"msg":"leases are granted"`) > strings.Count(s.log.String(), `"msg":"this replica leads no more"`)
}

// leaderOf waits until one of two replicas leads, and returns it and the other one.
func (r *realm) leaderOf(a, b *server) (leader, follower *server) {
	r.t.Helper()
	eventually(r.t, func() string {
		switch {
		case a.leads():
			leader, follower = a, b
		case b.leads():
			leader, follower = b, a
		default:
			return "nobody leads"
		}
		return ""
	})
	return leader, follower
}

// use asks the target through the proxy of a lease.
func use(t *testing.T, l lease.Lease, target string) {
	t.Helper()
	transport := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return l.Proxy.RevealURL(), nil }, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("through %s: %s %q, %v", l.Proxy.Name, answer.Status, body, err)
	}
}

// vigil notes each phase that a proxy is seen in.
type vigil struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (v *vigil) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen.Write(b)
}

// phases are lines of a name and a phase.
func (v *vigil) phases() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen.String()
}

// watch keeps a vigil over the proxies until the end of the test.
func (r *realm) watch() *vigil {
	r.t.Helper()
	v := &vigil{}
	cmd := exec.Command(r.cluster.KubectlPath(), "--kubeconfig="+r.cluster.Kubeconfig(), "get", "proxies", "--watch",
		`--output=jsonpath={.metadata.name} {.status.phase}{"\n"}`)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+r.path("kubectl"), "KUBERC=off")
	cmd.Stdout = v
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(r.t, func() string {
		if v.phases() == "" {
			return "the vigil has not begun"
		}
		return ""
	})
	return v
}

// Proxies that exist already are objects of a cluster, leased through whichever replica is asked. Who holds a lease is told
// when the leader that granted it is lost; the proxies stay what they are, and the other replica goes on.
func TestReplicas(t *testing.T) {
	t.Parallel()
	r := newRealm(t, cluster.Config{})
	r.configure("")
	one, two := r.replica(), r.replica()
	leader, follower := r.leaderOf(one, two)
	if warned := "leases and cooldowns of the earlier leader are lost"; strings.Contains(leader.log.String(), warned) {
		t.Error("the first leader there is says that it has lost the leases of another")
	}
	plain := daemon(t, "tinyproxy", "/usr/bin/tinyproxy", []string{"-d", "-c"},
		"Listen 127.0.0.1\nPort PORT\nBasicAuth anna "+planted+"a\nBasicAuth bert "+planted+"b\n")
	r.apply(userSecret("anna", "a"), userSecret("bert", "b"), external("anna", "http", plain, "anna", ""), external("bert", "http", plain, "bert", ""))
	for _, s := range []*server{one, two} {
		s.await(2, "Ready")
	}
	r.bothAnswer(leader, follower)
	r.edits(leader, follower, plain)
	r.failover(leader, follower)
	next := r.handOver(follower)
	next.kill()
	r.alone()
}

// bothAnswer leases through either replica, and hears of it from either.
func (r *realm) bothAnswer(leader, follower *server) {
	t := r.t
	l := follower.grants(lease.Request{Target: "example.com", Selector: nil})
	use(t, l, r.target.plain.URL+"/")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if shown := leader.list()[l.Proxy.Name].ActiveLeases; shown == nil || *shown != 1 {
		t.Errorf("the leader shows %v open leases", shown)
	}
	if shown := follower.list()[l.Proxy.Name].ActiveLeases; shown != nil {
		t.Errorf("the other one shows %d open leases, which it cannot know", *shown)
	}
	for _, s := range []*server{leader, follower} {
		if _, err := s.client.Renew(ctx, l.ID, time.Minute); err != nil {
			t.Error(err)
		}
		if e, err := s.client.Explain(ctx, l.Proxy.Namespace, l.Proxy.Name); err != nil || len(e.Leases) != 1 {
			t.Errorf("explained with %d leases, %v", len(e.Leases), err)
		}
		if w := s.cli("backup", r.path("state.db")); w.code == 0 || !strings.Contains(w.stderr, "back up the Proxy objects") {
			t.Errorf("backup: %+v", w)
		}
		if w := s.cli("gc", "--dry-run"); w.code != 0 {
			t.Errorf("gc: %+v", w)
		}
	}
	if err := follower.client.Report(ctx, l.ID, lease.Report{Outcome: lease.Banned}); err != nil {
		t.Error(err)
	}
	if err := follower.client.Release(ctx, l.ID); err != nil {
		t.Error(err)
	}
	if e, err := leader.client.Explain(ctx, l.Proxy.Namespace, l.Proxy.Name); err != nil || len(e.Leases) != 0 || len(e.Cooldowns) != 1 {
		t.Errorf("after the report: %+v, %v", e, err)
	}
}

// edits changes what is declared, and sees it followed by both replicas.
func (r *realm) edits(leader, follower *server, plain string) {
	t := r.t
	r.kubectl("patch", "proxy", "anna", "--type=merge", "-p", `{"spec":{"attributes":{"region":"eu"}}}`)
	eventually(t, func() string {
		for _, s := range []*server{leader, follower} {
			if got := s.list()["anna"].Attributes["region"]; got != "eu" {
				return "the edit is not seen"
			}
		}
		return ""
	})
	if got := follower.grants(lease.Request{Target: "example.org", Selector: map[string]string{"region": "eu"}}).Proxy.Name; got != "anna" {
		t.Errorf("the lease of a proxy that the edit has made fit is of %s", got)
	}
	r.apply(userSecret("anna", "wrong"))
	for _, s := range []*server{leader, follower} {
		s.awaitPhases(map[string]string{"anna": "Unhealthy", "bert": "Ready"})
	}
	r.apply(userSecret("anna", "a"))
	leader.await(2, "Ready")

	// One that cannot be made has a finalizer, and is let go of on request, through whichever replica.
	r.apply(declared{name: "cloud", provider: "nowhere"}.String(), login("x"))
	eventually(t, func() string {
		if p := follower.list()["cloud"]; len(p.Conditions) == 0 {
			return "no pass has seen the proxy of an unknown provider"
		}
		return ""
	})
	for _, command := range []string{"retry", "skip-cleanup"} {
		if w := follower.cli(command, "cloud"); w.code != 0 {
			t.Errorf("%s: %+v", command, w)
		}
	}
	if annotations := r.kubectl("get", "proxy", "cloud", "-o", "jsonpath={.metadata.annotations}"); !strings.Contains(annotations, `skip-cleanup":"true"`) ||
		!strings.Contains(annotations, "crawl.example.com/retry") {
		t.Errorf("the annotations are %s", annotations)
	}
	r.apply(external("carl", "http", plain, "anna", ""))
	leader.awaitPhases(map[string]string{"anna": "Ready", "bert": "Ready", "carl": "Ready", "cloud": leader.list()["cloud"].Phase})
	r.kubectl("delete", "proxy", "carl", "cloud", "--timeout=60s")
	for _, s := range []*server{leader, follower} {
		s.await(2, "Ready")
	}
}

// failover kills the leader, and has the other replica take over.
func (r *realm) failover(leader, follower *server) {
	t := r.t
	held := follower.grants(lease.Request{Target: "example.net"})
	v := r.watch()
	ctx, end := context.WithCancel(t.Context())
	unanswered := make(chan error, 1)
	go func() { unanswered <- read(ctx, follower.client) }()
	leader.kill()
	killed := time.Now()
	l := follower.grants(lease.Request{Target: "example.net", Wait: 45 * time.Second})
	t.Logf("a lease %v after kill -9", time.Since(killed).Round(100*time.Millisecond))
	if took := time.Since(killed); took > 40*time.Second {
		t.Errorf("it took %v until leases were granted", took)
	}
	use(t, l, r.target.plain.URL+"/")
	end()
	if err := <-unanswered; err != nil {
		t.Errorf("while one replica took over from the other, %v", err)
	}
	if _, err := follower.client.Renew(t.Context(), held.ID, time.Minute); err == nil {
		t.Error("a lease of the leader that was killed can be renewed")
	}
	if !strings.Contains(follower.log.String(), "leases and cooldowns of the earlier leader are lost") {
		t.Error("the log does not say that leases were lost")
	}
	for line := range strings.Lines(v.phases()) {
		if name, phase, _ := strings.Cut(strings.TrimSpace(line), " "); phase != "Ready" {
			t.Errorf("%s was %s", name, phase)
		}
	}
}

// read lists the proxies until ctx ends, and returns the first error.
func read(ctx context.Context, c *client.Client) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := c.ListProxies(ctx, client.Filter{})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(all) != 2:
			return fmt.Errorf("%d proxies are listed", len(all))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// handOver ends the leader in an orderly way: the next one, which it returns, need not wait until it is missed.
func (r *realm) handOver(leader *server) (next *server) {
	t := r.t
	next = r.replica()
	held := next.grants(lease.Request{Target: "example.edu"})
	begun := time.Now()
	leader.signal(syscall.SIGTERM)
	if state := leader.wait(); state.ExitCode() != 0 {
		t.Errorf("it ends with %v", state)
	}
	next.grants(lease.Request{Target: "example.edu", Wait: 45 * time.Second})
	t.Logf("a lease %v after SIGTERM", time.Since(begun).Round(100*time.Millisecond))
	if holder := r.kubectl("get", "lease", "proxyfleet", "-o", "jsonpath={.spec.holderIdentity}"); !strings.HasPrefix(holder, strings.TrimPrefix(next.url, "http://")) {
		t.Errorf("the Lease is held by %q, and %s leads", holder, next.url)
	}
	if !strings.Contains(leader.log.String(), `"msg":"the term has ended: its leases and cooldowns are lost","leases":`) {
		t.Errorf("whose lease %s is lost is not said", held.Proxy.Name)
	}
	return next
}

// alone has one replica keep the proxies of a namespace without an election: it asks nobody whether it may lead. What it does
// not see it does not collect.
func (r *realm) alone() {
	t := r.t
	s := r.replica("--leader-elect=false", "--namespace", "default", "--fleet-id", "home")
	use(t, s.grants(lease.Request{Target: "example.com"}), r.target.plain.URL+"/")
	if w := s.cli("gc"); w.code == 0 || !strings.Contains(w.stderr, "--gc-allow-namespaced") {
		t.Errorf("gc: %+v", w)
	}
	if !strings.Contains(s.log.String(), `"level":"WARN","msg":"garbage collection is off: `) {
		t.Error("the log does not say that there is no garbage collection")
	}
}
