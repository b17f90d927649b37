package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kustomize and Helm make the same objects, in each of the shapes that documentation speaks of.
func TestKustomizeAndHelmAgree(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		folder        string // that kustomize reads
		kustomization string // instead of it
		values        []string
	}{
		{
			name:   "for the cluster",
			folder: "deploy/kubernetes",
		},
		{
			name:   "for one namespace",
			folder: "deploy/kubernetes/namespaced",
			values: []string{"--set", "namespaced=true,crds.install=false"},
		},
		{
			name:   "the example",
			folder: "examples/kubernetes",
			values: []string{"--values", "examples/kubernetes/values.yaml"},
		},
		{
			name: "with TLS and for the Prometheus operator",
			kustomization: `
resources: [MODULE/deploy/kubernetes]
components: [MODULE/deploy/kubernetes/components/tls, MODULE/deploy/kubernetes/components/servicemonitor]
`,
			values: []string{"--set", "tls.secretName=proxyfleet-tls,serviceMonitor.enabled=true"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := tt.folder
			if tt.kustomization != "" {
				folder = overlay(t, tt.kustomization)
			}
			want := parse(t, hashed.ReplaceAllString(kustomized(t, folder), "proxyfleet-config")).plain(t)
			got := parse(t, charted(t, tt.values...)).plain(t)
			if len(want) < 9 {
				t.Fatalf("kustomize makes only %d objects", len(want))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects of the two (-kustomize +helm):\n%s", diff)
			}
		})
	}
}

// The image has no /tmp and its root cannot be written to, so the pod brings one: in memory, for what is staged there holds secrets,
// and bounded, for memory it is.
func TestTemporaryFilesAreInMemory(t *testing.T) {
	t.Parallel()
	deployment := parse(t, kustomized(t, "deploy/kubernetes"))["Deployment proxyfleet/proxyfleet"]
	spec, found, err := unstructured.NestedMap(deployment, "spec", "template", "spec")
	if !found || err != nil {
		t.Fatal("no pod template", err)
	}
	mounts, _, err := unstructured.NestedSlice(spec["containers"].([]any)[0].(map[string]any), "volumeMounts")
	if err != nil {
		t.Fatal(err)
	}
	is := func(field string, value any) func(any) bool {
		return func(item any) bool { return item.(map[string]any)[field] == value }
	}
	i := slices.IndexFunc(mounts, is("mountPath", "/tmp"))
	if i < 0 {
		t.Fatal("nothing is mounted at /tmp")
	}
	mount := mounts[i].(map[string]any)
	volumes := spec["volumes"].([]any)
	volume := volumes[slices.IndexFunc(volumes, is("name", mount["name"]))]
	want := map[string]any{"name": mount["name"], "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "64Mi"}}
	if diff := cmp.Diff(want, volume); diff != "" || mount["readOnly"] == true {
		t.Errorf("mounted as %v is (-want +got):\n%s", mount, diff)
	}
}

// Everything that the chart lets people set has a default, and Helm finds nothing to complain about, warnings included.
func TestChartIsClean(t *testing.T) {
	t.Parallel()
	report := tool(t, "helm", "lint", "--strict", "deploy/helm/proxyfleet", "--values", "examples/kubernetes/values.yaml")
	if strings.Contains(report, "[WARNING]") || !strings.Contains(report, "0 chart(s) failed") {
		t.Error(report)
	}
}

// Values that name what is not there are mistakes: they would be without effect.
func TestChartRefusesUnknownValues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"replica=3", "image.name=x", "serviceMonitor.enable=true", "replicas=two", "token.secretName="} {
		if _, err := attempt(t, "helm", "template", "proxyfleet", "deploy/helm/proxyfleet", "--set", value); err == nil {
			t.Errorf("the chart takes %s", value)
		}
	}
}
