package pod_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/provider"
)

// TestAPIServer has what needs a real API server, whose node is played by the test.
func TestAPIServer(t *testing.T) {
	s := startServer(t, cluster.Config{})
	t.Run("conformance", func(t *testing.T) { testConformance(t, s) })
	t.Run("pod", func(t *testing.T) { testPod(t, s) })
	t.Run("deaths", func(t *testing.T) { testDeaths(t, s) })
	t.Run("taken back", func(t *testing.T) { testTakenBack(t, s) })
	t.Run("denials", func(t *testing.T) { testDenials(t, s) })
	t.Run("rights", func(t *testing.T) { testRights(t, s) })
	t.Run("another namespace", func(t *testing.T) { testAnotherNamespace(t, s) })
	t.Run("races", func(t *testing.T) { testRaces(t, s) })
	t.Run("stuck", func(t *testing.T) { testStuck(t, s) })
}

// place is a namespace, a gateway before the API server, and a provider that works there.
type place struct {
	*server
	*gateway
	namespace string
	p         provider.Provider
	fields    map[string]any
}

func (s *server) place(t *testing.T, fields map[string]any) *place {
	t.Helper()
	c := &place{server: s, gateway: before(t, s.config), namespace: s.namespace(t, nil)}
	c.fields = map[string]any{"namespace": c.namespace, "kubeconfig": kubeconfig(t, c.URL)}
	maps.Copy(c.fields, fields)
	c.reopen(t)
	return c
}

// reopen opens the provider again, as another process would.
func (c *place) reopen(t *testing.T) { c.p = open(t, "fleet-one", c.fields) }

func (c *place) get(t *testing.T, r provider.Request) (provider.Instance, error) {
	return c.p.Get(t.Context(), c.ref(r))
}

func (c *place) ref(r provider.Request) provider.Ref {
	return provider.Ref{ID: "namespaces/" + c.namespace + "/pods/" + r.Name, UID: r.Marks.UID}
}

// pods and secrets are what there is in the namespace.
func (c *place) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := c.api.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (c *place) secrets(t *testing.T) []corev1.Secret {
	t.Helper()
	list, err := c.api.CoreV1().Secrets(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// one says that there is one pod, finished, with the Secret that it reads, whose owner it is.
func (c *place) one(t *testing.T) {
	t.Helper()
	pods, secrets := c.pods(t), c.secrets(t)
	if len(pods) != 1 || len(secrets) != 1 {
		t.Fatalf("there are %d pods and %d Secrets, want one of each", len(pods), len(secrets))
	}
	if len(pods[0].Spec.SchedulingGates) > 0 || pods[0].Spec.Volumes[0].Secret.SecretName != secrets[0].Name {
		t.Errorf("the pod waits for %v and reads %v; the Secret is %s", pods[0].Spec.SchedulingGates, pods[0].Spec.Volumes[0].Secret, secrets[0].Name)
	}
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pods[0].Name, UID: pods[0].UID}}
	if diff := cmp.Diff(want, secrets[0].OwnerReferences); diff != "" {
		t.Errorf("owners of the Secret: %s", diff)
	}
}

