package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// googled is a place with a Compute Engine of its own, whose machines have a proxy that stands in for each at its address.
type googled struct {
	*place
	cloud *gcptest.Server
	url   string

	mu    sync.Mutex
	hosts map[string]string // by the name of the machine
}

// newGoogled serves a cloud. Its machines take a moment to boot, and to go.
func newGoogled(t *testing.T) *googled {
	t.Helper()
	g := &googled{place: newPlace(t), hosts: map[string]string{}}
	g.cloud = gcptest.New(gcptest.Config{Project: "test-project", Address: g.host,
		Boot: 100 * time.Millisecond, Insert: 50 * time.Millisecond, Stop: 100 * time.Millisecond})
	server := httptest.NewServer(g.cloud)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// host returns the address of a machine, with a proxy that listens there. The same name has the same address.
func (g *googled) host(name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if host, ok := g.hosts[name]; ok {
		return host
	}
	address := netip.MustParsePrefix(g.network).Addr()
	for range len(g.hosts) + 1 {
		address = address.Next()
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "3128"))
	if err != nil {
		g.t.Error(err)
		return ""
	}
	stand := &http.Server{Handler: g.standIn(), ReadHeaderTimeout: time.Minute}
	go func() { _ = stand.Serve(listener) }()
	g.t.Cleanup(func() { _ = stand.Close() })
	g.hosts[name] = address.String()
	return address.String()
}

// standIn is a proxy that asks for a password.
func (g *googled) standIn() http.Handler {
	forward := goproxy.NewProxyHttpServer()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("crawler:"+planted))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		forward.ServeHTTP(w, r)
	})
}

