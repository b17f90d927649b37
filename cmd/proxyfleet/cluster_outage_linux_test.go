package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/internal/cluster"
)

// sweeps is the time from one search for instances that no proxy holds to the next, in a fleet that outlives outages.
const sweeps = 2 * time.Second

// The API server is away for long, or answers that everything is too old, or that somebody was faster each time, or knows other
// objects than before: nothing that a proxy has is deleted or made twice, and nobody asks without end. What is asked for without
// a change, and for the end of many, is counted.
func TestOutages(t *testing.T) {
	t.Parallel()
	r := newRealm(t, cluster.Config{})
	m := newReign(t, r.cluster, "default", "--gc-interval", sweeps.String(), "--provider-check-interval", "10s")
	m.begin()
	m.withoutAPI()
	m.expired()
	m.contended()
	m.steady()
	m.crowd()
	m.otherUIDs()
}

// ids are the instances that there are.
func (m *reign) ids() []int64 {
	var ids []int64
	for _, i := range m.cloud.History() {
		if i.State(time.Now()) != cloud.Gone {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// same holds the cloud to it that nothing was made or deleted since.
func (m *reign) same(ids []int64, made int, while string) {
	m.t.Helper()
	if diff := cmp.Diff(ids, m.ids()); diff != "" || len(m.cloud.History()) != made {
		m.t.Errorf("%s, instances were made or deleted, %d in all (-before +now):\n%s", while, len(m.cloud.History())-made, diff)
	}
}

// lines counts those of a log.
func (j *journal) lines() int { return strings.Count(j.String(), "\n") }

// withoutAPI has no API server for 25 seconds: many sweeps, and more than a term.
func (m *reign) withoutAPI() {
	const long = 25 * time.Second
	leader, follower := m.leader()
	before, made := m.ids(), len(m.cloud.History())
	tries, lines := map[*replica]int{}, map[*replica]int{}
	for _, r := range []*replica{leader, follower} {
		tries[r], lines[r] = r.way.Tries(), r.log.lines()
	}
	m.leases(follower) // by then it knows who leads
	m.cluster.StopAPI()
	m.leases(follower) // the leader goes on for what is left of its term
	<-time.After(long)
	for _, r := range []*replica{leader, follower} {
		if err := m.refused(r); err != nil {
			m.t.Errorf("without a leader: %v", err)
		}
		asked, said := r.way.Tries()-tries[r], r.log.lines()-lines[r]
		m.t.Logf("%v without an API server: %d connections, %d lines of the log", long, asked, said)
		if asked > 250 || said > 60 {
			m.t.Errorf("that is too many: %s", r.log.brief())
		}
	}
	m.same(before, made, "without an API server")
	if err := m.cluster.StartAPI(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	begun := time.Now()
	m.leases(leader)
	m.leases(follower)
	m.t.Logf("leases %v after it is back", time.Since(begun).Round(100*time.Millisecond))
	m.audited(before, made, "after an outage")
}

// refused sees that a replica grants no lease and says when to ask again.
func (m *reign) refused(r *replica) error {
	answer, err := http.Post(r.url+"/v1/leases", "application/json", strings.NewReader(`{"target": "example.com"}`))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		return fmt.Errorf("%s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
	}
	return nil
}

// audited sees the fleet be what it should, with the same instances, for some sweeps.
func (m *reign) audited(ids []int64, made int, when string) {
	m.t.Helper()
	leader, _ := m.leader()
	m.calm(leader)
	<-time.After(2 * sweeps)
	m.same(ids, made, when)
	if problem := m.unowned(); problem != "" {
		m.t.Errorf("%s: %s", when, problem)
	}
}

// expired cuts both replicas off, edits, and has the API server know nothing from before when they come back: their watches cannot go on.
func (m *reign) expired() {
	before, made := m.ids(), len(m.cloud.History())
	for _, w := range m.ways {
		w.Cut()
	}
	m.proxies["p0"].region++
	m.declare("p0")
	if err := m.cluster.Compact(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.cluster.StopAPI()
	if err := m.cluster.StartAPI(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	for _, w := range m.ways {
		w.Mend()
	}
	for _, w := range m.ways {
		m.calm(w.replica)
	}
	m.audited(before, made, "after all watches have expired")
}

// requests counts what the replicas have asked of the API server since a time.
func (m *reign) requests(since time.Time) map[string]int {
	m.t.Helper()
	events, err := m.cluster.Audit()
	if err != nil {
		m.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, e := range events {
		if strings.HasPrefix(e.Agent, "proxyfleet/") && e.Time.After(since) {
			what := strings.TrimSuffix(e.Verb+" "+e.Resource+"/"+e.Subresource, "/")
			counts[what]++
			if e.Code == http.StatusConflict {
				counts["conflicts"]++
			}
		}
	}
	return counts
}

// contended has somebody else write each proxy all the time, while proxies are declared, moved and deleted.
func (m *reign) contended() {
	begun := time.Now()
	ctx, stop := context.WithCancel(m.t.Context())
	var writers sync.WaitGroup
	for name := range m.proxies {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/count":"%d"}}}`, n)
				_, _ = m.at("proxies").Patch(ctx, name, apitypes.MergePatchType, body, metav1.PatchOptions{}) // it may be gone
				<-time.After(10 * time.Millisecond)                                                           // others want to be served, too
			}
		})
	}
	m.undeclare("p1")
	m.move("p2")
	m.proxies["p3"].region++
	m.declare("p3")
	leader, _ := m.leader()
	m.calm(leader)
	m.declare("p1")
	m.calm(leader)
	stop()
	writers.Wait()
	counts := m.requests(begun)
	m.t.Logf("%v of writes by somebody else: %v", time.Since(begun).Round(time.Second), counts)
	if counts["conflicts"] == 0 {
		m.t.Error("nobody was in the way of anybody")
	}
	leader, _ = m.leader()
	m.calm(leader)
}

// steady counts what is asked for while nothing changes.
func (m *reign) steady() {
	long := 15 * time.Second
	if number("KILLS", 0) > 100 {
		long = time.Minute
	}
	leader, _ := m.leader()
	m.calm(leader)
	<-time.After(2 * time.Second) // Events are written in the background
	begun, before := time.Now(), m.statuses()
	<-time.After(long)
	counts := m.requests(begun)
	m.t.Logf("%v without a change, two replicas: %v", long, counts)
	if diff := cmp.Diff(before, m.statuses()); diff != "" {
		m.t.Errorf("what should not change did (-before +now):\n%s", diff)
	}
	// A latency that moved is told, of each proxy once a minute at most; passes are made twice a second.
	if moved := "patch proxies/status"; counts[moved] <= len(before)*int(1+long/time.Minute) {
		delete(counts, moved)
	}
	for _, expected := range []string{
		"get leases", "update leases", // of the election
		"get providerhealths", "patch providerhealths/status", // a check
		"list proxies", // a sweep
	} {
		if counts[expected] == 0 {
			m.t.Errorf("there is no %s", expected)
		}
		delete(counts, expected)
	}
	for what := range counts {
		if !strings.HasPrefix(what, "watch ") { // each of them ends after some minutes
			m.t.Errorf("there is no change, and: %s", what)
		}
	}
}

// statuses are those of all proxies, but for what a probe measures, as the API server has them.
func (m *reign) statuses() map[string]any {
	m.t.Helper()
	list, err := m.at("proxies").List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	all := map[string]any{}
	for _, o := range list.Items {
		status, _, _ := unstructured.NestedMap(o.Object, "status")
		delete(status, "latencyMillis")
		delete(status, "lastHealthCheckTime")
		all[o.GetName()] = status
	}
	return all
}

// crowd declares many proxies, that exist already and that are made, and deletes them at once.
func (m *reign) crowd() {
	externals, managed := 200, 10
	if number("KILLS", 0) > 100 {
		externals, managed = 1000, 200
	}
	begun := time.Now()
	m.declareMany(externals, func(n int) string {
		return external(fmt.Sprintf("crowd-e%d", n), "http", "127.0.0.1:1", "", "") + // nobody listens there
			"  healthCheck: {interval: 10m, failureThreshold: 1}\n"
	})
	m.declareMany(managed, func(n int) string {
		return declared{name: fmt.Sprintf("crowd-m%d", n), provider: "toy", more: "placement: {zone: a}"}.String()
	})
	leader, follower := m.leader()
	within(m.t, 5*time.Minute, 500*time.Millisecond, func() string {
		ready, seen := 0, 0
		for name, p := range m.crowdOf(leader) {
			if p.Phase == "Ready" && strings.HasPrefix(name, "crowd-m") {
				ready++
			}
			if p.Phase == "Unhealthy" && strings.HasPrefix(name, "crowd-e") {
				seen++
			}
		}
		if ready == managed && seen == externals {
			return ""
		}
		return fmt.Sprintf("of the %d made %d are Ready, of the %d others %d are probed", managed, ready, externals, seen)
	})
	m.t.Logf("%d proxies that exist and %d that are made, declared and probed in %v: %v", externals, managed, time.Since(begun).Round(time.Second), m.requests(begun))
	begun = time.Now()
	err := m.at("proxies").DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "crowd"})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range []*replica{leader, follower} {
		within(m.t, 5*time.Minute, 500*time.Millisecond, func() string {
			if left := len(m.crowdOf(r)); left > 0 {
				return fmt.Sprintf("%d are left", left)
			}
			return ""
		})
	}
	counts := m.requests(begun)
	m.t.Logf("all of them deleted at once, and gone in %v: %v", time.Since(begun).Round(time.Second), counts)
	all := 0
	for what, n := range counts {
		if strings.HasSuffix(what, "proxies") || strings.HasSuffix(what, "proxies/status") {
			all += n
		}
	}
	if most := externals + 10*managed; all > most {
		m.t.Errorf("%d requests about proxies for the end of %d that need none and %d that need some", all, externals, managed)
	}
	eventually(m.t, m.unowned)
}

// declareMany applies as many documents, ten at a time, with a label that they have in common.
func (m *reign) declareMany(count int, document func(n int) string) {
	m.t.Helper()
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			for n := worker; n < count; n += 10 {
				if err := m.tryApply(strings.Replace(document(n), "metadata: {", `metadata: {labels: {crowd: ""}, `, 1)); err != nil {
					m.t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// crowdOf returns the many proxies that a replica knows.
func (m *reign) crowdOf(r *replica) map[string]client.Proxy {
	m.t.Helper()
	all := r.list()
	for name := range m.proxies {
		delete(all, name)
	}
	return all
}

// otherUIDs has all proxies be declared anew while no replica runs, as after a restore of what was declared: then none of the instances that there
// are has a proxy. All of them are held back, until somebody says that they may go.
func (m *reign) otherUIDs() {
	old, count := m.ids(), len(m.proxies)
	m.unwatch()
	for _, w := range m.ways {
		w.replica.fell()
	}
	m.free()
	for name := range m.proxies {
		if _, err := m.at("proxies").Patch(m.t.Context(), name, apitypes.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			m.t.Fatal(err)
		}
		m.undeclare(name)
		m.declare(name)
	}
	for _, w := range m.ways {
		m.launch(w)
	}
	for _, w := range m.ways {
		m.serves(w.replica)
	}
	leader, follower := m.leader()
	leader.await(count, "Ready")
	<-time.After(3 * sweeps)
	if r := follower.cli("gc"); r.code != 1 || !strings.Contains(r.stdout, fmt.Sprintf("%d listed, 0 deleted, %d held back by the brake", 2*count, count)) {
		m.t.Errorf("a sweep that would delete half of what there is: %+v", r)
	}
	if kept := slices.DeleteFunc(m.ids(), func(id int64) bool { return !slices.Contains(old, id) }); len(kept) != count {
		m.t.Errorf("of the instances %v whose proxies have other UIDs now there are %v", old, kept)
	}
	if !strings.Contains(leader.log.String(), "garbage collection is braked") {
		m.t.Error("the log does not say that instances are held back")
	}
	if r := follower.cli("gc", "--allow", "toy", "--max", fmt.Sprint(count)); r.code != 0 {
		m.t.Errorf("as many are allowed as would go: %+v", r)
	}
	eventually(m.t, m.unowned)
	if n := strings.Count(leader.log.String(), "deleting an instance that no record holds"); n != count { // by this sweep, or the next by itself
		m.t.Errorf("%d instances were deleted, want %d", n, count)
	}
}
