package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
)

// A fleet on a cloud that fails, lags and loses answers is killed at random moments while its documents are edited and its
// instances die. There are never two instances of a proxy, none is left without one, and when all calms down the fleet is
// what the documents say.
//
// KILLS is how often it is killed, SEED repeats the decisions of an earlier run.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write()
	s := w.launch().serving()
	for name, p := range s.await(len(w.proxies), "Ready") {
		w.uids[name] = p.UID
	}
	for kill := range number("KILLS", 15) {
		w.stormy()
		w.live(s, w.moment(2*time.Second))
		s.kill()
		unborn := w.launch() // this one may not even come to serve
		<-time.After(w.moment(500 * time.Millisecond))
		unborn.kill()
		w.judge()
		s = w.launch().serving()
		if kill%10 == 9 {
			w.calm(s)
		}
	}
	w.calm(s)
	t.Logf("%d instances were made", len(w.cloud.History()))
}

// number returns a number from the environment.
func number(variable string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return otherwise
	}
	return n
}

// world is the example cloud, a fleet on it, and whoever troubles both.
type world struct {
	*place
	cloud    *cloud.Cloud
	gate     *gate
	url      string // of the gate
	random   *rand.Rand
	password int
	proxies  map[string]*wish
	uids     map[string]string // by name
	strays   map[int64]bool    // instances that were made on purpose beside another one
}

// wish is what a proxy is declared to be.
type wish struct {
	declared bool
	zone     string
	region   int // an attribute, which shapes no instance
}

func newWorld(t *testing.T) *world {
	seed := number("SEED", int(time.Now().UnixNano()%1e9))
	t.Logf("SEED=%d", seed)
	w := &world{place: newPlace(t), random: rand.New(rand.NewPCG(uint64(seed), 0)), proxies: map[string]*wish{}, uids: map[string]string{},
		strays: map[int64]bool{}}
	w.cloud, _ = cloudtest.Start(t, cloud.Config{Boot: 50 * time.Millisecond, Stop: 50 * time.Millisecond, PageSize: 2})
	w.gate, w.url = newGate(t, w.cloud)
	for n := range 6 {
		w.proxies[fmt.Sprintf("p%d", n)] = &wish{declared: true, zone: "a"}
	}
	return w
}

