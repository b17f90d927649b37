package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/pod"
)

// TestConfig says what is wrong with a configuration, all at once and by field.
func TestConfig(t *testing.T) {
	tests := map[string]struct {
		config string
		fleet  string // defaults to a good one
		want   []string
	}{
		"least":            {config: `{"namespace": "proxies"}`},
		"everything":       {config: `{"namespace":"proxies","kubeconfig":"/k","context":"c","image":"squid:6","imagePullSecrets":["s"],"resources":{"requests":{"cpu":"1"},"limits":{"memory":"1Gi","cpu":2}},"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists","effect":"NoSchedule"}],"allowedClients":["10.0.0.0/8"],"allowedDestinations":["10.1.0.0/16"],"settle":"1m"}`},
		"nothing":          {config: `{}`, want: []string{"namespace: required"}},
		"an unknown field": {config: `{"namespace":"p","tolerations":[{"kee":"k"}]}`, want: []string{"config.tolerations[0].kee"}},
		"all at once": {config: `{"namespace":"No","image":"","imagePullSecrets":["S s"],"nodeSelector":{"a b":"c"},"resources":{"requests":{"memory":"1Gi"}},"settle":"1s"}`,
			want: []string{"namespace: ", "image: ", "imagePullSecrets[0]: ", "nodeSelector.a b: ", "resources.requests.memory: 1Gi is more than the limit, 256Mi", "settle: "}},
		"no quantity":                   {config: `{"namespace":"p","resources":{"limits":{"cpu":"much"}}}`, want: []string{"quantit"}},
		"a fleet that fits in no label": {config: `{"namespace":"p"}`, fleet: "-x", want: []string{"fleetID: "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fleet := "fleet-one"
			if test.fleet != "" {
				fleet = test.fleet
			}
			_, err := pod.New(provider.Environment{Fleet: fleet}, json.RawMessage(test.config))
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("New returned %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not said: %v", want, err)
				}
			}
		})
	}
}
