package pod_test

import (
	"fmt"
	"log"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/pod"
	"github.com/proxyfleet/fleet/secret"
)

// What can be said without a cluster: where a pod will be, and what is wrong with a request.
func Example() {
	p, err := pod.New(provider.Environment{Name: "cluster", Fleet: "my-fleet"}, []byte(`{
		"namespace": "proxies",
		"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "512Mi"}}
	}`))
	if err != nil {
		log.Fatal(err)
	}
	r := provider.Request{
		Name:        provider.Name("my-fleet", "uid-of-the-proxy"),
		Marks:       provider.Marks{Fleet: "my-fleet", UID: "uid-of-the-proxy", Hash: "v1-0123456789abcdef"},
		Port:        3128,
		Credentials: provider.Credentials{Username: secret.New("crawler"), Password: secret.New("a long password")},
	}
	id, err := p.Plan(r)
	fmt.Println(id, err)

	r.Placement.Image = "squid:latest"
	_, err = p.Plan(r)
	fmt.Println(err)
	// Output:
	// namespaces/proxies/pods/proxy-tgffilijz47dsfzz <nil>
	// plan: UnsupportedField: placement.image: what runs in the cluster is for the provider's configuration to say; remove it
}
