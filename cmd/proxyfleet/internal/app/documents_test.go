package app

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
)

// All that is wrong is said at once, and of which provider.
func TestLoadSaysAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	const text = `apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
providers:
- {name: a, type: cloud}
- {name: b, type: lokal}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lacks := func(env provider.Environment, _ json.RawMessage) (provider.Provider, error) {
		if env.Fleet == "" {
			t.Error("a provider is asked about a fleet without an identity")
		}
		return nil, errors.Join(errors.New("project: is required"), errors.New("zone: is required"))
	}
	d := documents{files: []string{file}}
	_, _, err := d.load(map[string]ProviderType{"cloud": {New: lacks, Outlives: true}})
	if err == nil {
		t.Fatal("no error")
	}
	const want = `FleetConfiguration: fleetID is required: instances of provider "a" outlive this process and are found again by it; ` +
		`choose one that no other fleet there has, and never change it
provider "a": project: is required
provider "a": zone: is required
provider "b": type: "lokal" is not known; the types are cloud`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
