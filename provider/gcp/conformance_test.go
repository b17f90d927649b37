package gcp_test

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

const project = "test-project"

// start serves a cloud until the end of the test.
func start(t testing.TB, c gcptest.Config) (*gcptest.Server, string) {
	t.Helper()
	cloud := gcptest.New(c)
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	return cloud, server.URL
}

// open makes the provider of a fleet over a cloud, with fields that differ from the usual ones.
// unhurried has an answer serve for longer than a test takes.
var unhurried = map[string]any{"settle": "5m"}

func open(t testing.TB, fleet, url string, fields map[string]any) provider.Provider {
	t.Helper()
	return opened(t, provider.Environment{Fleet: fleet}, url, fields)
}

func opened(t testing.TB, env provider.Environment, url string, fields map[string]any) provider.Provider {
	t.Helper()
	config := map[string]any{
		"project": project, "provisioning": "spot", "address": "ipv4",
		"endpoint": url, "withoutAuthentication": true, "settle": "20s",
	}
	maps.Copy(config, fields)
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := gcp.New(env, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		cloud, url := start(t, gcptest.Config{
			Boot: 50 * time.Millisecond, Insert: 30 * time.Millisecond, Stop: 50 * time.Millisecond, PageSize: 2,
		})
		return providertest.Harness{
			Open:     func(t testing.TB, fleet string) provider.Provider { return open(t, fleet, url, nil) },
			Request:  requests(),
			Outlives: true,
			Settle:   20 * time.Second,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "debian-12" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = 100_000 },
				"credentials":           func(r *provider.Request) { r.Credentials = provider.Credentials{} },
				"port":                  func(r *provider.Request) { r.Port = 0 },
				"cloudInit":             func(r *provider.Request) { r.CloudInit = secret.New(string(make([]byte, 256<<10))) },
			},
			Plant:  func(_ testing.TB, r provider.Request) { plant(cloud, r) },
			Inject: func(f providertest.Fault) bool { return inject(cloud, f) },
		}
	})
}

// requests returns requests for one zone after the other.
func requests() func() provider.Request {
	zones := []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	n := 0
	return func() provider.Request {
		n++
		return request(zones[n%len(zones)])
	}
}

func request(zone string) provider.Request {
	return provider.Request{
		Placement: provider.Placement{Zone: zone, MachineType: "e2-micro",
			Image: "projects/debian-cloud/global/images/family/debian-12", DiskSizeGb: 10},
		Port:        3128,
		CloudInit:   secret.New("#cloud-config\n# token-of-the-suite\n"),
		Credentials: provider.Credentials{Username: secret.New("crawler-of-the-suite"), Password: secret.New("s3cret-of-the-suite")},
	}
}

// inject says how this cloud does what the suite asks for.
func inject(cloud *gcptest.Server, f providertest.Fault) bool {
	faults := map[providertest.Fault]gcptest.Fault{
		providertest.CreateFails:      {Method: "instances.insert", Status: 503},
		providertest.CreateUnanswered: {Method: "instances.insert", LoseAnswer: true},
		providertest.GetFails:         {Method: "instances.get", Status: 503},
		providertest.DeleteFails:      {Method: "instances.delete", Status: 500},
		providertest.DeleteUnanswered: {Method: "instances.delete", LoseAnswer: true},
		providertest.ListFails:        {Method: "instances.aggregatedList", Status: 503, Skip: 1},
		providertest.CheckFails:       {Method: "instances.aggregatedList", Status: 403, Times: 1000},
		providertest.Hangs:            {Hang: true, Times: 1000},
	}
	if f == providertest.Lags {
		cloud.Lag(time.Second)
		return true
	}
	fault, ok := faults[f]
	if ok {
		cloud.Inject(fault)
	}
	return ok
}

// plant makes an instance as somebody else would who uses the same project.
func plant(cloud *gcptest.Server, r provider.Request) {
	labels := map[string]string{"team": "another"}
	if r.Marks != (provider.Marks{}) {
		labels = labelsOf(r.Marks)
	}
	cloud.Plant(r.Placement.Zone, &computepb.Instance{Name: new(r.Name), Labels: labels,
		NetworkInterfaces: []*computepb.NetworkInterface{{AccessConfigs: []*computepb.AccessConfig{{}}}}})
}

func labelsOf(m provider.Marks) map[string]string {
	return map[string]string{"proxyfleet_managed": "true", "proxyfleet_fleet": m.Fleet, "proxyfleet_uid": m.UID, "proxyfleet_hash": m.Hash}
}
