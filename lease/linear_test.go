package lease_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/proxyfleet/fleet/lease"
)

// TestLinearizable makes sure that calls that are made at once have the effects of calls that are made one after the other,
// each at some instant between its call and its return. Time stands still meanwhile, but that those who wait give up when
// nothing else happens any more. Any proxy that is free may be granted: which one is the policy's affair.
func TestLinearizable(t *testing.T) {
	histories, overlapping := max(500, times(t, "WALK", 500)), 0
	for n := 0; n < histories || overlapping < 50 && n < 20*histories; n++ { // on a busy machine few calls are made at once
		var history []porcupine.Operation
		synctest.Test(t, func(t *testing.T) { history = scramble(t, rand.New(rand.NewPCG(4, uint64(n)))) })
		if porcupine.CheckOperationsTimeout(linearModel, history, time.Minute) != porcupine.Ok {
			for _, o := range history {
				t.Logf("client %d, from %d to %d: %s", o.ClientId, o.Call, o.Return, linearModel.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("history %d is not linearizable", n)
		}
		if overlaps(history) {
			overlapping++
		}
	}
	if overlapping < 50 {
		t.Errorf("calls overlap in %d histories only: the test says nothing", overlapping)
	}
}

func overlaps(history []porcupine.Operation) bool {
	for _, a := range history {
		for _, b := range history {
			if a.ClientId != b.ClientId && a.Call < b.Call && b.Call < a.Return {
				return true
			}
		}
	}
	return false
}

// question is one call of a client, and reply what came of it.
type (
	question struct {
		what    string // acquire, renew, release, ban, set, remove
		request lease.Request
		id      string
		proxy   lease.Candidate
	}
	reply struct {
		grant   lease.Grant
		refusal *lease.NoMatch
		err     error
	}
)

// scramble has a few clients use a store at once and returns what they saw.
func scramble(t *testing.T, r *rand.Rand) []porcupine.Operation {
	m := newMemory(t, lease.Config{MaxTTL: 100 * time.Hour, DefaultTTL: 100 * time.Hour, CooldownWindow: 100 * time.Hour})
	const clients, calls = 3, 5
	var (
		clock, ready atomic.Int64
		mu           sync.Mutex
		ids          = []string{"nobody's"}
		history      []porcupine.Operation
		all          sync.WaitGroup
	)
	record := func(o porcupine.Operation) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, o)
		for _, l := range o.Output.(reply).grant.Leases {
			ids = append(ids, l.ID)
		}
	}
	next := func(r *rand.Rand) question {
		mu.Lock()
		defer mu.Unlock()
		return ask(r, ids)
	}
	for range 2 { // proxies to begin with
		q := question{what: "set", proxy: someProxy(r)}
		call := clock.Add(1)
		record(porcupine.Operation{Input: q, Call: call, Output: answerOf(t, m, q), Return: clock.Add(1)})
	}
	for client := range clients {
		r := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		all.Go(func() {
			for ready.Add(1); ready.Load() < clients; {
				runtime.Gosched()
			}
			for range calls {
				q := next(r)
				call := clock.Add(1)
				got := answerOf(t, m, q)
				record(porcupine.Operation{ClientId: client + 1, Input: q, Call: call, Output: got, Return: clock.Add(1)})
			}
		})
	}
	all.Wait()
	return history
}

// someProxy is one of three, in some state.
func someProxy(r *rand.Rand) lease.Candidate {
	p := proxy([]string{"a", "b", "c"}[r.IntN(3)], r.IntN(3))
	p.Healthy = r.IntN(5) > 0
	p.Attributes = map[string]string{"country": []string{"nl", "de"}[r.IntN(2)]}
	return p
}

func ask(r *rand.Rand, ids []string) question {
	id := ids[r.IntN(len(ids))]
	switch r.IntN(10) {
	case 0:
		return question{what: "set", proxy: someProxy(r)}
	case 1:
		return question{what: "remove", proxy: someProxy(r)}
	case 2:
		return question{what: "ban", id: id}
	case 3:
		return question{what: "renew", id: id}
	case 4, 5:
		return question{what: "release", id: id}
	}
	q := question{what: "acquire", request: lease.Request{Target: []string{"shop", "news"}[r.IntN(2)]}}
	if r.IntN(3) == 0 {
		q.request.Selector = map[string]string{"country": []string{"nl", "de"}[r.IntN(2)]}
	}
	if r.IntN(3) == 0 {
		q.request.Session = "session"
	}
	if r.IntN(4) == 0 {
		q.request.Count = 2
	}
	if r.IntN(3) == 0 {
		q.request.Wait = time.Second
	}
	return q
}

