package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/cluster"
)

// Of two replicas the one that leads is killed, stopped for longer than it may, or cut off from the API server, wherever something
// is half done. The other one takes over: no instance is doubled, and after one sweep none is without an owner; what nobody
// touches is Ready all the time and keeps its instance; both are read from throughout; leases are granted again within one
// failover, and the log says that the earlier ones are lost.
//
// KILLS is how often, SEED repeats the decisions of an earlier run.
func TestLeaders(t *testing.T) {
	t.Parallel()
	kills := number("KILLS", 8)
	worlds := min(5, max(1, kills/50))
	r := newRealm(t, cluster.Config{})
	total := tally{}
	t.Run("worlds", func(t *testing.T) {
		world := func(name string, points func() []end, times int) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m := newReign(t, r.cluster, name, "--namespace", name, "--gc-allow-namespaced", "--gc-interval", "1h")
				m.begin()
				m.run(points, times)
				total.add(m.counted, len(m.cloud.History()))
				t.Logf("the slowest failover took %v", m.slowest.Round(100*time.Millisecond))
			})
		}
		for n := range worlds {
			world(fmt.Sprintf("killed%d", n), deaths, (kills+worlds-1)/worlds)
		}
		world("cut-off", absences, max(2, kills/10))
	})
	t.Log(total.String())
}

// end is one way in which a leader ends. It returns what was hit, or "" where the point was not reached; then the leader is as it
// was.
type end struct {
	name string
	meet func(*reign) (hit string)
}

// run ends leaders as often as that, and audits the world after every ten times and at the end.
func (m *reign) run(ends func() []end, times int) {
	var due []end
	for n := range times {
		if len(due) == 0 {
			due = ends()
			m.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		}
		next := due[0]
		due = due[1:]
		if m.random.IntN(2) == 0 {
			m.stormy()
		} else {
			m.cloud.Heal()
		}
		hit := next.meet(m)
		m.gate.arm(nil)
		m.hear(nil)
		if hit == "" {
			hit = "not reached in time: " + next.name
		}
		m.counted[hit]++
		if m.t.Failed() {
			m.t.Fatalf("end %d, %s: %s", n, next.name, hit)
		}
		m.judge()
		if n%10 == 9 || n == times-1 {
			m.audit()
		}
	}
}

// deaths are the points at which leaders are killed.
func deaths() []end {
	all := []end{
		{"a random moment", (*reign).atRandom},
		{"a random moment", (*reign).atRandom},
		{"the first seconds of a term", (*reign).atStart},
		{"the first seconds of a term", (*reign).atStart},
	}
	for when, how := range []string{before: "sent, and never done", during: "sent, and done when the leader was dead", after: "done, and not answered"} {
		for _, call := range []struct{ name, method string }{{"a create", http.MethodPost}, {"a delete", http.MethodDelete}} {
			all = append(all, end{call.name, func(m *reign) string {
				return m.killed(m.atCall(moment(when), call.method, call.name+": "+how, (*replica).fell))
			}})
		}
	}
	for n := range 5 {
		all = append(all,
			end{"a write", func(m *reign) string { m.wanted(); return m.atWrite(n+1, "declared", m.pick(false), m.declare) }},
			end{"a write", func(m *reign) string { return m.atWrite(n+1, "moved", m.pick(true), m.move) }})
	}
	for n := range 2 {
		all = append(all, end{"a write", func(m *reign) string {
			m.spared()
			return m.atWrite(n+1, "deleted", m.pick(true), m.undeclare)
		}})
	}
	return all
}

// absences are the ways in which leaders cannot lead, and live.
func absences() []end {
	atRandom := func(m *reign, act func(*replica)) *replica {
		leader, _ := m.leader()
		for range m.random.IntN(4) {
			m.stir()
			<-time.After(m.moment(300 * time.Millisecond))
		}
		act(leader)
		return leader
	}
	var all []end
	for what, absence := range map[string]struct{ leave, back func(*replica) }{
		"stopped": {(*replica).stop, (*replica).resume},
		"cut off": {func(r *replica) { r.way.Cut() }, func(r *replica) { r.way.Mend() }},
		"frozen":  {func(r *replica) { r.way.Freeze() }, func(r *replica) { r.way.Mend() }},
	} {
		all = append(all,
			end{what, func(m *reign) string {
				return m.away(atRandom(m, absence.leave), absence.back, what+" at a random moment")
			}},
			end{what, func(m *reign) string {
				gone, hit := m.atCall(after, http.MethodPost, what+" when a create is done", absence.leave)
				return m.away(gone, absence.back, hit)
			}},
			end{what, func(m *reign) string {
				gone, hit := m.atCall(after, http.MethodDelete, what+" when a delete is done", absence.leave)
				return m.away(gone, absence.back, hit)
			}})
	}
	return append(all, end{"cut off", func(m *reign) string {
		leader := atRandom(m, func(r *replica) { r.way.Cut() })
		<-time.After(m.moment(4 * time.Second))
		leader.way.Mend()
		m.calm(leader)
		if now, _ := m.leader(); now != leader {
			m.t.Error("a leader that is cut off for a moment leads no more")
		}
		return "cut off for less than 4s: the term goes on"
	}})
}

