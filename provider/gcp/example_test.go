package gcp_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
	"github.com/proxyfleet/fleet/secret"
)

// A machine on a Compute Engine that is only on paper.
func Example() {
	cloud := httptest.NewServer(gcptest.New(gcptest.Config{Project: "my-project"}))
	defer cloud.Close()

	p, err := gcp.New(provider.Environment{Name: "google", Fleet: "my-fleet"}, fmt.Appendf(nil, `{
		"project": "my-project", "provisioning": "spot", "address": "ipv4",
		"endpoint": %q, "withoutAuthentication": true
	}`, cloud.URL))
	if err != nil {
		log.Fatal(err)
	}
	in, err := p.Create(context.Background(), provider.Request{
		Name:  provider.Name("my-fleet", "uid-of-the-proxy"),
		Marks: provider.Marks{Fleet: "my-fleet", UID: "uid-of-the-proxy", Hash: "v1-0123456789abcdef"},
		Token: "one-for-each-intent",
		Placement: provider.Placement{
			Zone: "us-central1-a", MachineType: "e2-micro",
			Image: "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
		},
		Port:        3128,
		Credentials: provider.Credentials{Username: secret.New("crawler"), Password: secret.New("a long password")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(in.ID, in.State)

	in, err = p.Get(context.Background(), provider.Ref{ID: in.ID, UID: "uid-of-the-proxy"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(in.State, in.Host)
	// Output:
	// zones/us-central1-a/instances/proxy-tgffilijz47dsfzz Provisioning
	// Running 198.18.4.2
}
