package gcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// The sweeper deletes what no record knows and nothing else: not when a page of the list fails, not when a zone cannot be
// reached, and not while the list lags behind what was made and deleted.
func TestSweepOfALargeFleet(t *testing.T) {
	const count = 1200
	tests := map[string]struct {
		disturb func(*gcptest.Server)
		deleted int
	}{
		"all is well":    {func(*gcptest.Server) {}, 2},
		"the first page": {func(c *gcptest.Server) { c.Inject(gcptest.Fault{Method: "instances.aggregatedList", Status: 503}) }, 0},
		"the second page": {func(c *gcptest.Server) {
			c.Inject(gcptest.Fault{Method: "instances.aggregatedList", Status: 503, Skip: 1})
		}, 0},
		"the last page": {func(c *gcptest.Server) {
			c.Inject(gcptest.Fault{Method: "instances.aggregatedList", LoseAnswer: true, Skip: 2, Times: 3})
		}, 0},
		"an unreachable zone": {func(c *gcptest.Server) { c.Unreachable("europe-west1-b") }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, p := bubble(t, gcptest.Config{})
				held := fleetOf(cloud, count)
				delete(held, "u0")
				delete(held, "u1") // orphans, in two zones
				time.Sleep(time.Hour)
				sweep(t, p, held, func() { tt.disturb(cloud) })
				if n := cloud.Requests()["instances.delete"]; n != tt.deleted {
					t.Errorf("%d machines were deleted, want %d", n, tt.deleted)
				}
				for _, m := range cloud.History() {
					uid := m.Resource.GetLabels()["proxyfleet_uid"]
					if _, known := held[uid]; known && m.Status(time.Now()) != "RUNNING" {
						t.Errorf("the machine of %s was deleted, and its record is there", uid)
					}
				}
			})
		})
	}
}

// fleetOf makes a fleet of machines that run, and the records that go with it.
func fleetOf(cloud *gcptest.Server, count int) map[string]gc.Held {
	zones := []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	held := map[string]gc.Held{}
	for n := range count {
		r := named(zones[n%3], fmt.Sprint("u", n))
		plant(cloud, r)
		held[r.Marks.UID] = gc.Held{Key: "default/" + r.Marks.UID, Provider: "gcp", ID: ref(r).ID}
	}
	for _, m := range cloud.History() {
		uid := m.Resource.GetLabels()["proxyfleet_uid"]
		record := held[uid]
		record.Incarnation = fmt.Sprint(m.ID)
		held[uid] = record
	}
	return held
}

// sweep sweeps once.
func sweep(t *testing.T, p provider.Provider, held map[string]gc.Held, before func()) {
	t.Helper()
	s, err := gc.New(gc.Config{Fleet: "f", Providers: map[string]provider.Provider{"gcp": p},
		Live: func(context.Context) (map[string]gc.Held, error) { return held, nil }})
	if err != nil {
		t.Fatal(err)
	}
	before()
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Logf("the sweep: %v", err)
	}
}

// A list that lags by a minute still shows what is deleted, and does not show yet what is made. Neither makes the sweeper
// delete a machine that is wanted, nor the fleet make one twice.
func TestSweepWhileTheListLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{})
		gcp.Over(p, inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/aggregated/") {
				cloud.Lag(time.Minute)
				defer cloud.Lag(0)
			}
			cloud.ServeHTTP(w, r)
		})})
		held := fleetOf(cloud, 20)
		time.Sleep(time.Hour)
		var wanted []provider.Request
		for n := range 10 { // each is replaced: the same name, another machine
			r := named([]string{"us-central1-a", "us-central1-b", "europe-west1-b"}[n%3], fmt.Sprint("u", n))
			if err := p.Delete(t.Context(), ref(r)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Get(t.Context(), ref(r)); provider.ClassOf(err) != provider.ErrNotFound {
				t.Fatalf("Get returned %v, want NotFound", err)
			}
			in := mustCreate(t, p, r)
			record := held[r.Marks.UID]
			record.Incarnation = in.Incarnation
			held[r.Marks.UID] = record
			wanted = append(wanted, r)
		}
		for range 12 { // two minutes of sweeps and polls
			sweep(t, p, held, func() {})
			for _, r := range wanted {
				in, err := p.Get(t.Context(), ref(r))
				if err != nil || in.Incarnation != held[r.Marks.UID].Incarnation {
					t.Errorf("Get returned %+v, %v, want the incarnation %s", in, err, held[r.Marks.UID].Incarnation)
				}
				if met, err := p.Create(t.Context(), r); err != nil || met.Incarnation != held[r.Marks.UID].Incarnation {
					t.Errorf("another Create returned %+v, %v, want what is there", met, err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		running := 0
		for _, m := range cloud.History() {
			if m.Status(time.Now()) == "RUNNING" {
				running++
			}
		}
		if made := len(cloud.History()); running != 20 || made != 30 {
			t.Errorf("%d machines run and %d were made, want 20 and 30", running, made)
		}
	})
}
