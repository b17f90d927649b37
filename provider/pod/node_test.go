package pod_test

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/provider"
)

// TestNode has what needs a real node: pods that run, and what keeps them from it.
func TestNode(t *testing.T) {
	s := startServer(t, cluster.Config{Controllers: true})
	if os.Geteuid() != 0 {
		skip(t, os.ErrPermission)
	}
	archive, image, err := cluster.SquidImage(t.Context())
	if err != nil {
		skip(t, err)
	}
	if err := s.Node(t.Context(), archive); err != nil {
		skip(t, err)
	}
	t.Run("all", func(t *testing.T) {
		run := func(name string, test func(t *testing.T, n *onNode)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, &onNode{server: s, image: image, namespace: s.namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})})
			})
		}
		run("proxy", testProxy)
		run("open to clients", testOpen)
		run("unwell", testUnwell)
		run("restarts", testRestarts)
		run("evicted by the kubelet", testEvicted)
		run("evicted by the API", testEvictedByAPI)
		run("deleted by somebody", testDeletedBySomebody)
	})
}

// onNode is a namespace of a cluster that has a node.
type onNode struct {
	*server
	image, namespace string
}

// open opens the provider. Each namespace has its ServiceAccount and its place in caches a moment after it was made.
func (n *onNode) open(t *testing.T, fields map[string]any) provider.Provider {
	t.Helper()
	all := map[string]any{"namespace": n.namespace, "kubeconfig": n.Kubeconfig(), "image": n.image}
	maps.Copy(all, fields)
	return open(t, "fleet-one", all)
}

// made creates an instance and waits until it is as it should be.
func (n *onNode) made(t *testing.T, p provider.Provider, r provider.Request, wanted func(provider.Instance) bool) provider.Instance {
	t.Helper()
	var in provider.Instance
	eventually(t, func() bool {
		var err error
		in, err = p.Create(t.Context(), r)
		return err == nil
	})
	return n.becomes(t, p, provider.Ref{ID: in.ID, UID: r.Marks.UID}, wanted)
}

func (n *onNode) becomes(t *testing.T, p provider.Provider, ref provider.Ref, wanted func(provider.Instance) bool) (in provider.Instance) {
	t.Helper()
	defer func() { t.Logf("%s %s %s: %s", in.State, in.Host, in.Reason, in.Message) }()
	eventually(t, func() bool {
		now, err := p.Get(t.Context(), ref)
		if err != nil {
			return false
		}
		if now.State != in.State || now.Reason != in.Reason {
			t.Logf("%s %s", now.State, now.Reason)
		}
		in = now
		return wanted(in)
	})
	return in
}

func runs(in provider.Instance) bool { return in.State == provider.Running }

// gone waits until an instance and everything that was made for it is gone.
func (n *onNode) gone(t *testing.T, p provider.Provider, ref provider.Ref) {
	t.Helper()
	eventually(t, func() bool {
		_, err := p.Get(t.Context(), ref)
		return provider.ClassOf(err) == provider.ErrNotFound
	})
	eventually(t, func() bool { // the controllers collect it
		list, err := n.api.CoreV1().Secrets(n.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

// testProxy says that a pod becomes a proxy that asks for its password, leads where it may, and nowhere else.
func testProxy(t *testing.T, n *onNode) {
	target := n.site(t)
	p := n.open(t, map[string]any{"allowedDestinations": []string{n.Gateway() + "/32"}})
	r := asked("fleet-one", "uid-1")
	in := n.made(t, p, r, runs)
	login := url.UserPassword(r.Credentials.Username.Reveal(), r.Credentials.Password.Reveal())
	proxy := net.JoinHostPort(in.Host, "3128")
	for name, test := range map[string]struct {
		user   *url.Userinfo
		target string
		want   int
	}{
		"with the password":          {login, target, http.StatusOK},
		"without":                    {nil, target, http.StatusProxyAuthRequired},
		"with another":               {url.UserPassword("crawler-of-the-suite", "guessed"), target, http.StatusProxyAuthRequired},
		"to the metadata of a cloud": {login, "http://169.254.169.254/latest/", http.StatusForbidden},
		"to its own loopback":        {login, "http://127.0.0.1:3128/", http.StatusForbidden},
		"to its own loopback, IPv6":  {login, "http://[::1]:3128/", http.StatusForbidden},
		"to itself":                  {login, "http://" + proxy + "/", http.StatusForbidden},
		"to the API server":          {login, "http://10.96.0.1:443/", http.StatusForbidden},
	} {
		if status, body := through(t, proxy, test.user, test.target); status != test.want {
			t.Errorf("%s: status %d (%.200s), want %d", name, status, body, test.want)
		}
	}
	if err := p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation}); err != nil {
		t.Fatal(err)
	}
	n.gone(t, p, provider.Ref{ID: in.ID, UID: r.Marks.UID})
	next := n.made(t, p, r, runs)
	if next.Incarnation == in.Incarnation {
		t.Error("the successor has the incarnation of its predecessor")
	}
}

// site serves a page that pods reach.
func (n *onNode) site(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(n.Gateway(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	site := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") })}}
	site.Start()
	t.Cleanup(site.Close)
	return site.URL
}

// through asks for a page through a proxy.
func through(t *testing.T, proxy string, user *url.Userinfo, target string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: user}), DisableKeepAlives: true,
	}}
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(ask)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

// testOpen says that a proxy without a password serves the clients that it was told of.
func testOpen(t *testing.T, n *onNode) {
	target := n.site(t)
	for clients, want := range map[string]int{n.Gateway() + "/16": http.StatusOK, "192.0.2.0/24": http.StatusForbidden} {
		p := n.open(t, map[string]any{"allowedDestinations": []string{n.Gateway() + "/32"}, "allowedClients": []string{clients}})
		r := asked("fleet-one", "uid-"+strings.NewReplacer("/", "-").Replace(clients))
		r.Credentials = provider.Credentials{}
		r.Port = 8080
		in := n.made(t, p, r, runs)
		if status, body := through(t, net.JoinHostPort(in.Host, "8080"), nil, target); status != want {
			t.Errorf("with clients %s: status %d (%.200s), want %d", clients, status, body, want)
		}
	}
}

// testUnwell says why pods do not come to run.
func testUnwell(t *testing.T, n *onNode) {
	tests := map[string]struct {
		fields  map[string]any
		reason  string
		message string
	}{
		"no such node":           {map[string]any{"nodeSelector": map[string]string{"pool": "nowhere"}}, "Unschedulable", "node(s) didn't match Pod's node affinity/selector"},
		"no node with room":      {map[string]any{"resources": map[string]any{"requests": map[string]string{"cpu": "900"}}}, "Unschedulable", "Insufficient cpu"},
		"no such image":          {map[string]any{"image": "registry.example.com/squid:1"}, "ImagePullBackOff", "registry.example.com"},
		"no name of an image":    {map[string]any{"image": "Not an image"}, "InvalidImageName", "invalid reference format"},
		"an image without Squid": {map[string]any{"image": "localhost/pause:test"}, "CrashLoopBackOff", "/usr/sbin/squid"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := n.open(t, test.fields)
			r := asked("fleet-one", "uid-"+strings.ReplaceAll(name, " ", "-"))
			in := n.made(t, p, r, func(in provider.Instance) bool { return in.Reason == test.reason })
			if in.State != provider.Provisioning || !strings.Contains(in.Message, test.message) {
				t.Errorf("got %+v, want %q", in, test.message)
			}
		})
	}
}

