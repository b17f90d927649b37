package health

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"
)

// entry is a target that the engine knows. It is in the schedule or being probed, never both, which is why no target is
// ever probed twice at once.
type entry struct {
	target   Target
	standing standing
	history  history
	due      time.Time // of the next probe
	index    int       // in the schedule
	probe    *probe    // the one under way, or nil
	hurried  bool      // during the probe under way, another one was asked for
	removed  bool      // during the probe under way; the entry goes when the probe ends
}

// probe is a probe under way.
type probe struct {
	entry     *entry
	target    Target // as it was at the start
	started   time.Time
	cancel    context.CancelFunc
	abandoned bool // its result is of no use any more
}

// abandon voids the probe under way, if there is one.
func (e *entry) abandon() {
	if e.probe != nil {
		e.probe.abandoned = true
		e.probe.cancel()
	}
}

// begin starts the entry afresh with a target of which nothing is known but, perhaps, a seed.
func (e *entry) begin(t Target, seed Verdict, now time.Time) {
	e.abandon()
	e.standing = seeded(seed, t.SeedLatency)
	e.history = history{}
	e.hurried, e.removed = false, false
	e.due = now
	if seed != Unknown {
		e.due = now.Add(rand.N(t.Interval))
	}
	e.update(t, now)
}

// update takes over the parameters of the target. A shorter interval takes effect at once.
func (e *entry) update(t Target, now time.Time) {
	e.target = t
	e.standing.successThreshold = t.SuccessThreshold
	e.standing.failureThreshold = t.FailureThreshold
	if latest := now.Add(t.Interval); e.due.After(latest) {
		e.due = latest
	}
}

// follow sets when the probe after the one that started then is due: one interval later, less up to a tenth. Without the
// tenth, targets that were set together would be probed together for ever.
func (e *entry) follow(started time.Time) {
	interval := e.target.Interval
	e.due = started.Add(interval - rand.N(interval/10+1))
}

// schedule holds the entries that wait for their next probe, the one due first in front. Only its first element is looked
// at per tick, so that the work follows what is due and not the size of the fleet. It implements [heap.Interface].
type schedule []*entry

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push is for package heap.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.index = len(*s)
	*s = append(*s, e)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return e
}

// first returns the entry that is due first, or nil.
func (s schedule) first() *entry {
	if len(s) == 0 {
		return nil
	}
	return s[0]
}

// next takes the first entry out if it is due.
func (s *schedule) next(now time.Time) *entry {
	if e := s.first(); e == nil || e.due.After(now) {
		return nil
	}
	return heap.Pop(s).(*entry)
}

func (s *schedule) add(e *entry)    { heap.Push(s, e) }
func (s *schedule) remove(e *entry) { heap.Remove(s, e.index) }
func (s *schedule) moved(e *entry)  { heap.Fix(s, e.index) }