// testPod says what a pod is, as the API server keeps it.
func testPod(t *testing.T, s *server) {
	c := s.place(t, map[string]any{
		"image": "registry.example.com/squid:1", "imagePullSecrets": []string{"pull"}, "nodeSelector": map[string]string{"pool": "crawl"},
		"tolerations": []map[string]string{{"key": "crawl", "operator": "Exists", "effect": "NoSchedule"}},
		"resources":   map[string]any{"limits": map[string]string{"cpu": "500m"}, "requests": map[string]string{"cpu": "10m"}},
	})
	r := asked("fleet-one", "uid-1")
	r.Placement.Zone = "zone-a"
	if _, err := c.p.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c.one(t)
	made := c.pods(t)[0]
	if diff := cmp.Diff(map[string]string{"pool": "crawl", "topology.kubernetes.io/zone": "zone-a"}, made.Spec.NodeSelector); diff != "" {
		t.Errorf("nodeSelector: %s", diff)
	}
	squid := made.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"image":         squid.Image == "registry.example.com/squid:1",
		"no token":      made.Spec.AutomountServiceAccountToken != nil && !*made.Spec.AutomountServiceAccountToken && len(squid.VolumeMounts) == 1,
		"no links":      made.Spec.EnableServiceLinks != nil && !*made.Spec.EnableServiceLinks,
		"no env":        len(squid.Env) == 0 && len(squid.EnvFrom) == 0,
		"no writing":    squid.SecurityContext.ReadOnlyRootFilesystem != nil && *squid.SecurityContext.ReadOnlyRootFilesystem,
		"no liveness":   squid.LivenessProbe == nil && squid.ReadinessProbe == nil,
		"pull secret":   len(made.Spec.ImagePullSecrets) == 1 && made.Spec.ImagePullSecrets[0].Name == "pull",
		"limit":         squid.Resources.Limits.Cpu().String() == "500m" && squid.Resources.Limits.Memory().String() == "256Mi",
		"request":       squid.Resources.Requests.Cpu().String() == "10m" && squid.Resources.Requests.Memory().String() == "64Mi",
		"toleration":    len(made.Spec.Tolerations) > 0 && made.Spec.Tolerations[0].Key == "crawl",
		"grace":         *made.Spec.TerminationGracePeriodSeconds == 10,
		"Secret frozen": *c.secrets(t)[0].Immutable,
	} {
		if !ok {
			t.Errorf("not as wanted: %s", what)
		}
	}
	text, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	files := c.secrets(t)[0].Data
	for _, secret := range []string{r.Credentials.Username.Reveal(), r.Credentials.Password.Reveal(), strings.TrimSpace(string(files["passwd"]))} {
		if strings.Contains(string(text), secret) {
			t.Errorf("a secret is in the pod:\n%s", text)
		}
	}
	if strings.Contains(string(files["passwd"]), r.Credentials.Password.Reveal()) || !strings.Contains(string(files["squid.conf"]), "http_port 3128") {
		t.Errorf("the Secret holds %q", files)
	}
}

// testDeaths ends a process between any two requests of a create, and says that one pod comes of it or none, and no Secret without
// an owner.
func testDeaths(t *testing.T, s *server) {
	points := map[string]fault{
		"before the pod":                  {method: "POST", path: "/pods", times: 1, hang: true},
		"the pod made, not told":          {method: "POST", path: "/pods", times: 1, lose: true},
		"before the Secret":               {method: "POST", path: "/secrets", times: 1, hang: true},
		"the Secret made, not told":       {method: "POST", path: "/secrets", times: 1, lose: true},
		"before the gate":                 {method: "PATCH", path: "/pods/", times: 1, hang: true},
		"the gate open, and not told":     {method: "PATCH", path: "/pods/", times: 1, lose: true},
		"a server in trouble":             {method: "POST", path: "/secrets", times: 1, status: 503},
		"a server in trouble at the gate": {method: "PATCH", path: "/pods/", times: 1, status: 500},
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			c := s.place(t, nil)
			r := asked("fleet-one", "uid-1")
			die(t, c, r, point)
			c.reopen(t)
			if in, err := c.get(t, r); err != nil && provider.ClassOf(err) != provider.ErrNotFound {
				t.Errorf("Get of what is half made returned %+v and %v", in, err)
			}
			r.Token = "token-of-the-next-process"
			if in, err := c.p.Create(t.Context(), r); err != nil || in.Incarnation == "" || in.State != provider.Provisioning {
				t.Fatalf("the next Create returned %+v and %v", in, err)
			}
			c.one(t)
		})
		t.Run(name+", and an edit", func(t *testing.T) {
			c := s.place(t, nil)
			r := asked("fleet-one", "uid-1")
			die(t, c, r, point)
			c.reopen(t)
			edited := r
			edited.Marks.Hash, edited.Token = "v1-edited", "token-of-the-edit"
			before := c.pods(t)
			in, err := c.p.Create(t.Context(), edited)
			if err != nil {
				t.Fatal(err)
			}
			if len(before) > 0 { // the fleet deletes it, and makes another
				if diff := cmp.Diff(before, c.pods(t)); diff != "" || in.Marks.Hash != r.Marks.Hash {
					t.Errorf("a pod that was made with other secrets was changed: %+v %s", in, diff)
				}
				c.deleted(t, provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation})
				if in, err = c.p.Create(t.Context(), edited); err != nil {
					t.Fatal(err)
				}
			}
			if in.Marks.Hash != edited.Marks.Hash || len(c.pods(t)) != 1 || len(c.pods(t)[0].Spec.SchedulingGates) > 0 {
				t.Errorf("after the edit there is %+v", in)
			}
			c.owned(t)
		})
	}
	t.Run("and nobody comes back", func(t *testing.T) {
		c := s.place(t, map[string]any{"settle": "6s"})
		r := asked("fleet-one", "uid-1")
		die(t, c, r, points["before the Secret"])
		var in provider.Instance
		eventually(t, func() (done bool) {
			var err error
			if in, err = c.get(t, r); err != nil && provider.ClassOf(err) != provider.ErrNotFound {
				t.Fatal(err)
			}
			return err == nil
		})
		if in.State != provider.Stopped || in.Reason != "Unfinished" {
			t.Errorf("Get says %+v, want that it is to be deleted", in)
		}
		if all, err := c.p.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("List has %v and %v", all, err)
		}
		c.deleted(t, provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation})
	})
}