func answerOf(t *testing.T, m *lease.Memory, q question) (a reply) {
	switch q.what {
	case "set":
		m.Set(q.proxy)
	case "remove":
		m.Remove(q.proxy.Key)
	case "ban":
		a.err = m.Report(t.Context(), q.id, lease.Report{Outcome: lease.Banned})
	case "renew":
		_, a.err = m.Renew(t.Context(), q.id, 0)
	case "release":
		a.err = m.Release(t.Context(), q.id)
	case "acquire":
		a.grant, a.err = m.Acquire(t.Context(), q.request)
		if none, ok := errors.AsType[*lease.NoMatch](a.err); ok {
			a.refusal, a.err = none, nil
			a.refusal.RetryAfter = 0
		}
	}
	return a
}

// linear is the state of a store at an instant, for those who do not care which proxy they get. It is never changed.
type linear struct {
	proxies map[string]lease.Candidate
	leases  map[string]linearLease
	cooling map[pair]bool
	session string // the key of its proxy
}

type linearLease struct {
	key, target string
	open        bool
}

var linearModel = porcupine.Model{
	Init: func() any { return linear{} },
	Step: func(state, input, output any) (bool, any) {
		s, a := state.(linear), output.(reply)
		ok := s.take(input.(question), a)
		return ok, s
	},
	Equal: func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) },
	DescribeOperation: func(input, output any) string {
		q, a := input.(question), output.(reply)
		return fmt.Sprintf("%s %s %+v %+v: %v %v %v", q.what, q.id, q.request, q.proxy, a.grant, a.refusal, a.err)
	},
}

// with returns a map with one more entry.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	more := maps.Clone(m)
	if more == nil {
		more = map[K]V{}
	}
	more[k] = v
	return more
}

// take says whether a question may be answered like this now, and does what it does.
func (s *linear) take(q question, a reply) bool {
	l, known := s.leases[q.id]
	_, there := s.proxies[l.key]
	switch q.what {
	case "set":
		s.proxies = with(s.proxies, q.proxy.Key, q.proxy)
		return true
	case "remove":
		s.proxies = maps.Clone(s.proxies)
		delete(s.proxies, q.proxy.Key)
		return true
	case "acquire":
		return s.acquired(q.request, a)
	case "ban":
		if known && there {
			s.cooling = with(s.cooling, pair{l.key, l.target}, true)
		}
		return errors.Is(a.err, lease.ErrUnknown) == !known
	case "renew":
		switch {
		case !l.open:
			return errors.Is(a.err, lease.ErrUnknown)
		case !there:
			return errors.Is(a.err, lease.ErrProxyGone)
		}
		return a.err == nil
	}
	if l.open {
		l.open = false
		s.leases = with(s.leases, q.id, l)
	}
	return a.err == nil
}

func (s *linear) acquired(r lease.Request, a reply) bool {
	free := map[string]bool{}
	var refusal lease.NoMatch
	for key, p := range s.proxies {
		if want, ok := r.Selector["country"]; ok && p.Attributes["country"] != want {
			continue
		}
		open := 0
		for _, l := range s.leases {
			if l.key == key && l.open {
				open++
			}
		}
		refusal.Considered++
		switch {
		case !p.Healthy:
			refusal.Unhealthy++
		case open >= p.MaxLeases:
			refusal.AtCapacity++
		case s.cooling[pair{key, r.Target}]:
			refusal.InCooldown++
		default:
			refusal.Eligible++
			free[key] = true
		}
	}
	count := max(1, r.Count)
	if a.refusal != nil {
		return len(free) < count && *a.refusal == refusal
	}
	if a.err != nil || len(a.grant.Leases) != count {
		return false
	}
	first := "default/" + a.grant.Leases[0].Proxy.Name
	if r.Session != "" {
		if free[s.session] && first != s.session || a.grant.Moved != (s.session != "" && first != s.session) {
			return false
		}
		s.session = first
	}
	for _, l := range a.grant.Leases {
		key := "default/" + l.Proxy.Name
		if !free[key] {
			return false
		}
		delete(free, key) // each is another proxy
		s.leases = with(s.leases, l.ID, linearLease{key, r.Target, true})
	}
	return true
}
