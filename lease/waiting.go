package lease

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"time"
)

// waiting is the requests that wait for a proxy.
type waiting struct {
	queues  map[string]*queue
	count   int
	tickets uint64
	byID    map[string][]*waiter
	alarm   *time.Timer // rings when something changes by itself; runs only while somebody waits
	rings   time.Time
}

// queue is the requests that wait for the same, first come, first served.
type queue struct {
	key     string
	lane    *lane // of the selector: whoever comes free does so there
	waiters list.List
}

func (q *queue) head() *waiter { return q.waiters.Front().Value.(*waiter) }

// waiter is one of them.
type waiter struct {
	request Request
	ticket  uint64
	queue   *queue
	place   *list.Element
	answer  chan answer // has room for the one that it gets, so that nobody who holds the lock waits for it
}

// answer is what a request gets. Whoever asked waits for the log.
type answer struct {
	grant Grant
	err   error
}

// enqueue makes a request wait behind all others that ask for the same.
func (m *Memory) enqueue(r Request, now time.Time) *waiter {
	key := string(appendKey(strconv.AppendInt(nil, int64(r.count()), 10), r.Selector, r.Target))
	q := m.waiting.queues[key]
	if q == nil {
		q = &queue{key: key, lane: m.laneOf(r.Selector, now)}
		m.waiting.queues[key] = q
		if q.lane.queues == nil {
			q.lane.queues = map[string]*queue{}
		}
		q.lane.queues[key] = q
	}
	m.waiting.tickets++
	w := &waiter{request: r, ticket: m.waiting.tickets, queue: q, answer: make(chan answer, 1)}
	w.place = q.waiters.PushBack(w)
	m.waiting.count++
	if r.ID != "" {
		m.waiting.byID[r.ID] = append(m.waiting.byID[r.ID], w)
	}
	return w
}

// laneOf returns the lane of a selector, which is made if there is none.
func (m *Memory) laneOf(selector map[string]string, now time.Time) *lane {
	l, want, exact := m.index.find(&Request{Selector: selector})
	if exact {
		return l
	}
	return m.index.make(want, selector, "", m.members, now)
}

// leave takes a request from its queue.
func (m *Memory) leave(w *waiter) {
	q := w.queue
	q.waiters.Remove(w.place)
	m.waiting.count--
	if q.waiters.Len() == 0 {
		delete(m.waiting.queues, q.key)
		delete(q.lane.queues, q.key)
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

// serve offers what has come free to those who wait for it, and sees to it that the next change is noticed.
func (m *Memory) serve(now time.Time) {
	for len(m.index.stirred) > 0 {
		for _, q := range m.stirred() {
			if q.waiters.Len() > 0 && len(q.lane.ready) > 0 {
				m.offer(q.head(), now)
			}
		}
	}
	m.setAlarm(now)
}

// stirred returns the queues of the lanes in which a proxy may have come free since it was last asked, those that have
// waited longest in front.
func (m *Memory) stirred() []*queue {
	var queues []*queue
	for _, l := range m.index.stirred {
		l.stirred = false
		for _, q := range l.queues {
			queues = append(queues, q)
		}
	}
	m.index.stirred = m.index.stirred[:0]
	slices.SortFunc(queues, func(a, b *queue) int {
		if a.head().ticket < b.head().ticket {
			return -1
		}
		return 1
	})
	return queues
}

// offer answers a request that waits, if it can be granted now.
func (m *Memory) offer(w *waiter, now time.Time) {
	a, refusal := m.acquire(&w.request, now)
	if refusal != nil {
		return
	}
	m.give(w, a)
	m.answerOthers(w.request.ID, now)
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
