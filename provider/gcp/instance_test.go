package gcp_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
	"github.com/proxyfleet/fleet/secret"
)

func gcptestConfig() gcptest.Config { return gcptest.Config{} }

// named is a request for the proxy of a UID, of the fleet "f".
func named(zone, uid string) provider.Request {
	r := request(zone)
	r.Name = provider.Name("f", uid)
	r.Marks = provider.Marks{Fleet: "f", UID: uid, Hash: "v1-0123456789abcdef0123456789abcdef"}
	r.Token = "token of " + uid
	return r
}

// ref is the instance of a request.
func ref(r provider.Request) provider.Ref {
	return provider.Ref{ID: "zones/" + r.Placement.Zone + "/instances/" + r.Name, UID: r.Marks.UID}
}

func mustCreate(t testing.TB, p provider.Provider, r provider.Request) provider.Instance {
	t.Helper()
	in, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// What is asked for is what the configuration and the request say, and nothing else that could cost money.
func TestInsertedMachine(t *testing.T) {
	const zone = "us-central1-a"
	name := provider.Name("f", "u")
	base := func() *computepb.Instance {
		return &computepb.Instance{
			Name:        new(name),
			Description: new("A forward proxy of the fleet f, kept by proxyfleet."),
			Labels: map[string]string{"proxyfleet_managed": "true", "proxyfleet_fleet": "f", "proxyfleet_uid": "u",
				"proxyfleet_hash": "v1-0123456789abcdef0123456789abcdef"},
			MachineType: new("zones/us-central1-a/machineTypes/e2-micro"),
			Disks: []*computepb.AttachedDisk{{Boot: new(true), AutoDelete: new(true),
				InitializeParams: &computepb.AttachedDiskInitializeParams{
					SourceImage: new("projects/debian-cloud/global/images/family/debian-12"), DiskSizeGb: new(int64(10))}}},
			NetworkInterfaces: []*computepb.NetworkInterface{{Network: new("global/networks/default"), NetworkIP: new("")}},
			Scheduling:        &computepb.Scheduling{ProvisioningModel: new("STANDARD")},
		}
	}
	external := func(tier *string) []*computepb.AccessConfig {
		return []*computepb.AccessConfig{{Type: new("ONE_TO_ONE_NAT"), Name: new("External NAT"), NetworkTier: tier}}
	}
	tests := map[string]struct {
		fields map[string]any
		edit   func(*computepb.Instance)
	}{
		"on demand, no external address": {
			map[string]any{"provisioning": "onDemand", "address": "internal"}, func(*computepb.Instance) {},
		},
		"spot": {
			map[string]any{"provisioning": "spot", "address": "internal"}, func(vm *computepb.Instance) {
				vm.Scheduling = &computepb.Scheduling{ProvisioningModel: new("SPOT"), InstanceTerminationAction: new("STOP"),
					OnHostMaintenance: new("TERMINATE"), AutomaticRestart: new(false)}
			},
		},
		"an external address, of a tier": {
			map[string]any{"provisioning": "onDemand", "address": "ipv4", "networkTier": "STANDARD"}, func(vm *computepb.Instance) {
				vm.NetworkInterfaces[0].AccessConfigs = external(new("STANDARD"))
			},
		},
		"IPv6 in a subnetwork that each region has": {
			map[string]any{"provisioning": "onDemand", "address": "ipv6", "subnetwork": "proxies"}, func(vm *computepb.Instance) {
				vm.NetworkInterfaces[0] = &computepb.NetworkInterface{
					Subnetwork: new("regions/us-central1/subnetworks/proxies"), StackType: new("IPV4_IPV6"), NetworkIP: new(""),
					Ipv6AccessConfigs: []*computepb.AccessConfig{{Type: new("DIRECT_IPV6"), Name: new("External IPv6"), NetworkTier: new("PREMIUM")}},
				}
			},
		},
		"both, in a shared network": {
			map[string]any{"provisioning": "onDemand", "address": "dual", "subnetwork": "projects/host/regions/us-central1/subnetworks/s"},
			func(vm *computepb.Instance) {
				vm.NetworkInterfaces[0] = &computepb.NetworkInterface{
					Subnetwork: new("projects/host/regions/us-central1/subnetworks/s"), StackType: new("IPV4_IPV6"), NetworkIP: new(""),
					AccessConfigs:     external(nil),
					Ipv6AccessConfigs: []*computepb.AccessConfig{{Type: new("DIRECT_IPV6"), Name: new("External IPv6"), NetworkTier: new("PREMIUM")}},
				}
			},
		},
		"all the rest": {
			map[string]any{"provisioning": "onDemand", "address": "internal", "tags": []string{"proxy"}, "diskType": "pd-balanced",
				"serviceAccount": "sa@p.iam.gserviceaccount.com"},
			func(vm *computepb.Instance) {
				vm.Tags = &computepb.Tags{Items: []string{"proxy"}}
				vm.Disks[0].InitializeParams.DiskType = new("zones/us-central1-a/diskTypes/pd-balanced")
				vm.ServiceAccounts = []*computepb.ServiceAccount{{Email: new("sa@p.iam.gserviceaccount.com"),
					Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}}}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cloud, url := start(t, gcptestConfig())
			mustCreate(t, open(t, "f", url, tt.fields), named(zone, "u"))
			want, got := base(), cloud.History()[0].Resource
			tt.edit(want)
			if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&computepb.Instance{}, "metadata"),
				protocmp.IgnoreFields(&computepb.NetworkInterface{}, "network_i_p"),
				protocmp.IgnoreFields(&computepb.AccessConfig{}, "nat_i_p", "external_ipv6")); diff != "" {
				t.Errorf("the machine that was asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// One document sets up the proxy and does what the user wants; it has no password in clear. Where no cloud-init reads it, a script
// sets up the proxy.
func TestUserData(t *testing.T) {
	cloud, url := start(t, gcptestConfig())
	p := open(t, "f", url, map[string]any{"allowedClients": []string{"192.0.2.0/24"}, "allowedDestinations": []string{"10.1.0.0/16"}})
	r := named("us-central1-a", "u")
	mustCreate(t, p, r)
	r = named("us-central1-a", "v")
	r.CloudInit, r.Credentials = secret.Text{}, provider.Credentials{} // the clients are known
	mustCreate(t, p, r)
	var documents []map[string]string
	for _, m := range cloud.History() {
		values := map[string]string{}
		for _, item := range m.Resource.GetMetadata().GetItems() {
			values[item.GetKey()] = item.GetValue()
		}
		documents = append(documents, values)
	}
	if got := documents[0]["user-data"]; !strings.HasPrefix(got, "Content-Type: multipart/mixed") {
		t.Errorf("with a document of the user's, it begins with %.40q, want a multipart message", got)
	}
	if got := documents[1]["user-data"]; !strings.HasPrefix(got, "#!") {
		t.Errorf("without one, it begins with %.40q, want a script", got)
	}
	for key, value := range documents[1] {
		for _, want := range []string{"192.0.2.0/24", "10.1.0.0/16", "3128"} {
			if !strings.Contains(value, want) {
				t.Errorf("%q is not in %s", want, key)
			}
		}
	}
	for _, values := range documents {
		if len(values) != 2 {
			t.Errorf("the metadata has %d values, want user-data and startup-script", len(values))
		}
		for key, value := range values {
			if strings.Contains(value, "s3cret-of-the-suite") {
				t.Errorf("the password stands in clear in %s", key)
			}
		}
		startsUp(t, values["startup-script"])
	}
}

// startsUp runs a startup script on a host that has cloud-init, which does it all: the script leaves it alone.
func startsUp(t *testing.T, script string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "startup-script")
	write(t, file, script)
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("the startup script is no script: %v\n%s", err, out)
	}
	// What comes before the setup decides; the setup itself would change this host.
	guard, _, found := strings.Cut(strings.TrimPrefix(script, "#!"), "#!")
	if !found {
		t.Fatal("the setup is not in the startup script")
	}
	write(t, file, "#!"+guard+"echo would set up\n")
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "cloud-init"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "/bin/sh", file)
	run.Env = []string{"PATH=" + path}
	if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("where cloud-init is, the startup script ends with %v and %q, want it to do nothing", err, out)
	}
	run = exec.CommandContext(t.Context(), "/bin/sh", file)
	run.Env = []string{"PATH=" + t.TempDir()}
	if out, err := run.CombinedOutput(); err != nil || string(out) != "would set up\n" {
		t.Errorf("without cloud-init, the startup script ends with %v and %q, want it to set up the proxy", err, out)
	}
}

