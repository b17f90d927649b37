package walk

import (
	"errors"
	"iter"
	"math/rand/v2"

	"github.com/proxyfleet/fleet/proxy"
)

var errCrash = errors.New("process died")

// process is one running binary: once it died, no effect happens any more.
type process struct {
	left    int // effects until death; negative: never
	dead    bool
	threads []*thread
}

// thread is one line of work in a process. It runs from one effect to the next, so that anything may happen between a read
// and the write or call that follows from it.
type thread struct {
	*process
	rng    *rand.Rand
	yield  func(passed bool) bool
	next   func() (bool, bool)
	stop   func()
	known  knowledge
	asleep int // until this tick
}

// knowledge is what a thread goes by when it makes a call.
type knowledge struct {
	record *proxy.Proxy // after the last successful write
	inputs proxy.Inputs // as last resolved
	failed bool         // or not
}

// spawn starts a thread that makes one pass after another.
func (p *process) spawn(rng *rand.Rand, mk func(*thread) func()) {
	t := &thread{process: p, rng: rng}
	pass := mk(t)
	t.next, t.stop = iter.Pull(func(yield func(bool) bool) {
		t.yield = yield
		for pass(); !t.dead && yield(true); pass() {
		}
	})
	p.threads = append(p.threads, t)
}

// kill ends the process between two effects.
func (p *process) kill() {
	p.dead = true
	for _, t := range p.threads {
		t.stop()
	}
}

// pass runs a thread to the end of its pass.
func (t *thread) pass() {
	for {
		if passed, ok := t.next(); passed || !ok {
			return
		}
	}
}

// effect runs do unless the process died. Anything may happen before it and before its answer is there; the process may die
// just before it, or with the answer under way.
func (t *thread) effect(do func() error) error {
	if !t.pause() {
		return errCrash
	}
	if t.left == 0 {
		t.dead = true
		if t.rng.IntN(2) == 0 {
			_ = do()
		}
		return errCrash
	}
	t.left--
	err := do()
	if !t.pause() {
		return errCrash
	}
	return err
}

// pause lets the walk go on and says whether the process still lives when it comes back.
func (t *thread) pause() bool {
	if !t.dead && !t.yield(false) {
		t.dead = true
	}
	return !t.dead
}
