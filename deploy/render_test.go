package deploy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
namespace: proxyfleet
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
