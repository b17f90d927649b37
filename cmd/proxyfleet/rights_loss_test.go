package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/proxy"
)

// loss is what becomes of a fleet without one of its rights.
type loss struct {
	right right
	// first is done while the right is still there; nil if nothing has to be.
	first func(*installation)
	// do makes what the right is needed for; nil if the replica needs it by itself.
	do func(*installation)
	// seen returns "" when somebody who looks sees what is broken.
	seen func(*installation, *server) string
}

// losses of rights that show in a replica that runs already.
func running() []loss {
	one := func(i *installation) { i.declare("one") }
	return []loss{
		{"patch proxies", nil, one, func(i *installation, _ *server) string { return i.nothingMade("{.metadata.finalizers}") }},
		{"patch proxies/status", nil, one, func(i *installation, _ *server) string { return i.nothingMade("{.status.phase}") }},
		{"create pods", nil, one, forbidden},
		{"get pods", nil, one, forbidden},
		{"patch pods", nil, one, forbidden},
		{"create secrets of pods", nil, one, forbidden},
		{
			right: "delete pods",
			first: func(i *installation) { one(i); i.awaitMade("one") },
			do:    func(i *installation) { i.kubectl("delete", "proxy", "one", "--wait=false") },
			seen:  forbidden,
		},
		{"create events", nil, func(i *installation) { i.complain(1) }, func(i *installation, _ *server) string { return cmp.Diff("", i.complaints()) }},
		{"patch events", nil, func(i *installation) { i.complain(2) }, func(i *installation, _ *server) string { return cmp.Diff("1", i.complaints()) }},
		{"get proxies", nil, nil, func(i *installation, _ *server) string {
			if err := i.forgotten(i.kubeconfig); err == nil || errors.Is(err, proxy.ErrNotFound) {
				return "a write to a proxy that is gone is told from one that is forbidden"
			}
			return ""
		}},
	}
}

// starting are losses of rights that show in a replica that starts.
func starting() []loss {
	leftover := (*installation).leftover
	const lease, kept = "the Lease proxyfleet/", "results of checks that are made no more could not be removed"
	return []loss{
		{"get namespaces", nil, nil, says("no --fleet-id is given, and namespace proxyfleet, from which one would be made, cannot be read")},
		{"list proxies", nil, nil, says(`"requests to the API server fail`, `"Proxies"`)},
		{"watch proxies", nil, nil, says(`"requests to the API server fail`, `"Proxies"`)},
		{"list secrets", nil, nil, says(`"requests to the API server fail`, `"Secrets labelled `)},
		{"watch secrets", nil, nil, says(`"requests to the API server fail`, `"Secrets labelled `)},
		{"get leases", nil, nil, says(lease)},
		{"create leases", nil, nil, says(lease)},
		{"update leases", nil, nil, says(lease)},
		{"list providerhealths", nil, leftover, says(kept)},
		{"delete providerhealths", nil, leftover, says(kept)},
		{"get providerhealths", nil, nil, shows("")},
		{"create providerhealths", nil, nil, shows("")},
		{"patch providerhealths/status", nil, nil, shows("pods/")},
		{"list pods", nil, nil, shows("pods/0/1")},
	}
}

// forbidden is seen in the condition of a proxy.
func forbidden(i *installation, _ *server) string {
	message := i.field(`{.status.conditions[?(@.type=="Provisioned")].message}`, "proxy", "one")
	if !strings.Contains(message, "Forbidden") {
		return "its condition says " + message
	}
	return ""
}

// nothingMade is seen where a replica cannot write down what it is about to do.
func (i *installation) nothingMade(path string) string {
	return i.field(path, "proxy", "one") + i.kubectl("get", "pods", "--namespace=proxies", "--output=name")
}

// says is seen in the log, in one line.
func says(words ...string) func(*installation, *server) string {
	return func(_ *installation, s *server) string {
		for line := range strings.Lines(s.log.String()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return ""
			}
		}
		return "the log has no " + strings.Join(words, " ")
	}
}

// shows is seen by kubectl get ph: the provider with how many of its targets are ready.
func shows(want string) func(*installation, *server) string {
	return func(i *installation, _ *server) string {
		return cmp.Diff(want, i.kubectl("get", "providerhealths", "--output=jsonpath={range .items[*]}{.metadata.name}/{.status.targetsReady}{end}"))
	}
}

