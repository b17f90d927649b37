package lease

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"
)

// waiting is the requests that wait for a proxy.
type waiting struct {
	queues  map[string]*queue
	count   int
	byID    map[string][]*waiter
	latest  time.Time   // since when the one that came last waits
	stirred []*member   // what may have come free since they were asked
	alarm   *time.Timer // rings when something changes by itself; runs only while somebody waits
	rings   time.Time
}

// queue is the requests that wait for the same, first come, first served. Its lane is that of the selector, where whoever
// comes free does so, or the one of all proxies if there is no room for more lanes.
type queue struct {
	key      string
	selector map[string]string
	target   string
	lane     *lane
	slot     int // its place among the queues of the lane
	waiters  list.List
}

func (q *queue) head() *waiter  { return q.waiters.Front().Value.(*waiter) }
func (q *queue) due() time.Time { return q.head().since }
func (q *queue) place() *int    { return &q.slot }

// waiter is one of them.
type waiter struct {
	request Request
	since   time.Time
	queue   *queue
	place   *list.Element
	answer  chan answer // has room for the one that it gets, so that nobody who holds the lock waits for it
}

// answer is what a request gets. Whoever asked waits for the log.
type answer struct {
	grant Grant
	was   *session // the session of the request before it was granted, if it has one
	err   error
}

// enqueue makes a request wait behind all others that ask for the same.
func (m *Memory) enqueue(r Request, now time.Time) *waiter {
	key := string(appendKey(append(strconv.AppendInt(nil, int64(r.count()), 10), '/'), r.Selector, r.Target))
	q := m.waiting.queues[key]
	if q == nil {
		q = &queue{key: key, selector: maps.Clone(r.Selector), target: r.Target, lane: m.index.all}
		m.waiting.queues[key] = q
		if len(q.selector) > 0 {
			if q.lane = m.index.lane(q.selector, ""); q.lane == nil {
				q.lane = m.index.make(q.selector, "", now)
			}
		}
	}
	m.waiting.latest = later(now, m.waiting.latest.Add(1)) // no two wait equally long
	w := &waiter{request: r, since: m.waiting.latest, queue: q, answer: make(chan answer, 1)}
	w.request.Selector = q.selector // the caller may change its own
	w.place = q.waiters.PushBack(w)
	m.attach(q)
	m.waiting.count++
	if r.ID != "" {
		m.waiting.byID[r.ID] = append(m.waiting.byID[r.ID], w)
	}
	return w
}

// attach has those who wait in a queue asked when a proxy of its lane comes free.
func (m *Memory) attach(q *queue) {
	if !m.index.kept(q.lane) {
		q.lane = m.index.all
	}
	q.lane.queues.put(q)
}

// leave takes a request from its queue.
func (m *Memory) leave(w *waiter) {
	q := w.queue
	q.waiters.Remove(w.place)
	m.waiting.count--
	if q.waiters.Len() > 0 {
		m.attach(q) // where the next one's turn is
	} else {
		delete(m.waiting.queues, q.key)
		q.lane.queues.drop(q)
	}
	if id := w.request.ID; id != "" {
		others := slices.DeleteFunc(m.waiting.byID[id], func(other *waiter) bool { return other == w })
		if m.waiting.byID[id] = others; len(others) == 0 {
			delete(m.waiting.byID, id)
		}
	}
}

// give answers a request that waits.
func (m *Memory) give(w *waiter, a answer) {
	m.leave(w)
	m.flush() // it waits for what it was given
	w.answer <- a
}

// freed notes that a proxy may have come free. Nothing else lets a request be granted that was refused.
func (m *Memory) freed(p *member) {
	if m.waiting.count > 0 && !p.stirred {
		p.stirred = true
		m.waiting.stirred = append(m.waiting.stirred, p)
	}
}

// serve offers what has come free to those who wait for it, and sees to it that the next change is noticed.
func (m *Memory) serve(now time.Time) {
	for last := len(m.waiting.stirred) - 1; last >= 0; last = len(m.waiting.stirred) - 1 {
		p := m.waiting.stirred[last]
		m.waiting.stirred = m.waiting.stirred[:last]
		p.stirred = false
		m.offerTo(p, now)
	}
	m.setAlarm(now)
}