// stop stops a process, which does not know it.
func (r *replica) stop() {
	r.dying.Store(true)
	r.signal(syscall.SIGSTOP)
}

// resume has it go on.
func (r *replica) resume() { r.signal(syscall.SIGCONT) }

// killed has the other replica take over from a leader that is dead, and starts another one in its place. Where none was killed,
// hit is "".
func (m *reign) killed(dead *replica, hit string) string {
	m.t.Helper()
	if hit == "" {
		return ""
	}
	if m.random.IntN(8) != 0 {
		m.free()
	}
	m.launch(dead.way)
	m.succeeded(dead)
	m.join(dead.way)
	return hit
}

// other returns the other replica.
func (m *reign) other(r *replica) *replica {
	if m.ways[0] == r.way {
		return m.ways[1].replica
	}
	return m.ways[0].replica
}

func (m *reign) atRandom() string {
	leader, _ := m.leader()
	for range m.random.IntN(6) {
		m.spared()
		m.stir()
		<-time.After(m.moment(300 * time.Millisecond))
	}
	leader.fell()
	return m.killed(leader, "at a random moment")
}

// atStart kills a leader, and the next one as soon as it leads, or soon after.
func (m *reign) atStart() string {
	leader, next := m.leader()
	leader.fell()
	m.stir()
	m.free()
	m.launch(leader.way)
	m.join(leader.way)
	eventually(m.t, func() string {
		if !next.leads() && !leader.way.replica.leads() {
			return "nobody leads"
		}
		return ""
	})
	if !next.leads() {
		next = leader.way.replica
	}
	m.stir()
	<-time.After(m.moment(time.Second))
	next.fell()
	m.counted["on the way to the first second of a term"]++
	return m.killed(next, "in the first second of a term")
}

// atCall ends a leader at a call of the cloud.
func (m *reign) atCall(when moment, method, hit string, act func(*replica)) (ended *replica, met string) {
	m.t.Helper()
	leader, _ := m.leader()
	t := newTrap(when, method, func() { act(leader) })
	m.gate.arm(t)
	m.move(m.pick(true))
	if !awaits(t.sprung) {
		return nil, ""
	}
	return leader, hit
}

// atWrite kills a leader when the n-th change of a proxy that follows a request is stored.
func (m *reign) atWrite(n int, what, name string, request func(string)) string {
	m.t.Helper()
	leader, _ := m.leader()
	sprung := make(chan struct{})
	spring := sync.OnceFunc(func() {
		leader.fell()
		close(sprung)
	})
	count := 0
	m.hear(func(changed string) {
		if changed != name {
			return
		}
		if count++; count > n { // the request itself is the first
			spring()
		}
	})
	request(name)
	if !awaits(sprung) {
		return ""
	}
	return m.killed(leader, fmt.Sprintf("write %d of a proxy that is %s", n, what))
}

// away has the other replica take over from a leader that lives and does not lead, lets that come back, and sees it follow.
func (m *reign) away(gone *replica, back func(*replica), hit string) string {
	m.t.Helper()
	if hit == "" {
		return ""
	}
	m.succeeded(gone)
	for range m.random.IntN(4) {
		m.stir()
	}
	<-time.After(m.moment(2 * time.Second))
	back(gone)
	eventually(m.t, func() string {
		if !strings.Contains(gone.lastOfTerms(), "leads no more") {
			return "a leader that was away leads on"
		}
		return ""
	})
	if over, began := gone.log.find("this replica leads no more", "time"), m.other(gone).log.find("this replica leads", "time"); !gone.dying.Load() && over >= began {
		m.t.Errorf("a term began at %s, and the one before ended at %s", began, over)
	}
	eventually(m.t, gone.ready)
	m.leases(gone)
	if gone.dying.CompareAndSwap(true, false) {
		m.readers.Go(func() { m.read(gone) })
	}
	return hit
}