// withoutEach takes each of the granted rights away, and something breaks.
func (i *installation) withoutEach() {
	var tried []right
	for _, l := range append(running(), starting()...) {
		tried = append(tried, l.right)
	}
	if diff := cmp.Diff(i.roles().granted(), slices.Sorted(slices.Values(tried))); diff != "" {
		i.Fatalf("rights that are granted and not tried (-), or tried and not granted (+):\n%s", diff)
	}
	i.Run("running", func(t *testing.T) {
		s := i.on(t).replica()
		s.servingWith("known")
		for _, l := range running() {
			t.Run(string(l.right), func(t *testing.T) { i.on(t).without(l, func(*testing.T) *server { return s }) })
		}
	})
	for _, l := range starting() {
		i.Run(string(l.right), func(t *testing.T) {
			i.on(t).without(l, func(t *testing.T) *server { return i.on(t).replica() })
		})
	}
}

func (i *installation) without(l loss, replica func(*testing.T) *server) {
	i.kubectl("delete", "providerhealths", "--all")
	if l.first != nil {
		l.first(i)
	}
	shipped := i.roles()
	i.grant(shipped.without(l.right))
	i.await(l.right, false)
	defer func() {
		i.grant(shipped)
		i.await(l.right, true)
		i.clear()
	}()
	begun := time.Now()
	if l.do != nil {
		l.do(i)
	}
	s := replica(i.T)
	eventually(i.T, func() string {
		i.collect()
		if what := l.seen(i, s); what != "" {
			return what
		}
		if _, denied := i.requests(begun); !denied[l.right] {
			return "nothing of it was denied, but " + strings.Join(words(denied), ", ")
		}
		return ""
	})
}

// clear deletes all that was declared.
func (i *installation) clear() {
	i.Helper()
	i.kubectl("delete", "proxies,secrets,events", "--all", "--wait=false")
	eventually(i.T, func() string {
		i.collect()
		return i.kubectl("get", "proxies,secrets", "--output=name")
	})
}

// collect removes pods that the API server has deleted by half, for want of time. Elsewhere a controller does so, which does not
// run here.
func (i *installation) collect() {
	i.Helper()
	pods, err := i.admin.CoreV1().Pods("proxies").List(i.Context(), metav1.ListOptions{})
	if err != nil {
		i.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			_ = i.admin.CoreV1().Pods("proxies").Delete(i.Context(), p.Name, *metav1.NewPreconditionDeleteOptions(string(p.UID)))
		}
	}
}

func words(rights map[right]bool) []string {
	var all []string
	for r := range maps.Keys(rights) {
		all = append(all, string(r))
	}
	return all
}

// without are the roles without a right.
func (r roles) without(lost right) roles {
	less := roles{r.cluster.DeepCopy(), r.own.DeepCopy(), r.pods.DeepCopy()}
	for place, rules := range less.rules() {
		for n, rule := range rules {
			rules[n].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return rightTo(verb, rule.Resources[0], place) == lost })
		}
	}
	empty := func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 }
	less.cluster.Rules = slices.DeleteFunc(less.cluster.Rules, empty)
	less.own.Rules = slices.DeleteFunc(less.own.Rules, empty)
	less.pods.Rules = slices.DeleteFunc(less.pods.Rules, empty)
	return less
}

// grant has the roles be these.
func (i *installation) grant(r roles) {
	i.Helper()
	r = roles{r.cluster.DeepCopy(), r.own.DeepCopy(), r.pods.DeepCopy()}
	r.cluster.ResourceVersion, r.own.ResourceVersion, r.pods.ResourceVersion = "", "", ""
	_, err1 := i.admin.RbacV1().ClusterRoles().Update(i.Context(), r.cluster, metav1.UpdateOptions{})
	_, err2 := i.admin.RbacV1().Roles("proxyfleet").Update(i.Context(), r.own, metav1.UpdateOptions{})
	_, err3 := i.admin.RbacV1().Roles("proxies").Update(i.Context(), r.pods, metav1.UpdateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		i.Fatal(err)
	}
}

// await waits until the API server grants a right, or does not any more.
func (i *installation) await(r right, granted bool) {
	i.Helper()
	verb, rest, _ := strings.Cut(string(r), " ")
	resource, namespace := rest, "default"
	switch rest {
	case "secrets of pods":
		resource, namespace = "secrets", "proxies"
	case "pods":
		namespace = "proxies"
	case "leases", "namespaces":
		namespace = "proxyfleet"
	}
	resource, subresource, _ := strings.Cut(resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: groupOf(resource), Resource: resource,
		Subresource: subresource, Name: "proxyfleet"}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: attributes,
		User: serviceAccount}}
	eventually(i.T, func() string {
		answer, err := i.admin.AuthorizationV1().SubjectAccessReviews().Create(i.Context(), review, metav1.CreateOptions{})
		if err != nil {
			i.Fatal(err)
		}
		if answer.Status.Allowed != granted {
			return "not yet: " + answer.Status.Reason
		}
		return ""
	})
}

func groupOf(resource string) string {
	switch resource {
	case "proxies", "providerhealths":
		return "crawl.example.com"
	case "leases":
		return "coordination.k8s.io"
	}
	return ""
}