// document writes the documents of proxies by their zones. Whatever is late here takes effect half a second before the cloud has
// settled at the latest: the time of an intent is kept to the second.
func (g *googled) document(zones map[string]string) {
	documents := []string{fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: googled
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: google
  type: gcp
  config:
    project: test-project
    provisioning: spot
    address: ipv4
    endpoint: %q
    withoutAuthentication: true
    settle: 3s
`, g.target.plain.URL+"/healthz", g.url), login("")}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		documents = append(documents, declared{name: name, provider: "google", more: fmt.Sprintf(
			"placement: {zone: %s, machineType: e2-micro, image: projects/debian-cloud/global/images/family/debian-12}", zones[name])}.String())
	}
	g.write("fleet.yaml", documents...)
}

// run starts the fleet, with waits as short as those of its cloud.
func (g *googled) run() *server {
	return g.place.launch("--last-retry", "500ms", "--quota-retry", "500ms", "--permanent-retry", "2s", "--drain-timeout", "500ms")
}

// alive returns the machines that there are now, by the names of their proxies' UIDs.
func (g *googled) alive() map[string][]gcptest.Machine {
	all := map[string][]gcptest.Machine{}
	for _, m := range g.cloud.History() {
		if m.Status(time.Now()) != "" {
			uid := m.Resource.GetLabels()["proxyfleet_uid"]
			all[uid] = append(all[uid], m)
		}
	}
	return all
}

// judge looks through all that ever was for two machines of one proxy at one time.
func (g *googled) judge() {
	g.t.Helper()
	last := map[string]gcptest.Machine{}
	history := g.cloud.History()
	slices.SortFunc(history, func(a, b gcptest.Machine) int { return a.Created.Compare(b.Created) })
	for _, m := range history {
		uid := m.Resource.GetLabels()["proxyfleet_uid"]
		if before, ok := last[uid]; ok && (before.Gone.IsZero() || before.Gone.After(m.Created)) {
			g.t.Errorf("two machines of one proxy at one time: %s/%s from %v to %v, and %s/%s from %v on",
				before.Zone, before.Name, before.Created, before.Gone, m.Zone, m.Name, m.Created)
		}
		last[uid] = m
	}
}

// settled waits until each proxy is Ready on the one machine that it has, in its zone, and no other machine is there.
func (g *googled) settled(s *server, zones map[string]string) map[string]client.Proxy {
	g.t.Helper()
	var all map[string]client.Proxy
	eventually(g.t, func() string {
		all = s.list()
		alive := g.alive()
		if len(all) != len(zones) || len(alive) != len(zones) {
			return fmt.Sprintf("want %d proxies on as many machines, there are %+v on %d", len(zones), all, len(alive))
		}
		for name, zone := range zones {
			p := all[name]
			if machines := alive[p.UID]; p.Phase != "Ready" || len(machines) != 1 || machines[0].Zone != zone {
				return fmt.Sprintf("%s should be Ready on one machine in %s, and is %+v", name, zone, p)
			}
		}
		return ""
	})
	g.judge()
	return all
}

// From documents to machines, to leases, and back to nothing.
func TestComputeEngine(t *testing.T) {
	t.Parallel()
	g := newGoogled(t)
	zones := map[string]string{"p0": "us-central1-a", "p1": "us-central1-b", "p2": "europe-west1-b"}
	g.document(zones)
	s := g.run().serving()
	before := g.settled(s, zones)

	granted, err := s.client.Acquire(t.Context(), lease.Request{})
	if err != nil {
		t.Fatal(err)
	}
	g.target.crawl(t, granted.Leases[0].Proxy.RevealURL())
	eventually(t, func() string {
		if list := s.cli("get", "providers").stdout; !strings.Contains(list, "google") || !strings.Contains(list, "1/1") {
			return "the provider is not ready:\n" + list
		}
		return ""
	})

	s.kill()
	s = g.run().serving()
	for name, p := range g.settled(s, zones) {
		if p.UID != before[name].UID || len(g.cloud.History()) != 3 {
			t.Errorf("after a restart %s is %+v, and was %+v; %d machines were made", name, p, before[name], len(g.cloud.History()))
		}
	}

	taken := g.alive()[before["p0"].UID][0]
	g.cloud.Preempt(taken.Zone, taken.Name)
	eventually(t, func() string {
		if machines := g.alive()[before["p0"].UID]; len(machines) == 1 && machines[0].ID != taken.ID && s.list()["p0"].Phase == "Ready" {
			return ""
		}
		return "the machine that was taken away is not replaced"
	})

	zones["p1"] = "europe-west1-b" // the machine moves
	g.document(zones)
	g.settled(s, zones)

	g.document(map[string]string{"p0": zones["p0"]})
	g.settled(s, map[string]string{"p0": zones["p0"]})
	if deletes, machines := g.cloud.Requests()["instances.delete"], len(g.cloud.History()); deletes != machines-1 {
		t.Errorf("%d deletes were sent for %d machines that went, want one each", deletes, machines-1)
	}
}

// That a create came to nothing, and why, is shown to whoever looks at the proxy, also after a restart that forgot its
// operation.
func TestComputeEngineHasNoRoom(t *testing.T) {
	t.Parallel()
	g := newGoogled(t)
	zones := map[string]string{"p0": "us-central1-a"}
	g.document(zones)
	g.cloud.Inject(gcptest.Fault{Method: "instances.insert", Times: 1000, Fails: `{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED",` +
		`"message":"The zone does not have enough resources available to fulfill the request.","errorDetails":[{"errorInfo":` +
		`{"metadatas":{"vmType":"e2-micro","zone":"us-central1-a","zonesAvailable":"us-central1-b"}}}]}]}`})
	s := g.place.launch("--quota-retry", "1m").serving()
	told := func() string {
		shown := s.cli("explain", "p0").stdout
		for _, want := range []string{"QuotaExceeded", "ZoneExhausted", "there is room in us-central1-b"} {
			if !strings.Contains(shown, want) {
				return fmt.Sprintf("%q is not in\n%s", want, shown)
			}
		}
		return ""
	}
	eventually(t, told)
	s.kill()
	s = g.place.launch("--quota-retry", "1m").serving()
	eventually(t, told)
	g.cloud.Heal()
	zones["p0"] = "us-central1-b" // as the message advises
	g.document(zones)
	g.settled(s, zones)
}