// die lets a create come to a point, and no further.
func die(t *testing.T, c *place, r provider.Request, point fault) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if point.hang {
		point.first = cancel
	}
	c.inject(point)
	if in, err := c.p.Create(ctx, r); err == nil {
		t.Fatalf("Create returned %+v, want it to die", in)
	}
}

// owned says that every Secret has a pod, which is there or was.
func (c *place) owned(t *testing.T) {
	t.Helper()
	for _, secret := range c.secrets(t) {
		if len(secret.OwnerReferences) != 1 {
			t.Errorf("the Secret %s has no owner", secret.Name)
		}
	}
}

func (c *place) deleted(t *testing.T, ref provider.Ref) {
	t.Helper()
	if err := c.p.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if in, err := c.p.Get(t.Context(), ref); provider.ClassOf(err) != provider.ErrNotFound {
		t.Fatalf("after Delete there is %+v and %v", in, err)
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); !done(); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("it did not come true within two minutes")
		}
	}
}

// testTakenBack says that a pod whose Secret is refused for good does not stay, unless somebody has changed it meanwhile.
func testTakenBack(t *testing.T, s *server) {
	refusal := fault{method: "POST", path: "/secrets", times: 1, status: 403, header: map[string][]string{"Content-Type": {"application/json"}},
		body: says(403, "Forbidden", `secrets is forbidden: User "fleet" cannot create resource "secrets" in API group ""`, nil)}
	t.Run("alone", func(t *testing.T) {
		c := s.place(t, nil)
		c.inject(refusal)
		_, err := c.p.Create(t.Context(), asked("fleet-one", "uid-1"))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != "Forbidden" {
			t.Errorf("Create returned %v, want a permanent Forbidden", err)
		}
		if n := len(c.pods(t)); n != 0 {
			t.Errorf("%d pods are left", n)
		}
	})
	t.Run("finished by another", func(t *testing.T) {
		c := s.place(t, nil)
		r := asked("fleet-one", "uid-1")
		other := open(t, "fleet-one", c.fields)
		meanwhile := refusal
		meanwhile.first = func() {
			if _, err := other.Create(t.Context(), r); err != nil {
				t.Errorf("the other leader: %v", err)
			}
		}
		c.inject(meanwhile)
		if _, err := c.p.Create(t.Context(), r); err == nil {
			t.Error("Create succeeded without its Secret")
		}
		c.one(t)
	})
	t.Run("what a webhook quotes", func(t *testing.T) {
		c := s.place(t, nil)
		quoting := refusal
		quoting.body = says(403, "Forbidden", `admission webhook "w" denied the request: crawler-of-the-suite:$6$`, nil)
		c.inject(quoting)
		_, err := c.p.Create(t.Context(), asked("fleet-one", "uid-1"))
		if err == nil || strings.Contains(err.Error(), "crawler-of-the-suite") || !strings.Contains(err.Error(), "AdmissionDenied") {
			t.Errorf("Create returned %v", err)
		}
	})
}

