package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/proxyfleet/fleet/internal/cluster"
)

// testbed is a cluster without a node, and somebody who may do anything there.
type testbed struct {
	*testing.T
	*cluster.Cluster
}

// newTestbed starts one. No controllers run there, so that objects stay as they were written.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	c, err := cluster.Start(withTimeout(t), cluster.Config{})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(c.Close)
	return &testbed{t, c}
}

// kubectl must succeed.
func (b *testbed) kubectl(args ...string) string {
	b.Helper()
	return b.kubectlInput("", args...)
}

func (b *testbed) kubectlInput(stdin string, args ...string) string {
	b.Helper()
	out, err := b.KubectlInput(withTimeout(b.T), stdin, args...)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// there are those of the objects in a text that the cluster has.
func (b *testbed) there(documents string) objects {
	b.Helper()
	return parse(b.T, b.kubectlInput(documents, "get", "--ignore-not-found", "--output=yaml", "-f", "-"))
}

// versions are those of the objects, which change with each write that changes something.
func versions(all objects) map[string]string {
	versions := map[string]string{}
	for id, object := range all {
		versions[id] = (&unstructured.Unstructured{Object: object}).GetResourceVersion()
	}
	return versions
}

// awaitNone waits until none of the objects in a text is left.
func (b *testbed) awaitNone(documents string) {
	b.Helper()
	b.kubectlInput(documents, "wait", "--for=delete", "--timeout=60s", "-f", "-")
}

// What is shipped does what docs/kubernetes.md says of it, on a real API server.
func TestOnAPIServer(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	t.Run("Helm", func(t *testing.T) { (&testbed{t, b.Cluster}).release() })
	t.Run("kustomize", func(t *testing.T) { (&testbed{t, b.Cluster}).kustomization() })
}

// The shipped manifests are taken by an API server that knows every field of them, once and again without a change; their pods may
// run where the Pod Security Standard "restricted" is enforced; and nothing is left of them when they are deleted.
func (b *testbed) kustomization() {
	shipped, example := filepath.Join(module, "deploy/kubernetes"), filepath.Join(module, "examples/kubernetes")
	documents := kustomized(b.T, "deploy/kubernetes")

	b.kubectl("apply", "--server-side", "--validate=strict", "-k", shipped)
	first := b.there(documents)
	if want := parse(b.T, documents); len(first) != len(want) {
		b.Errorf("%d objects were applied, and there are %d", len(want), len(first))
	}
	b.kubectl("apply", "--server-side", "--validate=strict", "-k", shipped)
	if diff := cmp.Diff(versions(first), versions(b.there(documents))); diff != "" {
		b.Errorf("versions after applying it again (-before +after):\n%s", diff)
	}
	b.podMayRun(parse(b.T, documents))

	b.kubectl("apply", "--server-side", "--validate=strict", "-k", example)
	b.kubectl("apply", "--server-side", "--validate=strict", "-f", filepath.Join(example, "proxies.yaml"))
	b.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "--force-conflicts",
		"-k", filepath.Join(shipped, "namespaced"))

	b.kubectl("delete", "-f", filepath.Join(example, "proxies.yaml"))
	all := kustomized(b.T, "examples/kubernetes")
	b.kubectl("delete", "--wait=false", "-k", example)
	b.kubectl("delete", "--wait=false", "-k", shipped, "--ignore-not-found") // the ConfigMap with the other hash
	b.finalize("proxyfleet")
	b.finalize("proxies")
	b.awaitNone(all)
}

// finalize does for a namespace that is deleted what a controller would do that empties it.
func (b *testbed) finalize(namespace string) {
	b.Helper()
	empty := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + namespace + `"}}`
	b.kubectlInput(empty, "replace", "--raw=/api/v1/namespaces/"+namespace+"/finalize", "-f", "-")
}

// podMayRun makes a pod of the Deployment, in the namespace as it is shipped.
func (b *testbed) podMayRun(all objects) {
	b.Helper()
	template, found, err := unstructured.NestedMap(all["Deployment proxyfleet/proxyfleet"], "spec", "template")
	if !found || err != nil {
		b.Fatal("no pod template", err)
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("trial")
	create := func() error {
		text, err := pod.MarshalJSON()
		if err != nil {
			return err
		}
		_, err = b.KubectlInput(withTimeout(b.T), string(text), "create", "--namespace=proxyfleet", "--dry-run=server", "-f", "-")
		return err
	}
	if err := create(); err != nil {
		b.Error(err)
	}
	unstructured.RemoveNestedField(pod.Object, "spec", "securityContext", "runAsNonRoot")
	if err := create(); err == nil || !strings.Contains(err.Error(), "runAsNonRoot") {
		b.Errorf("a pod that may run as root: %v", err)
	}
}

// A release is installed, upgraded with its CRDs, and removed without harm to a Proxy.
func (b *testbed) release() {
	proxies := filepath.Join(module, "examples/kubernetes/proxies.yaml")
	b.helm("install", "proxyfleet", olderChart(b.T), "--namespace=crawl", "--create-namespace")
	if columns := b.columns(); strings.HasPrefix(columns, "Phase") {
		b.Fatalf("the older CRD has the columns %s", columns)
	}
	b.kubectl("apply", "--server-side", "--validate=strict", "-f", proxies)
	before := b.kubectl("get", "proxies", "--output=name")

	b.helm("upgrade", "proxyfleet", "deploy/helm/proxyfleet", "--namespace=crawl", "--set=replicas=3")
	if columns := b.columns(); !strings.HasPrefix(columns, "Phase") {
		b.Errorf("after the upgrade the CRD has the columns %s", columns)
	}
	if replicas := b.kubectl("get", "deployment", "proxyfleet", "--namespace=crawl", "--output=jsonpath={.spec.replicas}"); replicas != "3" {
		b.Errorf("after the upgrade there are %s replicas", replicas)
	}

	b.helm("uninstall", "proxyfleet", "--namespace=crawl")
	if after := b.kubectl("get", "proxies", "--output=name"); after != before {
		b.Errorf("there were the proxies %s and there are %s", before, after)
	}
	left := b.there(charted(b.T, "--namespace=crawl"))
	if len(left) != 2 || left["CustomResourceDefinition /proxies.crawl.example.com"] == nil {
		b.Errorf("after the release was removed, there are %v", versions(left))
	}
	b.kubectl("delete", "-f", proxies)
	b.kubectl("delete", "crd", "proxies.crawl.example.com", "providerhealths.crawl.example.com")
}

// helm runs Helm on the cluster.
func (b *testbed) helm(args ...string) {
	b.Helper()
	tool(b.T, append([]string{"helm", "--kubeconfig=" + b.Kubeconfig()}, args...)...)
}

// columns are those that kubectl shows of a Proxy.
func (b *testbed) columns() string {
	b.Helper()
	return b.kubectl("get", "crd", "proxies.crawl.example.com", "--output=jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}")
}

// olderChart is the chart with a CRD that has no column "Phase" yet.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "proxyfleet")
	if out, err := exec.CommandContext(t.Context(), "cp", "-rL", filepath.Join(module, "deploy/helm/proxyfleet"), dir).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	path := filepath.Join(dir, "files/crds/crawl.example.com_proxies.yaml")
	crd, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const column = "    - jsonPath: .status.phase\n      name: Phase\n      type: string\n"
	if !strings.Contains(string(crd), column) {
		t.Fatalf("no column Phase in %s", path)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(crd), column, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
