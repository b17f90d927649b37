package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

// A fleet is killed at each point at which something is half done: around a create, each write of its records, a delete, the
// end of a record and a sweep. After a restart and one sweep, each instance is the one that a proxy holds, each proxy has one,
// what nobody touched is what it was, and the instances of others are there.
//
// KILLS is how often, SEED repeats the decisions of an earlier run.
func TestCrashMatrix(t *testing.T) {
	kills := number("KILLS", 15)
	worlds := min(3, max(1, kills/100))
	total := tally{}
	t.Run("worlds", func(t *testing.T) {
		for n := range worlds {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				m := newMatrix(t)
				m.run((kills + worlds - 1) / worlds)
				total.add(m.counted, len(m.cloud.History()))
			})
		}
	})
	t.Log(total.String())
}

// tally counts kills by the point that they hit.
type tally struct {
	mu        sync.Mutex
	kills     map[string]int
	instances int
}

func (all *tally) add(kills map[string]int, instances int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.kills == nil {
		all.kills = map[string]int{}
	}
	for point, n := range kills {
		all.kills[point] += n
	}
	all.instances += instances
}

func (all *tally) String() string {
	var b strings.Builder
	sum := 0
	for _, point := range slices.Sorted(maps.Keys(all.kills)) {
		sum += all.kills[point]
		fmt.Fprintf(&b, "%6d  %s\n", all.kills[point], point)
	}
	return fmt.Sprintf("%d kills, %d instances:\n%s", sum, all.instances, b.String())
}

// matrix kills a fleet at points of its choice.
type matrix struct {
	*world
	mu      sync.Mutex // of s
	s       *server
	counted map[string]int
	still   map[string]int64 // the instances of proxies that nobody touches, by name
	foreign []int64          // instances that are none of the fleet's
	orphans int              // how many were planted
}

// point is one at which the fleet is killed.
type point struct {
	name string
	kill func(*matrix) (hit string) // "" when the fleet never came there
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{world: newWorld(t), counted: map[string]int{}, still: map[string]int64{}}
	for n := range 2 {
		m.proxies[fmt.Sprintf("still%d", n)] = &wish{declared: true, zone: "a"}
	}
	m.foreign = append(m.foreign, m.plant("other", "foreign1", "a"), m.plant("", "foreign2", "b"))
	m.write()
	m.start()
	m.s.serving()
	for name, p := range m.s.await(len(m.proxies), "Ready") {
		m.uids[name] = p.UID
		if strings.HasPrefix(name, "still") {
			m.still[name] = m.instance(p.UID).ID
		}
	}
	return m
}

// run kills as often as that, and audits the world after every ten kills and at the end.
func (m *matrix) run(kills int) {
	var due []point
	for n := range kills {
		if len(due) == 0 {
			due = points()
			m.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		}
		next := due[0]
		due = due[1:]
		if m.random.IntN(2) == 0 {
			m.stormy()
		} else {
			m.cloud.Heal()
		}
		hit := next.kill(m)
		m.gate.arm(nil)
		if hit == "" {
			hit = "where nothing was half done, on the way to another point"
			m.s.kill()
		}
		m.counted[hit]++
		if m.t.Failed() {
			m.t.Fatalf("kill %d, %s: %s", n, next.name, hit)
		}
		m.judge()
		m.start()
		m.s.serving()
		if n%10 == 9 || n == kills-1 {
			m.audit()
		}
	}
}

// points returns all of them.
func points() []point {
	all := []point{
		{"a random moment", (*matrix).atRandom},
		{"the end of a record", func(m *matrix) string { return m.atEnd(false) }},
		{"the end of a record", func(m *matrix) string { return m.atEnd(true) }},
		{"a create that comes true long after", (*matrix).lateOrphan},
		{"a create that comes true long after, elsewhere", (*matrix).lateStray},
		{"a sweep that lists", func(m *matrix) string {
			return m.atSweep(after, "GET", lists(false), "a sweep: the first page is listed")
		}},
		{"a sweep that lists", func(m *matrix) string {
			return m.atSweep(after, "GET", lists(true), "a sweep: the second page is listed")
		}},
	}
	for when, how := range []string{before: "sent, and never done", during: "sent, and done when the fleet was dead", after: "done, and not answered"} {
		all = append(all,
			point{"a create", func(m *matrix) string { return m.atCall(moment(when), http.MethodPost, "a create: "+how) }},
			point{"a delete", func(m *matrix) string { return m.atCall(moment(when), http.MethodDelete, "a delete: "+how) }},
			point{"a sweep", func(m *matrix) string {
				return m.atSweep(moment(when), http.MethodDelete, named("orphan"), "a sweep: a delete, "+how)
			}},
		)
	}
	for n := range uint64(6) {
		for _, done := range []bool{false, true} {
			all = append(all,
				point{"a write", func(m *matrix) string { return m.atWrite(n+1, done, "declared", m.wanted, m.declare) }},
				point{"a write", func(m *matrix) string { return m.atWrite(n+1, done, "moved", nil, m.move) }},
				point{"a write", func(m *matrix) string { return m.atWrite(n+1, done, "deleted", m.spared, m.undeclare) }})
		}
	}
	return all
}

