package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/controller"
	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/proxy"
)

// installation is what examples/kubernetes installs in a cluster without a node, and a replica of it that is a process of the test
// with the rights of its ServiceAccount.
type installation struct {
	*testing.T
	cluster    *cluster.Cluster
	admin      kubernetes.Interface
	kubeconfig string // of the ServiceAccount
	dir        string
}

const serviceAccount = "system:serviceaccount:proxyfleet:proxyfleet"

// newInstallation starts a cluster, as one is that does not stream its lists yet, and installs.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{Flags: []string{"--feature-gates=WatchList=false"}})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(c.Close)
	i := &installation{T: t, cluster: c, dir: t.TempDir()}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if i.admin, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	i.kubectl("apply", "--server-side", "-k", "../../examples/kubernetes")
	i.kubectl("wait", "--for=condition=Established", "crd/proxies.crawl.example.com", "crd/providerhealths.crawl.example.com")
	if i.kubeconfig, err = c.KubeconfigFor(t.Context(), "proxyfleet", "proxyfleet"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"token": "known",
		"fleet.yaml": fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
providers:
- name: pods
  type: pod
  config: {namespace: proxies, kubeconfig: %q, settle: 3s}
`, i.kubeconfig)} {
		if err := os.WriteFile(filepath.Join(i.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func (i *installation) kubectl(args ...string) string {
	i.Helper()
	return i.kubectlInput("", args...)
}

func (i *installation) kubectlInput(stdin string, args ...string) string {
	i.Helper()
	ctx, cancel := context.WithTimeout(i.Context(), patience)
	defer cancel()
	out, err := i.cluster.KubectlInput(ctx, stdin, args...)
	if err != nil {
		i.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// field is a field of an object, or "" where either is not there.
func (i *installation) field(path, kind, name string, more ...string) string {
	i.Helper()
	return i.kubectl(append([]string{"get", kind, name, "--ignore-not-found", "--output=jsonpath=" + path}, more...)...)
}

// replica starts one with the flags that are shipped, but for what belongs to this test: files, ports, and intervals that nobody
// wants to wait for.
func (i *installation) replica() *server {
	i.Helper()
	args := strings.Fields(i.field("{.spec.template.spec.containers[0].args[*]}", "deployment", "proxyfleet", "--namespace=proxyfleet"))
	if len(args) < 10 || args[0] != "run" {
		i.Fatalf("the Deployment's arguments are %q", args)
	}
	for n, arg := range args {
		args[n] = strings.NewReplacer("$(POD_NAMESPACE)", "proxyfleet", "$(POD_IP)", "127.0.0.1",
			"/etc/proxyfleet/config", i.dir, "/etc/proxyfleet/token", i.dir, "=:8090", "=127.0.0.1:0", "=:8091", "=127.0.0.1:0").Replace(arg)
	}
	i.removeLease()
	return launch(i.T, append(args[1:], "--kubeconfig="+i.kubeconfig, "--provider-check-interval=10s", "--gc-interval=1s",
		"--requeue-interval=50ms", "--deletion-poll=50ms", "--provisioning-poll=50ms", "--drift-poll=500ms", "--first-retry=100ms",
		"--last-retry=500ms", "--permanent-retry=1s")...)
}

// removeLease has the next replica not wait for one that was killed.
func (i *installation) removeLease() {
	i.Helper()
	i.kubectl("delete", "lease", "proxyfleet", "--namespace=proxyfleet", "--ignore-not-found")
}

// right is a verb and a resource, with its subresource.
type right string

// roles are the shipped ones, by name.
type roles struct {
	cluster *rbacv1.ClusterRole
	own     *rbacv1.Role // in the fleet's namespace
	pods    *rbacv1.Role // in that of the pods
}

func (i *installation) roles() roles {
	i.Helper()
	var r roles
	var err1, err2, err3 error
	r.cluster, err1 = i.admin.RbacV1().ClusterRoles().Get(i.Context(), "proxyfleet", metav1.GetOptions{})
	r.own, err2 = i.admin.RbacV1().Roles("proxyfleet").Get(i.Context(), "proxyfleet-replica", metav1.GetOptions{})
	r.pods, err3 = i.admin.RbacV1().Roles("proxies").Get(i.Context(), "proxyfleet-pods", metav1.GetOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		i.Fatal(err)
	}
	return r
}

// place is where a right is granted: "" for all namespaces.
func (r roles) rules() map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{"": r.cluster.Rules, "proxyfleet": r.own.Rules, "proxies": r.pods.Rules}
}

// granted are all rights.
func (r roles) granted() []right {
	all := map[right]bool{}
	for place, rules := range r.rules() {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[rightTo(verb, resource, place)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// rightTo names a right. One on the Secrets of the pods is another than that on the Secrets of proxies.
func rightTo(verb, resource, place string) right {
	if place == "proxies" && resource == "secrets" {
		return right(verb + " secrets of pods")
	}
	return right(verb + " " + resource)
}

// requests are the rights that the replica has made use of, and those that it was denied.
func (i *installation) requests(since time.Time) (used, denied map[right]bool) {
	i.Helper()
	events, err := i.cluster.Audit()
	if err != nil {
		i.Fatal(err)
	}
	used, denied = map[right]bool{}, map[right]bool{}
	for _, e := range events {
		if e.User != serviceAccount || e.Resource == "" || e.Time.Before(since) {
			continue
		}
		resource := e.Resource
		if e.Subresource != "" {
			resource += "/" + e.Subresource
		}
		r := rightTo(e.Verb, resource, e.Namespace)
		used[r] = true
		if e.Code == 403 || e.Code == 401 {
			denied[r] = true
		}
	}
	return used, denied
}

// The shipped rights are what the program needs: over the life of its proxies nothing is denied, and nothing is granted that
// is not made use of.
func TestShippedRights(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	t.Run("over a life", func(t *testing.T) { i.on(t).life() })
	t.Run("without one", func(t *testing.T) { i.on(t).withoutEach() })
}

// on is the installation for a subtest.
func (i *installation) on(t *testing.T) *installation {
	sub := *i
	sub.T = t
	return &sub
}

func (i *installation) life() {
	begun := time.Now()
	i.leftover()
	s := i.replica()
	s.servingWith("known")
	i.declare("one")
	i.awaitField("1/1", "{.status.targetsReady}", "providerhealth", "pods")
	i.awaitField("Provisioning", "{.status.phase}", "proxy", "one")
	i.awaitMade("one")
	i.complain(2)
	eventually(i.T, func() string {
		if n := i.complaints(); n != "2" {
			return "the same Event was counted " + n + " times"
		}
		return ""
	})
	i.kubectl("delete", "proxy", "one")
	i.forgotten(i.kubeconfig)
	awaitGone := func(kind, name string) {
		eventually(i.T, func() string { return i.field("{.metadata.name}", kind, name) })
	}
	awaitGone("providerhealth", "leftover")
	eventually(i.T, func() string {
		used, denied := i.requests(begun)
		if len(denied) > 0 {
			return fmt.Sprintf("denied: %v", slices.Sorted(maps.Keys(denied)))
		}
		return cmp.Diff(i.roles().granted(), slices.Sorted(maps.Keys(used)))
	})
}

// declare makes a proxy that becomes a pod.
func (i *installation) declare(name string) {
	i.Helper()
	i.kubectlInput(login("one")+"---\n"+declared{name: name, provider: "pods"}.String(), "apply", "-f", "-")
}

// awaitMade waits until a proxy has a pod that may be scheduled.
func (i *installation) awaitMade(name string) {
	i.Helper()
	eventually(i.T, func() string {
		gates := i.kubectl("get", "pods", "--namespace=proxies", "--output=jsonpath={.items[*].spec.schedulingGates}")
		names := i.kubectl("get", "pods,secrets", "--namespace=proxies", "--output=name")
		if gates != "" || strings.Count(names, "pod/") != 1 || !strings.Contains(names, "secret/") {
			return fmt.Sprintf("of %s there are %s, with the gates %q", name, names, gates)
		}
		return ""
	})
}

func (i *installation) awaitField(want, path, kind, name string) {
	i.Helper()
	eventually(i.T, func() string { return cmp.Diff(want, i.field(path, kind, name)) })
}

// leftover makes the result of a check of a provider that is not configured any more.
func (i *installation) leftover() {
	i.Helper()
	i.kubectlInput(`{"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProviderHealth", "metadata": {"name": "leftover",
"labels": {"app.kubernetes.io/managed-by": "proxyfleet"}}}`, "apply", "-f", "-")
}

// complain has a proxy lose what it refers to, so many times: each time there is the same Event.
func (i *installation) complain(times int) {
	i.Helper()
	i.kubectlInput(external("complains", "http", "192.0.2.1:3128", "moody", ""), "apply", "-f", "-")
	for n := range times {
		i.awaitField("False", resolved, "proxy", "complains")
		if n < times-1 {
			i.kubectlInput(strings.ReplaceAll(login("x"), "name: login", "name: moody"), "apply", "-f", "-")
			i.awaitField("True", resolved, "proxy", "complains")
			i.kubectl("delete", "secret", "moody")
		}
	}
}

const resolved = `{.status.conditions[?(@.type=="Resolved")].status}`

// complaints are how often Events say that the proxy lacks what it refers to.
func (i *installation) complaints() string {
	i.Helper()
	return i.kubectl("get", "events", "--field-selector=involvedObject.name=complains,reason=CredentialsError", "--output=jsonpath={.items[*].count}")
}

// forgotten writes to a proxy that went meanwhile, as a pass may that takes long, and returns the error. A replica cannot be held
// in the middle of one; its store can.
func (i *installation) forgotten(kubeconfig string) error {
	i.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		i.Fatal(err)
	}
	store, err := controller.New(controller.Config{REST: config, Namespace: "default"})
	if err != nil {
		i.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(i.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if err := store.Synced(ctx); err != nil {
		i.Fatal(err)
	}
	i.kubectlInput(external("brief", "http", "192.0.2.1:3128", "", ""), "apply", "-f", "-")
	key := proxy.Key{Namespace: "default", Name: "brief"}
	var p *proxy.Proxy
	eventually(i.T, func() string {
		if p, err = store.Get(ctx, key); err != nil {
			return err.Error()
		}
		return ""
	})
	i.kubectl("delete", "proxy", "brief")
	eventually(i.T, func() string {
		if _, err := store.Get(ctx, key); !errors.Is(err, proxy.ErrNotFound) {
			return "it is still there"
		}
		return ""
	})
	_, err = store.UpdateStatus(ctx, p)
	return err
}
