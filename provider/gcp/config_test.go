package gcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
)

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct{ config, want string }{
		"nothing":                        {``, "project: "},
		"no way to pay":                  {`{"project": "my-project", "address": "ipv4"}`, "provisioning: "},
		"no address":                     {`{"project": "my-project", "provisioning": "spot"}`, "address: "},
		"an unknown field":               {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "zone": "x"}`, "config.zone"},
		"a project that is a path":       {`{"project": "a/b", "provisioning": "spot", "address": "ipv4"}`, "project: "},
		"IPv6 without a subnetwork":      {`{"project": "my-project", "provisioning": "spot", "address": "ipv6"}`, "subnetwork: "},
		"a subnetwork that is no path":   {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "subnetwork": "a/b"}`, "subnetwork: "},
		"a tag in capitals":              {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "tags": ["ok", "Proxy"]}`, "tags[1]: "},
		"a tier in lower case":           {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "networkTier": "premium"}`, "networkTier: "},
		"a service account with no @":    {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "serviceAccount": "me"}`, "serviceAccount: "},
		"a disk type that is a path":     {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "diskType": "zones/x"}`, "diskType: "},
		"clients that are no network":    {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "allowedClients": ["here"]}`, "config"},
		"credentials in the clear":       {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "endpoint": "http://10.0.0.1"}`, "endpoint: "},
		"a password in the endpoint":     {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "endpoint": "https://u:hush@h"}`, "endpoint: "},
		"no credentials for Google":      {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "withoutAuthentication": true}`, "withoutAuthentication: "},
		"a test server's settle for all": {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "settle": "5s"}`, "settle: "},
		"a settle that is no duration":   {`{"project": "my-project", "provisioning": "spot", "address": "ipv4", "endpoint": "http://h", "withoutAuthentication": true, "settle": "5"}`, "settle: "},
		"all that is wrong at once":      {`{"provisioning": "cheap"}`, "\naddress: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := gcp.New(provider.Environment{Fleet: "f"}, json.RawMessage(tt.config))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
			if p != nil {
				t.Errorf("there is a provider beside the error: %+v", p)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

// The identity of the fleet is a label, and is neither truncated nor encoded to become one.
func TestNewRefusesAFleetThatFitsNoLabel(t *testing.T) {
	for _, fleet := range []string{"", "Fleet", "a.b", strings.Repeat("f", 64)} {
		config := `{"project": "my-project", "provisioning": "spot", "address": "ipv4"}`
		if _, err := gcp.New(provider.Environment{Fleet: fleet}, json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), "fleetID") {
			t.Errorf("the error for the fleet %q is %v, want one that names fleetID", fleet, err)
		}
	}
}

// An ID has no project in it: in another project everything would seem gone, and would run on.
func TestTheProjectOfAProviderStays(t *testing.T) {
	_, url := start(t, gcptestConfig())
	env := provider.Environment{Fleet: "f", StateDir: t.TempDir() + "/gcp"}
	p := opened(t, env, url, nil)
	other := json.RawMessage(`{"project": "other-project", "provisioning": "spot", "address": "ipv4"}`)
	if _, err := gcp.New(env, other); err != nil {
		t.Errorf("before anything was made, another project is refused: %v", err)
	}
	mustCreate(t, p, named("us-central1-a", "u"))
	if _, err := gcp.New(env, other); err == nil || !strings.Contains(err.Error(), "project: ") || !strings.Contains(err.Error(), project) {
		t.Errorf("the error for another project is %v, want one that names both", err)
	}
	opened(t, env, url, nil)
}

// To validate documents takes neither a UID nor a hash; what does not fit into a label is refused before anything else is.
func TestPlanLooksAtMarks(t *testing.T) {
	p := open(t, "f", "http://127.0.0.1:1", nil)
	r := named("us-central1-a", "u")
	for _, marks := range []provider.Marks{{}, r.Marks} {
		r.Marks = marks
		if _, err := p.Plan(r); err != nil {
			t.Errorf("with the marks %+v, Plan returned %v", marks, err)
		}
	}
	for _, marks := range []provider.Marks{{UID: "U"}, {UID: "a.b"}, {UID: strings.Repeat("u", 64)}, {UID: "u", Hash: "V1"}} {
		r.Marks = marks
		if _, err := p.Plan(r); provider.ClassOf(err) != provider.ErrPermanent {
			t.Errorf("with the marks %+v, Plan returned %v, want a permanent error", marks, err)
		}
	}
}
