package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/lease"
)

// podded is a realm with a node, whose proxies are pods that run there.
type podded struct {
	*realm
	site string // what pods may lead to
}

func newPodded(t *testing.T) *podded {
	t.Helper()
	r := newRealm(t, cluster.Config{Controllers: true})
	archive, image, err := cluster.SquidImage(t.Context())
	if err == nil {
		err = r.cluster.Node(t.Context(), archive)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(r.cluster.Gateway(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	site := &httptest.Server{Listener: listener, Config: &http.Server{Handler: r.target, ReadHeaderTimeout: time.Minute}}
	site.Start()
	t.Cleanup(site.Close)
	for _, namespace := range []string{"proxies", "unwell"} {
		r.kubectl("create", "namespace", namespace)
		r.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	}
	p := &podded{r, site.URL}
	p.write("fleet.yaml", fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- {name: pods, type: pod, config: {namespace: proxies, image: %[2]q, kubeconfig: %[3]q, allowedDestinations: [%[4]s/32], settle: 9s}}
- {name: nowhere, type: pod, config: {namespace: unwell, image: %[2]q, kubeconfig: %[3]q, settle: 9s, nodeSelector: {pool: nowhere}}}
- {name: blank, type: pod, config: {namespace: unwell, image: "registry.example.com/squid:1", kubeconfig: %[3]q, settle: 9s}}
- {name: frugal, type: pod, config: {namespace: unwell, image: %[2]q, kubeconfig: %[3]q, settle: 9s,
   resources: {requests: {ephemeral-storage: "100"}, limits: {ephemeral-storage: "100"}}}}
`, site.URL+"/healthz", image, r.cluster.Kubeconfig(), r.cluster.Gateway()))
	return p
}

// pods returns the UIDs of the pods that do not go, by the name of their proxy's UID.
func (p *podded) pods() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(p.kubectl("get", "pods", "--namespace=proxies",
		`--output=jsonpath={range .items[*]}{.metadata.labels.crawl\.example\.com/uid} {.metadata.uid} {.metadata.deletionTimestamp}{"\n"}{end}`)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			all[fields[0]] = fields[1]
		}
	}
	return all
}

// tidy waits until there is nothing in the namespace but so many pods, each with the Secret that it owns.
func (p *podded) tidy(count int) {
	p.t.Helper()
	eventually(p.t, func() string {
		owners := strings.Fields(p.kubectl("get", "secrets", "--namespace=proxies", "--output=jsonpath={.items[*].metadata.ownerReferences[0].uid}"))
		slices.Sort(owners)
		pods := slices.Sorted(maps.Values(p.pods()))
		if len(pods) != count {
			return fmt.Sprintf("there are %d pods, want %d", len(pods), count)
		}
		return cmp.Diff(strings.Join(pods, "\n"), strings.Join(owners, "\n"))
	})
}

// says waits until kubectl says a text.
func (p *podded) says(text string, args ...string) {
	p.t.Helper()
	eventually(p.t, func() string {
		if said := p.kubectl(args...); !strings.Contains(said, text) {
			return fmt.Sprintf("want %q, kubectl says %q", text, said)
		}
		return ""
	})
}

// serve waits until the proxies whose pods are well are Ready, with the pods and Secrets that they have, and nothing else.
func (p *podded) serve(s *server, count int) {
	p.t.Helper()
	eventually(p.t, func() string {
		ready := 0
		for name, shown := range s.list() {
			if strings.HasPrefix(name, "pod-") && shown.Phase == "Ready" {
				ready++
			}
		}
		if ready != count {
			return fmt.Sprintf("%d of %d are Ready", ready, count)
		}
		return ""
	})
	p.tidy(count)
}

// Proxies that are pods of a real node: probed, leased and used; made once, also when the leader is killed while it makes them; made
// again when somebody kills one; gone with their proxies. What keeps a pod from running is said by its proxy.
func TestPods(t *testing.T) {
	t.Parallel()
	p := newPodded(t)
	one, two := p.replica(), p.replica()
	leader, follower := p.leaderOf(one, two)

	const count = 5
	documents := []string{login("pods")}
	for i := range count {
		documents = append(documents, declared{name: fmt.Sprintf("pod-%d", i), provider: "pods"}.String())
	}
	for _, unwell := range []string{"nowhere", "blank", "frugal"} {
		documents = append(documents, declared{name: unwell, provider: unwell}.String())
	}
	p.apply(documents...)
	eventually(t, func() string {
		if len(p.pods()) == 0 {
			return "no pod is being made"
		}
		return ""
	})
	leader.kill()
	p.serve(follower, count)
	p.used(follower)
	p.replaced(follower, count)

	message := `--output=jsonpath={.status.conditions[?(@.type=="Provisioned")].message}`
	p.says("Unschedulable: 0/1 nodes are available", "get", "proxy", "nowhere", message)
	p.says(`ImagePullBackOff: failed to pull and unpack image "registry.example.com/squid:1"`, "get", "proxy", "blank", message)
	p.says("Evicted: Pod ephemeral local storage usage exceeds",
		"get", "events", "--field-selector=involvedObject.name=frugal", "--output=jsonpath={.items[*].message}")

	p.kubectl("delete", "proxies", "--all", "--wait=false")
	p.tidy(0)
	eventually(t, func() string { return p.kubectl("get", "proxies,pods,secrets", "--namespace=unwell", "--output=name") })
	eventually(t, func() string { return p.kubectl("get", "proxies", "--output=name") })
}

// used leases a proxy of the fleet and uses it.
func (p *podded) used(s *server) {
	p.t.Helper()
	l := s.grants(lease.Request{Target: "example.com"})
	use(p.t, l, p.site+"/")
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := s.client.Release(ctx, l.ID); err != nil {
		p.t.Error(err)
	}
}

// replaced kills a pod, and says that another one takes its place and that no other pod is touched.
func (p *podded) replaced(s *server, count int) {
	p.t.Helper()
	made, victim := p.pods(), s.list()["pod-0"].UID
	p.kubectl("delete", "pod", "--namespace=proxies", "--selector=crawl.example.com/uid="+victim)
	eventually(p.t, func() string {
		if now := p.pods()[victim]; now == "" || now == made[victim] {
			return "nobody replaces the pod that was killed"
		}
		return ""
	})
	p.serve(s, count)
	now := p.pods()
	delete(now, victim)
	delete(made, victim)
	if diff := cmp.Diff(made, now); diff != "" {
		p.t.Errorf("the other pods are not what they were: %s", diff)
	}
}
