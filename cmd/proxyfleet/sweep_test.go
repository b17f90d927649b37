package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
)

// minAge is how old an instance must be in these tests for the sweeper to delete it.
const minAge = 500 * time.Millisecond

// onCloud is a place for a fleet on an example cloud.
type onCloud struct {
	*place
	cloud     *cloud.Cloud
	url       string
	fleet     string
	namespace string
	count     int
}

func newOnCloud(t *testing.T, c *cloud.Cloud, url, fleet string) *onCloud {
	return &onCloud{place: newPlace(t), cloud: c, url: url, fleet: fleet, namespace: "default", count: 6}
}

// write writes documents of p0, p1 and so on.
func (o *onCloud) write() {
	documents := []string{fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: %s
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: toy
  type: example
  config: {url: %q, zones: [a]}
`, o.fleet, o.url+"/healthz", o.url)}
	for n := range o.count {
		documents = append(documents, fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: p%d, namespace: %s}
spec: {provider: toy}
`, n, o.namespace))
	}
	o.place.write("fleet.yaml", documents...)
}

// run writes the documents, starts the fleet and waits until all are Ready.
func (o *onCloud) run() *server {
	o.t.Helper()
	o.write()
	s := o.start("--gc-min-age", minAge.String(), "--gc-interval", "1h", "--metrics-listen", "127.0.0.1:0", "--allow-delete", "9")
	s.await(o.count, "Ready")
	return s
}