// testDenials says what the API server's own admission means.
func testDenials(t *testing.T, s *server) {
	tests := map[string]struct {
		prepare func(t *testing.T, c *place)
		want    provider.Error
	}{
		"a quota of pods": {func(t *testing.T, c *place) { c.quota(t, corev1.ResourcePods, "0") },
			provider.Error{Class: provider.ErrQuotaExceeded, Reason: "QuotaExceeded"}},
		"a quota of Secrets": {func(t *testing.T, c *place) { c.quota(t, "count/secrets", "0") },
			provider.Error{Class: provider.ErrQuotaExceeded, Reason: "QuotaExceeded"}},
		"a quota of CPU limits": {func(t *testing.T, c *place) { c.quota(t, corev1.ResourceLimitsCPU, "1") },
			provider.Error{Class: provider.ErrPermanent, Reason: "QuotaUnmet"}},
		"a limit range": {func(t *testing.T, c *place) { c.limitRange(t) },
			provider.Error{Class: provider.ErrPermanent, Reason: "LimitRange"}},
		"no rights": {func(t *testing.T, c *place) { c.as(t, "nobody-in-particular") },
			provider.Error{Class: provider.ErrPermanent, Reason: "Forbidden"}},
		"no namespace": {func(t *testing.T, c *place) { c.fields["namespace"] = "nowhere"; c.reopen(t) },
			provider.Error{Class: provider.ErrPermanent, Reason: "NamespaceNotFound"}},
		"a namespace that goes": {func(t *testing.T, c *place) {
			if err := c.api.CoreV1().Namespaces().Delete(t.Context(), c.namespace, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, provider.Error{Class: provider.ErrPermanent, Reason: "NamespaceTerminating"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := s.place(t, nil)
			test.prepare(t, c)
			in, err := c.p.Create(t.Context(), asked("fleet-one", "uid-1"))
			e, ok := errors.AsType[*provider.Error](err)
			if !ok {
				t.Fatalf("Create returned %+v and %v", in, err)
			}
			if e.Class != test.want.Class || e.Reason != test.want.Reason {
				t.Errorf("got %s %v, want %s %s", e.Class, e, test.want.Class, test.want.Reason)
			}
			if n := len(c.pods(t)); n != 0 {
				t.Errorf("%d pods are left", n)
			}
		})
	}
}

// quota makes one, with the count that the controller-manager would make.
func (c *place) quota(t *testing.T, name corev1.ResourceName, most string) {
	t.Helper()
	hard := corev1.ResourceList{name: resource.MustParse(most)}
	q, err := c.api.CoreV1().ResourceQuotas(c.namespace).Create(t.Context(),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "most"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{name: resource.MustParse("0")}}
	if _, err := c.api.CoreV1().ResourceQuotas(c.namespace).UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.refused(t, "quota") // the API server reads quotas from a cache
}

func (c *place) limitRange(t *testing.T) {
	t.Helper()
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
	}}}}
	if _, err := c.api.CoreV1().LimitRanges(c.namespace).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.refused(t, "usage per")
}

