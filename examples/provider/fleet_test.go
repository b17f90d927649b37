package examplecloud_test

import (
	"testing"

	examplecloud "github.com/proxyfleet/fleet/examples/provider"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// The documents of the tutorial are understood by all who read them, down to the provider.
func TestTutorialDocuments(t *testing.T) {
	set, err := manifest.Load(manifest.Sources{Files: []string{"fleet.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	var configs []provider.Config
	for _, p := range set.Configuration.Providers {
		configs = append(configs, provider.Config(p))
	}
	constructors := map[string]provider.Constructor{"example": examplecloud.New}
	providers, err := provider.Open(configs, constructors, provider.Environment{Fleet: set.Configuration.FleetID})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Proxies) != 2 {
		t.Errorf("there are %d proxies, want 2", len(set.Proxies))
	}
	for key, declared := range set.Proxies {
		secret, ok := set.Secrets[proxy.Key{Namespace: key.Namespace, Name: declared.Spec.Credentials.SecretRef.Name}]
		if !ok {
			t.Fatalf("%v refers to a Secret that is not there", key)
		}
		placement := declared.Spec.Placement
		id, err := providers[declared.Spec.Provider].Plan(provider.Request{
			Name:        "proxy-x",
			Placement:   provider.Placement{Zone: placement.Zone},
			Credentials: provider.Credentials{Username: secret.Data["username"], Password: secret.Data["password"]},
		})
		if want := "zones/" + placement.Zone + "/instances/proxy-x"; err != nil || id != want {
			t.Errorf("the ID of %v is %q, %v, want %q", key, id, err, want)
		}
	}
}