// What a machine is reached at, by how it is configured.
func TestHost(t *testing.T) {
	for address, prefix := range map[string]string{"ipv4": "198.18.", "dual": "198.18.", "ipv6": "2001:db8::", "internal": "10.128."} {
		t.Run(address, func(t *testing.T) {
			_, url := start(t, gcptestConfig())
			p := open(t, "f", url, map[string]any{"address": address, "subnetwork": "proxies"})
			r := named("us-central1-a", "u")
			mustCreate(t, p, r)
			in, err := p.Get(t.Context(), ref(r))
			if err != nil || in.State != provider.Running || !strings.HasPrefix(in.Host, prefix) {
				t.Errorf("Get returned %+v, %v, want it Running at %s…", in, err, prefix)
			}
		})
	}
}

// A status says what the fleet does next, and one that nobody knows is Stopped: the fleet makes another instance.
func TestStates(t *testing.T) {
	address := []*computepb.NetworkInterface{{AccessConfigs: []*computepb.AccessConfig{{NatIP: new("192.0.2.1")}}}}
	tests := []struct {
		status, reason string
		nics           []*computepb.NetworkInterface
		want           provider.State
	}{
		{"PENDING", "Pending", nil, provider.Provisioning},
		{"PROVISIONING", "Provisioning", nil, provider.Provisioning},
		{"STAGING", "Staging", nil, provider.Provisioning},
		{"REPAIRING", "Repairing", nil, provider.Provisioning},
		{"RUNNING", "", address, provider.Running},
		{"RUNNING", "NoAddress", nil, provider.Provisioning},
		{"PENDING_STOP", "PendingStop", nil, provider.Terminating},
		{"STOPPING", "Stopping", nil, provider.Terminating},
		{"SUSPENDING", "Suspending", nil, provider.Terminating},
		{"DEPROVISIONING", "Deprovisioning", nil, provider.Terminating},
		{"SUSPENDED", "Suspended", nil, provider.Stopped},
		{"TERMINATED", "Terminated", nil, provider.Stopped},
		{"STOPPED", "Stopped", nil, provider.Stopped},
		{"FROZEN_SOLID", "FrozenSolid", nil, provider.Stopped},
		{"", "", nil, provider.Stopped},
	}
	for _, tt := range tests {
		t.Run(tt.status+tt.reason, func(t *testing.T) {
			vm := &computepb.Instance{Id: new(uint64(7)), Name: new(provider.Name("f", "u")), Status: new(tt.status), NetworkInterfaces: tt.nics,
				Labels: labelsOf(provider.Marks{Fleet: "f", UID: "u", Hash: "h"}), CreationTimestamp: new("2026-01-02T03:04:05.678-07:00")}
			p := open(t, "f", answering(t, vm), nil)
			in, err := p.Get(t.Context(), ref(named("us-central1-a", "u")))
			if err != nil || in.State != tt.want || in.Reason != tt.reason || in.Incarnation != "7" || in.Created.Year() != 2026 {
				t.Errorf("Get returned %+v, %v, want state %s with reason %q, incarnation 7 and a time", in, err, tt.want, tt.reason)
			}
		})
	}
}