// instances returns the ids of those that the fleet has.
func (o *onCloud) instances() []int64 {
	var ids []int64
	for _, i := range o.cloud.History() {
		if i.Labels["proxyfleet-fleet"] == o.fleet && i.State(time.Now()) != cloud.Gone {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// loseState kills the fleet and takes its records away.
func (o *onCloud) loseState(s *server) {
	o.t.Helper()
	s.kill()
	if err := os.Remove(o.path("fleet.db")); err != nil {
		o.t.Fatal(err)
	}
}

// sweep has the fleet make a sweep when all that there is is old enough, and returns what it says.
func (o *onCloud) sweep(s *server, args ...string) result {
	o.t.Helper()
	<-time.After(2 * minAge)
	return s.cli(append([]string{"gc"}, args...)...)
}

// metric returns the value of a series, or "".
func (s *server) metric(series string) string {
	s.t.Helper()
	for line := range strings.Lines(s.get(s.log.find("serving metrics", "url"))) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// get returns what a URL answers.
func (s *server) get(url string) string {
	s.t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// Two fleets may have the same names at the same provider: neither touches the other's, whatever it loses.
func TestTwoFleets(t *testing.T) {
	t.Parallel()
	c, url := cloudtest.Start(t, cloud.Config{Boot: 10 * time.Millisecond, Stop: 10 * time.Millisecond, PageSize: 4})
	red, blue := newOnCloud(t, c, url, "red"), newOnCloud(t, c, url, "blue")
	reds, blues := red.run(), blue.run()
	all := map[string][]int64{"red": red.instances(), "blue": blue.instances()}
	if len(all["red"]) != 6 || len(all["blue"]) != 6 {
		t.Fatalf("there are %v", all)
	}
	for _, s := range []*server{reds, blues} {
		if r := red.sweep(s); r.code != 0 || !strings.Contains(r.stdout, "6 listed, 0 deleted") {
			t.Errorf("the sweep: %+v", r)
		}
	}

	red.loseState(reds) // and half of what it is to be
	red.count = 3
	reds = red.run()
	if r := red.sweep(reds, "--allow", "toy", "--max", "3"); r.code != 0 || !strings.Contains(r.stdout, "6 listed, 3 deleted") {
		t.Errorf("the sweep: %+v", r)
	}
	eventually(t, func() string {
		if left := red.instances(); len(left) != 3 {
			return fmt.Sprintf("red has %v", left)
		}
		return ""
	})
	if diff := cmp.Diff(all["blue"], blue.instances()); diff != "" {
		t.Errorf("the other fleet had and has (-before +now):\n%s", diff)
	}
	if r := blue.sweep(blues); r.code != 0 || !strings.Contains(r.stdout, "6 listed, 0 deleted") {
		t.Errorf("the sweep: %+v", r)
	}
}

// Who loses the records, or has them under other names, does not lose the fleet.
func TestBrake(t *testing.T) {
	t.Parallel()
	c, url := cloudtest.Start(t, cloud.Config{Boot: 10 * time.Millisecond, Stop: 10 * time.Millisecond, PageSize: 4})
	o := newOnCloud(t, c, url, "home")
	s := o.run()
	before := o.instances()

	o.loseState(s)
	s = o.run()
	if r := o.sweep(s); r.code != 0 || !strings.Contains(r.stdout, "6 listed, 0 deleted") {
		t.Errorf("a sweep without the lost records: %+v", r)
	}
	if diff := cmp.Diff(before, o.instances()); diff != "" {
		t.Errorf("the same proxies have other instances (-before +now):\n%s", diff)
	}

	o.loseState(s)
	o.namespace = "renamed" // then the UIDs are others
	s = o.run()
	const held = `proxyfleet_gc_held_instances{provider="toy"}`
	for range 2 {
		if r := o.sweep(s); r.code != 1 || !strings.Contains(r.stdout, "12 listed, 0 deleted, 6 held back by the brake") {
			t.Errorf("a sweep that would delete half of what there is: %+v", r)
		}
	}
	if now := s.metric(held); now != "6" {
		t.Errorf("%s is %q", held, now)
	}
	names := slices.Collect(maps.Values(nameOf(c, before)))
	for _, name := range names {
		if !strings.Contains(s.log.String(), name) {
			t.Errorf("the log does not say that %s is held back", name)
		}
	}
	if r := o.sweep(s, "--allow", "toy", "--max", "5"); r.code != 1 || len(o.instances()) != 12 {
		t.Errorf("fewer are allowed than would go: %+v", r)
	}
	if r := o.sweep(s, "--allow", "toy", "--max", "6"); r.code != 0 || !strings.Contains(r.stdout, "12 listed, 6 deleted") {
		t.Errorf("as many are allowed as would go: %+v", r)
	}
	s.await(6, "Ready")
	eventually(t, func() string {
		if now := o.instances(); len(now) != 6 || slices.ContainsFunc(now, func(id int64) bool { return slices.Contains(before, id) }) {
			return fmt.Sprintf("there were %v and are %v", before, now)
		}
		return ""
	})

	for n := range 4 {
		plant(t, url, "home", fmt.Sprintf("00000000-0000-4000-8000-%012d", n), fmt.Sprintf("planted%d", n), "a")
	}
	if r := o.sweep(s); r.code != 1 || !strings.Contains(r.stdout, "4 held back by the brake") {
		t.Errorf("what was allowed once holds for ever: %+v", r)
	}
}

// nameOf returns the names of instances by their ids.
func nameOf(c *cloud.Cloud, ids []int64) map[int64]string {
	names := map[int64]string{}
	for _, i := range c.History() {
		if slices.Contains(ids, i.ID) {
			names[i.ID] = i.Name
		}
	}
	return names
}

// A list of which a page fails is none: nothing is deleted by what came before.
func TestSweepWithoutAPage(t *testing.T) {
	t.Parallel()
	c, url := cloudtest.Start(t, cloud.Config{Boot: 10 * time.Millisecond, Stop: 10 * time.Millisecond, PageSize: 4})
	o := newOnCloud(t, c, url, "home")
	s := o.run()
	plant(t, url, "home", "00000000-0000-4000-8000-000000000001", "planted", "a")
	if err := c.Inject(cloud.Fault{Op: "list", Skip: 1, Status: 500}); err != nil {
		t.Fatal(err)
	}
	if r := o.sweep(s); r.code != 1 || !strings.Contains(r.stdout, "toy: not known") || len(o.instances()) != 7 {
		t.Errorf("the sweep: %+v, and there are %v", r, o.instances())
	}
	if r := o.sweep(s); r.code != 0 || !strings.Contains(r.stdout, "7 listed, 1 deleted") {
		t.Errorf("the next sweep: %+v", r)
	}
	if r := s.cli("gc", "--allow", "nobody", "--max", "1"); r.code != 1 || !strings.Contains(r.stderr, `"nobody"; there are: toy`) {
		t.Errorf("the brake of a provider that there is not: %+v", r)
	}
}