// offerTo offers a proxy to the queues of its lanes, the one whose first has waited longest in front, for as long as it is free.
func (m *Memory) offerTo(p *member, now time.Time) {
	var refused []*queue
	for p.isFree("", now) {
		q := m.longest(p)
		if q == nil {
			break
		}
		w := q.head()
		if p.matches(q.selector) && p.isFree(q.target, now) && m.offer(w, now) {
			m.answerOthers(w.request.ID, now)
			continue
		}
		q.lane.queues.drop(q)
		refused = append(refused, q)
	}
	for _, q := range refused {
		if q.waiters.Len() > 0 {
			m.attach(q)
		}
	}
}

// longest returns the queue whose first has waited longest for a proxy, or nil.
func (m *Memory) longest(p *member) *queue {
	longest, _ := m.index.all.queues.first()
	for _, e := range p.entries {
		if q, ok := e.lane.queues.first(); ok && (longest == nil || q.due().Before(longest.due())) {
			longest = q
		}
	}
	return longest
}

// offer answers a request that waits, if it can be granted now.
func (m *Memory) offer(w *waiter, now time.Time) bool {
	a, refusal := m.acquire(&w.request, now)
	if refusal != nil {
		return false
	}
	m.give(w, a)
	return true
}

// answerOthers answers everybody who waits with the ID of a request that was granted: it is the same request, sent again
// because an answer was late.
func (m *Memory) answerOthers(id string, now time.Time) {
	for _, w := range slices.Clone(m.waiting.byID[id]) {
		m.offer(w, now)
	}
}

// setAlarm has the store look for changes by itself when the next one is due and somebody waits.
func (m *Memory) setAlarm(now time.Time) {
	if m.waiting.count == 0 {
		if m.waiting.alarm != nil {
			m.waiting.alarm.Stop()
			m.waiting.alarm = nil
		}
		return
	}
	next, ok := m.nextChange()
	switch {
	case !ok || m.waiting.alarm != nil && next.Equal(m.waiting.rings):
		return
	case m.waiting.alarm == nil:
		m.waiting.alarm = time.AfterFunc(next.Sub(now), m.ring)
	default:
		m.waiting.alarm.Reset(next.Sub(now))
	}
	m.waiting.rings = next
}

func (m *Memory) nextChange() (next time.Time, ok bool) {
	if h := m.expiry.first(); h != nil {
		next, ok = h.expires, true
	}
	if c, found := m.changing.first(); found && (!ok || c.change.Before(next)) {
		next, ok = c.change, true
	}
	return next, ok
}

func (m *Memory) ring() {
	m.mu.Lock()
	defer m.unlock()
	m.waiting.rings = time.Time{} // this alarm is over
	m.advance()
}

// await waits for the answer to a request.
func (m *Memory) await(ctx context.Context, w *waiter) answer {
	begun := time.Now()
	enough := time.NewTimer(w.request.Wait)
	defer enough.Stop()
	var a answer
	select {
	case a = <-w.answer:
	case <-ctx.Done():
		a = m.giveUp(w, ctx.Err())
	case <-enough.C:
		a = m.giveUp(w, nil)
	}
	m.config.Recorder.LeaseWaited(time.Since(begun))
	return a
}

// giveUp ends the wait of a request, unless it was answered in the same moment. Without an error the answer says why
// nothing was granted.
func (m *Memory) giveUp(w *waiter, err error) answer {
	m.mu.Lock()
	defer m.unlock()
	now := m.advance()
	select {
	case a := <-w.answer:
		return a
	default:
	}
	m.leave(w)
	if err != nil {
		return answer{err: err}
	}
	a, refusal := m.acquire(&w.request, now)
	if refusal != nil {
		m.config.Recorder.LeaseRefused(refusal.reason())
		return answer{err: refusal}
	}
	return a
}