// refused waits until the admission of the API server has heard of what it is to refuse.
func (c *place) refused(t *testing.T, why string) {
	t.Helper()
	eventually(t, func() bool {
		dry := open(t, "fleet-one", c.fields)
		_, err := dry.Create(t.Context(), asked("fleet-one", "uid-of-a-test"))
		for _, left := range c.pods(t) {
			if err := c.api.CoreV1().Pods(c.namespace).Delete(t.Context(), left.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return err != nil && strings.Contains(err.Error(), why)
	})
}

// as opens the provider for a user of the cluster who has no rights but those of roles.
func (c *place) as(t *testing.T, user string) {
	t.Helper()
	own := rest.CopyConfig(c.config)
	own.Impersonate = rest.ImpersonationConfig{UserName: user}
	c.gateway = before(t, own)
	c.fields["kubeconfig"] = kubeconfig(t, c.URL)
	c.reopen(t)
}

// testRights says that the provider needs the rights that its page tells, and no other.
func testRights(t *testing.T, s *server) {
	rules := documentedRules(t)
	works := func(t *testing.T, rules []rbacv1.PolicyRule) error {
		c := s.place(t, nil)
		c.grant(t, rules)
		kubelet(t, s.api, c.namespace)
		return c.life(t)
	}
	if err := works(t, rules); err != nil {
		t.Fatalf("with the rights of the page: %v", err)
	}
	for i, rule := range rules {
		for j, verb := range rule.Verbs {
			t.Run("without "+verb+" "+rule.Resources[0], func(t *testing.T) {
				fewer := make([]rbacv1.PolicyRule, len(rules))
				copy(fewer, rules)
				fewer[i].Verbs = append(append([]string{}, rule.Verbs[:j]...), rule.Verbs[j+1:]...)
				if len(fewer[i].Verbs) == 0 {
					fewer = append(fewer[:i:i], fewer[i+1:]...)
				}
				err := works(t, fewer)
				if e, ok := errors.AsType[*provider.Error](err); !ok || e.Reason != "Forbidden" || e.Class != provider.ErrPermanent {
					t.Errorf("got %v, want a permanent Forbidden", err)
				}
			})
		}
	}
}

// documentedRules reads the Role of the provider's page.
func documentedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	page, err := os.ReadFile("../../docs/pod-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\napiVersion: rbac")
	text, _, ended := strings.Cut("apiVersion: rbac"+rest, "\n---\n")
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil || !found || !ended || len(role.Rules) == 0 {
		t.Fatalf("the page has no Role: %v", err)
	}
	return role.Rules
}

// grant lets the provider work as somebody who has these rights in the namespace.
func (c *place) grant(t *testing.T, rules []rbacv1.PolicyRule) {
	t.Helper()
	user := "fleet-of-" + c.namespace
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: rules}
	if _, err := c.api.RbacV1().Roles(c.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "pods"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user}}}
	if _, err := c.api.RbacV1().RoleBindings(c.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.as(t, user)
	eventually(t, func() bool { // the API server's authorizer reads roles from a cache
		_, getErr := c.get(t, asked("fleet-one", "uid-of-nobody"))
		_, listErr := c.p.List(t.Context())
		return provider.ClassOf(getErr) != provider.ErrPermanent || listErr == nil
	})
}

// life goes through all that a fleet does with a pod, and returns the first error.
func (c *place) life(t *testing.T) error {
	t.Helper()
	r := asked("fleet-one", "uid-1")
	in, err := c.p.Create(t.Context(), r)
	if err != nil {
		return err
	}
	if _, err := c.p.Create(t.Context(), r); err != nil { // meets it
		return err
	}
	if _, err := c.get(t, r); err != nil {
		return err
	}
	if _, err := c.p.List(t.Context()); err != nil {
		return err
	}
	return c.p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation})
}

// testAnotherNamespace says what becomes of pods when the configuration names another namespace.
func testAnotherNamespace(t *testing.T, s *server) {
	c := s.place(t, nil)
	r := asked("fleet-one", "uid-1")
	in, err := c.p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	c.fields["namespace"] = s.namespace(t, nil)
	c.reopen(t)
	if got, err := c.get(t, r); err != nil || got.Incarnation != in.Incarnation {
		t.Errorf("as long as the old namespace can be reached, Get returns %+v and %v", got, err)
	}
	if all, err := c.p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List of the new namespace returns %v and %v", all, err)
	}
	reachable := c.gateway
	c.as(t, "somebody-without-rights-there")
	_, getErr := c.get(t, r)
	for op, err := range map[string]error{"get": getErr, "delete": c.p.Delete(t.Context(), c.ref(r))} {
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != provider.NotConfigured {
			t.Errorf("%s without rights there returns %v, want a permanent NotConfigured", op, err)
		}
	}
	c.fields["kubeconfig"] = kubeconfig(t, reachable.URL)
	c.reopen(t)
	c.deleted(t, c.ref(r))
}