// testRestarts says that a Squid that ends is started again in its pod.
func testRestarts(t *testing.T, n *onNode) {
	p := n.open(t, nil)
	r := asked("fleet-one", "uid-1")
	in := n.made(t, p, r, runs)
	if out, err := n.Kubectl(t.Context(), "exec", "--namespace="+n.namespace, r.Name, "--", "/bin/sh", "-c", "kill 1"); err != nil {
		t.Fatal(out, err)
	}
	eventually(t, func() bool {
		now, err := n.api.CoreV1().Pods(n.namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
		return err == nil && now.Status.ContainerStatuses[0].RestartCount == 1
	})
	again := n.becomes(t, p, provider.Ref{ID: in.ID, UID: r.Marks.UID}, runs)
	if again.Incarnation != in.Incarnation || again.Host != in.Host {
		t.Errorf("it was %+v, and is %+v", in, again)
	}
}

// testEvicted says that a pod that takes more than it may of its node's disk is over, and why.
func testEvicted(t *testing.T, n *onNode) {
	p := n.open(t, map[string]any{"resources": map[string]any{
		"requests": map[string]string{"ephemeral-storage": "100"}, "limits": map[string]string{"ephemeral-storage": "100"},
	}})
	r := asked("fleet-one", "uid-1")
	in := n.made(t, p, r, func(in provider.Instance) bool { return in.State == provider.Stopped })
	if in.Reason != "Evicted" || !strings.Contains(in.Message, "ephemeral") {
		t.Errorf("got %+v, want Evicted", in)
	}
	ref := provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation}
	if err := p.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	n.gone(t, p, ref)
}

// testEvictedByAPI says that a pod of a node that is drained goes.
func testEvictedByAPI(t *testing.T, n *onNode) {
	p := n.open(t, nil)
	r := asked("fleet-one", "uid-1")
	in := n.made(t, p, r, runs)
	n.hold(t, r.Name)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: n.namespace}}
	if err := n.api.PolicyV1().Evictions(n.namespace).Evict(t.Context(), eviction); err != nil {
		t.Fatal(err)
	}
	ref := provider.Ref{ID: in.ID, UID: r.Marks.UID, Incarnation: in.Incarnation}
	if goes := n.becomes(t, p, ref, func(in provider.Instance) bool { return in.State == provider.Terminating }); goes.Reason != "EvictionByEvictionAPI" {
		t.Errorf("got %+v, want EvictionByEvictionAPI", goes)
	}
	n.letGo(t, r.Name)
	n.gone(t, p, ref)
}

// hold keeps a pod from going, so that a test sees it go, and letGo lets it.
func (n *onNode) hold(t *testing.T, name string)  { n.finalizers(t, name, "example.com/test") }
func (n *onNode) letGo(t *testing.T, name string) { n.finalizers(t, name) }

func (n *onNode) finalizers(t *testing.T, name string, finalizers ...string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.api.CoreV1().Pods(n.namespace).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testDeletedBySomebody says that a pod that somebody deletes is seen to be gone, with its Secret, and can be made again.
func testDeletedBySomebody(t *testing.T, n *onNode) {
	p := n.open(t, nil)
	r := asked("fleet-one", "uid-1")
	in := n.made(t, p, r, runs)
	if err := n.api.CoreV1().Pods(n.namespace).Delete(t.Context(), r.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	n.gone(t, p, provider.Ref{ID: in.ID, UID: r.Marks.UID})
	r.Token = "token-of-the-next-intent"
	if next := n.made(t, p, r, runs); next.Incarnation == in.Incarnation {
		t.Error("the successor has the incarnation of its predecessor")
	}
	var secrets *corev1.SecretList
	secrets, err := n.api.CoreV1().Secrets(n.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(secrets.Items) != 1 {
		t.Errorf("there are %d Secrets, and %v", len(secrets.Items), err)
	}
}