// write writes the documents as they should be by now.
func (w *world) write() {
	documents := []string{fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: kills
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: toy
  type: example
  config: {url: %q, zones: [a, b]}
`, w.url+"/healthz", w.url), login(strconv.Itoa(w.password))}
	for _, name := range slices.Sorted(maps.Keys(w.proxies)) {
		if p := w.proxies[name]; p.declared {
			documents = append(documents, declared{name: name, provider: "toy",
				more: fmt.Sprintf("placement: {zone: %s}\n  attributes: {region: %q}", p.zone, strconv.Itoa(p.region))}.String())
		}
	}
	w.place.write("fleet.yaml", documents...)
}

// launch starts the fleet, with waits as short as its provider allows, and sweeps that come as often as passes.
func (w *world) launch(args ...string) *server {
	return w.place.launch(append([]string{"--last-retry", "500ms", "--quota-retry", "500ms", "--permanent-retry", "2s",
		"--drain-timeout", "500ms", "--gc-interval", "300ms", "--gc-min-age", "300ms"}, args...)...)
}

// lag is how old an answer of a cloud that is unreliable can be.
const lag = time.Second

// stormy makes the cloud unreliable, each time in another way.
func (w *world) stormy() {
	err := w.cloud.SetConditions(cloud.Conditions{
		LagMillis: int(lag.Milliseconds()), Probability: 0.3, Seed: w.random.Uint64(),
		Faults: []cloud.Fault{
			{Status: 500}, {Status: 503, RetryAfterSeconds: 1}, {LoseAnswer: true}, {AnswerDelayMillis: 1000},
			{Op: "create", EffectDelayMillis: 1500}, {Op: "create", EffectDelayMillis: 1500, LoseAnswer: true},
			{Op: "delete", EffectDelayMillis: 1500}, {Op: "create", Status: 429}, {Op: "create", FailCreate: "internal"},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) moment(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// live lets the fleet live for a time in which things happen.
func (w *world) live(s *server, left time.Duration) {
	for left > 0 {
		pause := min(left, w.moment(200*time.Millisecond))
		left -= pause
		<-time.After(pause)
		w.disturb()
		w.checkUndeclared(s)
	}
}

// disturb edits a document, lets an instance die, or does nothing.
func (w *world) disturb() {
	name := slices.Sorted(maps.Keys(w.proxies))[w.random.IntN(len(w.proxies))]
	p := w.proxies[name]
	switch w.random.IntN(6) {
	case 0: // half of them stay, so that the brake on vanished documents has no say in this
		if !p.declared || w.count() > len(w.proxies)/2 {
			p.declared = !p.declared
		}
	case 1:
		p.zone = map[string]string{"a": "b", "b": "a"}[p.zone]
	case 2:
		p.region++
	case 3:
		w.password++
	case 4:
		if i := w.instance(w.uids[name]); i != nil {
			_ = w.cloud.Kill(i.Zone, i.Name) // it may have gone meanwhile
		}
	}
	w.write()
}

// count returns how many proxies are declared.
func (w *world) count() int {
	n := 0
	for _, p := range w.proxies {
		if p.declared {
			n++
		}
	}
	return n
}

// instance returns the instance of a proxy that there is now, or nil.
func (w *world) instance(uid string) *cloud.Instance {
	for _, i := range w.cloud.History() {
		if i.Labels["proxyfleet-uid"] == uid && i.State(time.Now()) != cloud.Gone && !w.strays[i.ID] {
			return &i
		}
	}
	return nil
}

// checkUndeclared holds the fleet to it that what it has forgotten is gone. It asks for nothing that is declared.
func (w *world) checkUndeclared(s *server) {
	known := w.known(s)
	for name, p := range w.proxies {
		if i := w.instance(w.uids[name]); !p.declared && !known[name] && i != nil && !w.known(s)[name] { // it may have become known just now
			w.t.Fatalf("%s is deleted, and its instance is there: %+v", name, i)
		}
	}
}

// known are the names of the proxies that a fleet has.
func (w *world) known(s *server) map[string]bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	all, err := s.client.ListProxies(ctx, client.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range all {
		names[p.Name] = true
	}
	return names
}

// judge looks through all that ever was for two instances of a proxy at one time.
func (w *world) judge() {
	w.t.Helper()
	last := map[string]cloud.Instance{}
	for _, i := range w.cloud.History() {
		uid := i.Labels["proxyfleet-uid"]
		if w.strays[i.ID] {
			continue
		}
		if before, ok := last[uid]; ok && (before.Ended.IsZero() || before.Ended.After(i.Created)) {
			w.t.Fatalf("two instances of one proxy:\n%+v\n%+v", before, i)
		}
		last[uid] = i
	}
}

// calm lets the cloud be fair, and waits until the fleet is what the documents say.
func (w *world) calm(s *server) {
	w.t.Helper()
	w.cloud.Heal()
	eventually(w.t, func() string {
		all := s.list()
		for name, p := range w.proxies {
			if problem := w.compare(p, all[name], w.instance(w.uids[name])); problem != "" {
				return name + problem
			}
		}
		return ""
	})
	w.judge()
	for name, p := range s.list() {
		if p.UID != w.uids[name] {
			w.t.Errorf("%s has become another proxy: %+v; its UID was %s", name, p, w.uids[name])
		}
	}
}

// compare says how what the fleet and the cloud have differs from what is declared.
func (w *world) compare(want *wish, has client.Proxy, i *cloud.Instance) string {
	through := &url.URL{Scheme: "http", User: url.UserPassword("crawler", planted+strconv.Itoa(w.password)),
		Host: net.JoinHostPort(has.Host, strconv.Itoa(int(has.Port)))}
	switch {
	case !want.declared && i == nil && has.UID == "":
		return ""
	case !want.declared:
		return fmt.Sprintf(" should be gone, and is %+v with %+v", has, i)
	case i == nil || i.Zone != want.zone || i.State(time.Now()) != cloud.Running:
		return fmt.Sprintf(" should run in zone %s, and is %+v with %+v", want.zone, has, i)
	case has.Phase != "Ready" || has.Attributes["region"] != strconv.Itoa(want.region):
		return fmt.Sprintf(" should be Ready in region %d, and is %+v", want.region, has)
	}
	if _, err := w.target.get(w.target.plain.URL, through); err != nil {
		return fmt.Sprintf(" should take the password of now: %v", err)
	}
	return ""
}