// testRaces says what becomes of requests that come when the world has just become another.
func testRaces(t *testing.T, s *server) {
	ref := func(in provider.Instance) provider.Ref {
		return provider.Ref{ID: in.ID, UID: in.Marks.UID, Incarnation: in.Incarnation}
	}
	// replaced lets another leader replace the instance of a request, once, just before a request of c.
	replaced := func(t *testing.T, c *place, r provider.Request, before fault) {
		other := open(t, "fleet-one", c.fields)
		before.times = 1
		before.first = func() {
			if err := other.Delete(t.Context(), c.ref(r)); err != nil {
				t.Error(err)
			}
			r.Token, r.Marks.Hash = "token-of-the-successor", "v1-successor"
			if _, err := other.Create(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
		c.inject(before)
	}
	t.Run("a delete after the look of which the pod was replaced", func(t *testing.T) {
		c := s.place(t, nil)
		r := asked("fleet-one", "uid-1")
		in, err := c.p.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		replaced(t, c, r, fault{method: "DELETE", path: "/pods/"})
		if err := c.p.Delete(t.Context(), ref(in)); err != nil {
			t.Errorf("Delete of what is gone returned %v", err)
		}
		if next, err := c.get(t, r); err != nil || next.Incarnation == in.Incarnation || next.State == provider.Terminating {
			t.Errorf("the successor is %+v and %v", next, err)
		}
	})
	t.Run("a gate that is another pod's by now", func(t *testing.T) {
		c := s.place(t, nil)
		r := asked("fleet-one", "uid-1")
		c.inject(fault{method: "PATCH", path: "/pods/", skip: 1, times: 1, status: 503}) // so that the successor waits for its Secret too
		other := open(t, "fleet-one", c.fields)
		c.inject(fault{method: "PATCH", path: "/pods/", times: 1, first: func() {
			if err := other.Delete(t.Context(), c.ref(r)); err != nil {
				t.Error(err)
			}
			next := r
			next.Token, next.Marks.Hash = "token-of-the-successor", "v1-successor"
			_, _ = other.Create(t.Context(), next)
		}})
		if in, err := c.p.Create(t.Context(), r); provider.ClassOf(err) != provider.ErrTransient {
			t.Errorf("Create returned %+v and %v, want a transient error", in, err)
		}
		if pods := c.pods(t); len(pods) != 1 || len(pods[0].Spec.SchedulingGates) != 1 {
			t.Errorf("the gate of the successor was opened: %d pods", len(pods))
		}
	})
	t.Run("a Secret that is still there", func(t *testing.T) {
		c := s.place(t, nil)
		r := asked("fleet-one", "uid-1")
		in, err := c.p.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		c.deleted(t, ref(in)) // nothing collects its Secret here
		r.Token = "token-of-the-successor"
		if _, err := c.p.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		pod := c.pods(t)[0]
		secret, err := c.api.CoreV1().Secrets(c.namespace).Get(t.Context(), pod.Spec.Volumes[0].Secret.SecretName, metav1.GetOptions{})
		if err != nil || secret.OwnerReferences[0].UID != pod.UID {
			t.Errorf("the successor reads the Secret %+v, %v", secret, err)
		}
	})
	t.Run("a name that was taken a moment ago", func(t *testing.T) {
		c := s.place(t, nil)
		c.inject(fault{method: "POST", path: "/pods", times: 1, status: 409, header: map[string][]string{"Content-Type": {"application/json"}},
			body: says(409, "AlreadyExists", `pods "proxy-x" already exists`, &metav1.StatusDetails{Kind: "pods", Name: "proxy-x"})})
		_, err := c.p.Create(t.Context(), asked("fleet-one", "uid-1"))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != "NotVisible" {
			t.Errorf("Create returned %v, want a transient NotVisible", err)
		}
	})
}

// testStuck says that the pod of a node that is lost stays, with nothing forced, and is named, and so is one that is held.
func testStuck(t *testing.T, s *server) {
	c := s.place(t, nil)
	r := asked("fleet-one", "uid-1")
	in, err := c.p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	pods := c.api.CoreV1().Pods(c.namespace)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: r.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "lost"}}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation}
	for range 3 {
		if err := c.p.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.requests("DELETE")); n != 1 {
		t.Errorf("%d deletions were sent for a pod that goes", n)
	}
	if got, err := c.get(t, r); err != nil || got.State != provider.Terminating {
		t.Errorf("Get returns %+v and %v", got, err)
	}
	if met, err := c.p.Create(t.Context(), r); err != nil || met.State != provider.Terminating || met.Incarnation != in.Incarnation {
		t.Errorf("Create meets %+v and %v", met, err)
	}
	patch := []byte(`{"status": {"reason": "NodeLost", "message": "Node lost is unresponsive"}}`)
	if _, err := pods.Patch(t.Context(), r.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.get(t, r); err != nil || got.Reason != "NodeLost" || got.Message != "Node lost is unresponsive" {
		t.Errorf("Get returns %+v and %v", got, err)
	}
}