// The process is killed at the worst moments of a create, and calls time out there. There is always one machine of a proxy, or
// none yet, and in the end the one that the document asks for.
func TestComputeEngineCrashes(t *testing.T) {
	t.Parallel()
	const zone, elsewhere = "us-central1-a", "us-central1-b"
	tests := map[string]struct {
		fault gcptest.Fault
		hold  bool                // the answer is held back until after the crash
		wait  func(*googled) bool // when to kill the process
		edit  bool                // the zone is edited while nobody runs
		extra []gcptest.Fault     // what else goes wrong
	}{
		"accepted, and the answer not read":      {fault: gcptest.Fault{}, hold: true, wait: made},
		"the same, and then an edit":             {fault: gcptest.Fault{}, hold: true, wait: made, edit: true},
		"the answer read, the status not there":  {wait: made},
		"the answer lost":                        {fault: gcptest.Fault{LoseAnswer: true}, wait: made},
		"before it has an effect":                {fault: gcptest.Fault{Late: 1500 * time.Millisecond}, wait: asked},
		"the same, and then an edit of the zone": {fault: gcptest.Fault{Late: 1500 * time.Millisecond}, wait: asked, edit: true},
		"accepted, and not visible yet":          {fault: gcptest.Fault{Hidden: 1500 * time.Millisecond}, wait: asked, edit: true},
		"the operation cannot be asked for": {fault: gcptest.Fault{Hidden: time.Second}, wait: asked, extra: []gcptest.Fault{
			{Method: "zoneOperations.get", Status: 503, Times: 10}, {Method: "zoneOperations.list", Status: 503, Times: 10}}},
		"the operation does not answer": {fault: gcptest.Fault{Hidden: time.Second}, wait: asked, extra: []gcptest.Fault{
			{Method: "zoneOperations.get", Hang: true, Times: 2}}},
		"it fails later, and nobody is there to see it": {fault: gcptest.Fault{Fails: `{"errors":[{"code":"INTERNAL_ERROR"}]}`}, wait: asked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGoogled(t)
			zones := map[string]string{"p0": zone}
			g.document(zones)
			held := make(chan struct{})
			if tt.hold {
				tt.fault.HoldAnswer = held
			}
			tt.fault.Method = "instances.insert"
			g.cloud.Inject(tt.fault)
			for _, f := range tt.extra {
				g.cloud.Inject(f)
			}
			s := g.run().serving()
			eventually(t, func() string {
				if tt.wait(g) {
					return ""
				}
				return "no insert was sent"
			})
			s.kill()
			close(held)
			if tt.edit {
				zones["p0"] = elsewhere
				g.document(zones)
			}
			s = g.run().serving()
			g.settled(s, zones)
			g.document(nil) // nothing is left behind
			s.kill()
			s = g.place.launch("--allow-delete", "1").serving()
			eventually(t, func() string {
				if n := len(g.alive()); n > 0 || len(s.list()) > 0 {
					return fmt.Sprintf("%d machines are left of a proxy that is gone", n)
				}
				return ""
			})
			g.judge()
		})
	}
}

// made says whether there was a machine.
func made(g *googled) bool { return len(g.cloud.History()) > 0 }

// asked says whether an insert has arrived.
func asked(g *googled) bool { return g.cloud.Requests()["instances.insert"] > 0 }

// A fleet on a Compute Engine that fails, loses answers and is late is killed at random moments, while its proxies move from
// zone to zone and its machines are taken away.
func TestComputeEngineRandomKills(t *testing.T) {
	t.Parallel()
	seed := number("SEED", int(time.Now().UnixNano()%1e9))
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	g := newGoogled(t)
	zones := map[string]string{}
	for n := range 4 {
		zones["p"+strconv.Itoa(n)] = "us-central1-a"
	}
	g.document(zones)
	s := g.run().serving()
	g.settled(s, zones)
	for range number("KILLS", 6) {
		for range 3 {
			g.cloud.Inject(trouble(random))
			name := "p" + strconv.Itoa(random.IntN(len(zones)))
			switch random.IntN(3) {
			case 0:
				zones[name] = []string{"us-central1-a", "us-central1-b", "europe-west1-b"}[random.IntN(3)]
				g.document(zones)
			case 1:
				for _, machines := range g.alive() {
					g.cloud.Preempt(machines[0].Zone, machines[0].Name)
					break
				}
			}
			<-time.After(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		}
		s.kill()
		g.judge()
		s = g.run().serving()
	}
	g.cloud.Heal()
	g.settled(s, zones)
	t.Logf("%d machines were made with %v", len(g.cloud.History()), g.cloud.Requests())
}

// trouble is something that may go wrong.
func trouble(random *rand.Rand) gcptest.Fault {
	all := []gcptest.Fault{
		{Status: 503}, {LoseAnswer: true}, {Hang: true},
		{Method: "instances.insert", Late: time.Second}, {Method: "instances.insert", Hidden: time.Second},
		{Method: "instances.insert", Fails: `{"errors":[{"code":"QUOTA_EXCEEDED"}]}`, FailStatus: 403},
		{Method: "instances.insert", Status: 403, Body: `{"error":{"code":403,"message":"Quota 'CPUS' exceeded.","errors":[{"reason":"quotaExceeded"}]}}`},
		{Method: "instances.delete", LoseAnswer: true}, {Method: "zoneOperations.get", Status: 503, Times: 3},
		{Method: "instances.aggregatedList", Status: 503, Times: 3},
	}
	return all[random.IntN(len(all))]
}