// start starts the fleet.
func (m *matrix) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s = m.world.launch("--gc-min-age", minAge.String(), "--gc-interval", "1h")
}

// kill kills it, whoever asks.
func (m *matrix) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s.kill()
}

// awaits says whether something happens within a time in which it should.
func awaits(what <-chan struct{}) bool {
	select {
	case <-what:
		return true
	case <-time.After(12 * time.Second):
		return false
	}
}

// pick returns a proxy that is declared or not, and may be touched.
func (m *matrix) pick(declared bool) string {
	var names []string
	for name, p := range m.proxies {
		if p.declared == declared && !strings.HasPrefix(name, "still") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[m.random.IntN(len(names))]
}

// gone is how many proxies may be undeclared at a time, so that the brake on vanished documents has no say.
const gone = 2

// spared makes sure that one more may be undeclared.
func (m *matrix) spared() {
	if m.count() <= len(m.proxies)-gone {
		m.declare()
	}
}

// wanted makes sure that one more may be declared.
func (m *matrix) wanted() {
	if m.count() == len(m.proxies) {
		m.undeclare()
		m.calm(m.s)
	}
}

// undeclare lets a proxy go.
func (m *matrix) undeclare() {
	m.proxies[m.pick(true)].declared = false
	m.write()
}

// declare lets a proxy come back, if one is gone.
func (m *matrix) declare() {
	if m.count() == len(m.proxies) {
		return
	}
	m.proxies[m.pick(false)].declared = true
	m.write()
}

// move moves a proxy to the other zone: its instance is deleted, and another one created.
func (m *matrix) move() {
	p := m.proxies[m.pick(true)]
	p.zone = map[string]string{"a": "b", "b": "a"}[p.zone]
	m.write()
}

func (m *matrix) atRandom() string {
	for range m.random.IntN(6) {
		m.spared()
		[]func(){m.undeclare, m.move, m.declare, m.dies}[m.random.IntN(4)]()
		<-time.After(m.moment(400 * time.Millisecond))
		m.checkUndeclared(m.s)
	}
	m.s.kill()
	m.start() // this one may not even come to serve
	<-time.After(m.moment(500 * time.Millisecond))
	m.s.kill()
	m.counted["at a random moment of a start"]++
	return "at a random moment"
}

// dies lets an instance die.
func (m *matrix) dies() {
	if i := m.instance(m.uids[m.pick(true)]); i != nil {
		_ = m.cloud.Kill(i.Zone, i.Name) // it may have gone meanwhile
	}
}

// atCall kills at a call of the reconciler, of a fleet that runs or of one that starts.
func (m *matrix) atCall(when moment, method, hit string) string {
	t := newTrap(when, method, m.kill)
	if m.random.IntN(2) == 0 {
		m.s.kill()
		m.move()
		m.gate.arm(t)
		m.start()
	} else {
		m.gate.arm(t)
		m.move()
	}
	if !awaits(t.sprung) {
		return ""
	}
	return hit
}

// atWrite kills around the n-th write of the records after something was asked for.
func (m *matrix) atWrite(n uint64, done bool, what string, prepare, provoke func()) string {
	if prepare != nil {
		prepare()
	}
	state := m.path("fleet.db")
	sprung := make(chan struct{})
	begun := commits(state)
	stop := killAtWrite(m.t, state, n, done, m.kill, sprung)
	provoke()
	hit := awaits(sprung)
	stop()
	switch written := commits(state) - begun; {
	case !hit:
		return ""
	case written < n:
		return fmt.Sprintf("write %d of a proxy that is %s: under way", written+1, what)
	default:
		return fmt.Sprintf("write %d of a proxy that is %s: just done", written, what)
	}
}

// atEnd kills when a fleet knows that the instance of a deleted proxy is gone, around the write that lets the record go.
func (m *matrix) atEnd(done bool) string {
	m.spared()
	m.calm(m.s)
	state := m.path("fleet.db")
	sprung := make(chan struct{})
	stop := func() {}
	t := newTrap(after, http.MethodGet, func() { stop = killAtWrite(m.t, state, 1, done, m.kill, sprung) })
	t.hits, t.answered = named("proxy-"), func(status int) bool { return status == http.StatusNotFound }
	m.gate.arm(t)
	m.undeclare()
	hit := awaits(t.sprung) && awaits(sprung)
	stop()
	switch {
	case !hit:
		return ""
	case done:
		return "the end of a record: it is written"
	default:
		return "the end of a record: it is being written"
	}
}

// plant makes an instance that no proxy has.
func (m *matrix) plant(fleet, name, zone string) (id int64) {
	m.t.Helper()
	m.orphans++
	return plant(m.t, m.url, fleet, fmt.Sprintf("00000000-0000-4000-8000-%012d", m.orphans), name, zone)
}

// atSweep kills in the middle of a sweep that finds two orphans.
func (m *matrix) atSweep(when moment, method string, hits func(*http.Request, cloud.Spec) bool, hit string) string {
	m.cloud.Heal()
	if m.loose() > 0 {
		m.audit() // else there are so many that the brake holds them
	}
	for range 2 {
		m.plant("kills", fmt.Sprintf("orphan%d", m.orphans), "a")
	}
	<-time.After(2 * minAge) // they are old enough now
	t := newTrap(when, method, m.kill)
	t.hits = hits
	m.gate.arm(t)
	fleet := m.s.client
	go func() { _, _ = fleet.Sweep(m.t.Context()) }() // it dies
	if !awaits(t.sprung) {
		return ""
	}
	return hit
}

// loose returns how many instances of the fleet no proxy holds.
func (m *matrix) loose() int {
	n := 0
	for _, i := range m.cloud.History() {
		planted := strings.HasPrefix(i.Name, "orphan")
		if (planted || m.strays[i.ID]) && i.State(time.Now()) != cloud.Gone {
			n++
		}
	}
	return n
}

// lateOrphan kills at a create that comes true when its proxy is gone for good: what no order of writes can prevent.
func (m *matrix) lateOrphan() string {
	m.calm(m.s)
	m.wanted()
	name := m.pick(false)
	m.proxies[name].declared = true
	return m.late(func() { m.proxies[name].declared = false })
}

// lateStray kills at a create that comes true when its proxy has an instance elsewhere.
func (m *matrix) lateStray() string {
	m.calm(m.s)
	p := m.proxies[m.pick(true)]
	there := p.zone
	p.zone = map[string]string{"a": "b", "b": "a"}[p.zone]
	return m.late(func() { p.zone = there })
}

// late has the world be as it is declared now, kills at the create, takes the declaration back, waits until that is done, and
// lets the create come true.
func (m *matrix) late(back func()) string {
	t := newTrap(late, http.MethodPost, m.kill)
	m.gate.arm(t)
	m.write()
	if !awaits(t.sprung) {
		close(t.release)
		return ""
	}
	back()
	m.write()
	m.start()
	m.calm(m.s.serving())
	close(t.release)
	made, ok := <-t.made
	if !ok {
		m.t.Error("the create did not come true")
	}
	m.strays[made.ID] = true
	m.s.kill()
	m.start()
	m.s.serving()
	m.audit()
	m.s.kill()
	return "a create: it comes true long after, for nobody"
}

// audit lets all calm down, makes one sweep, and looks at each instance that there is.
func (m *matrix) audit() {
	m.t.Helper()
	m.calm(m.s)
	<-time.After(2 * minAge)
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	plan, err := m.s.client.Sweep(ctx)
	if err != nil || len(plan.Providers) != 1 || plan.Providers[0].Braked || plan.Providers[0].Error != "" {
		m.t.Fatalf("the sweep: %+v, %v", plan, err)
	}
	eventually(m.t, func() string { return m.unowned() })
	m.judge()
	for name, id := range m.still {
		if i := m.instance(m.uids[name]); i == nil || i.ID != id || i.State(time.Now()) != cloud.Running {
			m.t.Fatalf("nobody touched %s, whose instance was %d and is %+v", name, id, i)
		}
	}
	for _, i := range m.cloud.History() {
		if slices.Contains(m.foreign, i.ID) && i.State(time.Now()) != cloud.Running {
			m.t.Fatalf("an instance of somebody else is %+v", i)
		}
	}
}

// unowned says which instance of the fleet is not the one of a proxy.
func (m *matrix) unowned() string {
	ports, seen := map[string]int{}, map[string]bool{}
	for _, p := range m.s.list() {
		ports[p.UID] = int(p.Port)
	}
	for _, i := range m.cloud.History() {
		uid := i.Labels["proxyfleet-uid"]
		if i.Labels["proxyfleet-fleet"] != "kills" || i.State(time.Now()) == cloud.Gone {
			continue
		}
		if ports[uid] != i.Port || seen[uid] {
			return fmt.Sprintf("no proxy holds %+v", i)
		}
		seen[uid] = true
	}
	return ""
}
