package lease

import (
	"container/list"
	"time"
)

// lane is the proxies that match a selector, as a target finds them: those that are ready in the order in which they are
// offered, the others by when they come free, and how many each obstacle keeps.
type lane struct {
	key      string
	selector map[string]string
	target   string
	entries  []*entry
	ready    []place          // a heap with four children to each place
	at       []int32          // where in ready each entry is, from 1; 0 for nowhere
	blocked  timeline[*entry] // those of which it is known when they come free
	kept     [obstacles]int   // how many each obstacle keeps
	queues   timeline[*queue] // of those who wait for a proxy of the lane, whoever waits longest in front

	shared  attribute     // in whose sharing it is
	element *list.Element // its place among those that may have to go
	used    bool          // since it was last considered for that
	idle    int           // how often it was brought up to date since it was used
}

// place is one place of the heap. The rank is here too, and where an entry is in the heap is not with the entry, because in a
// large fleet most of the time goes into fetching what is far apart in memory.
type place struct {
	rank  Rank
	index int32 // of the entry
}

// entry is a proxy in a lane.
type entry struct {
	lane     *lane
	proxy    *member
	obstacle obstacle
	index    int       // its place among the entries of the lane
	mine     int       // its place among those of the proxy
	free     time.Time // when it comes free, if that is known
	slot     int       // its place in blocked
}

func (e *entry) due() time.Time { return e.free }
func (e *entry) place() *int    { return &e.slot }

func newLane(key string, selector map[string]string, target string) *lane {
	return &lane{key: key, selector: selector, target: target}
}

// take makes a proxy part of the lane.
func (l *lane) take(p *member, now time.Time) {
	e := &entry{lane: l, proxy: p, mine: len(p.entries)}
	p.entries = append(p.entries, e)
	l.add(e, now)
}

// add takes an entry in.
func (l *lane) add(e *entry, now time.Time) {
	e.index, e.obstacle = len(l.entries), unhealthy
	l.entries = append(l.entries, e)
	l.at = append(l.at, 0)
	l.kept[unhealthy]++
	l.update(e, now)
}

// remove takes an entry out.
func (l *lane) remove(e *entry) {
	l.kept[e.obstacle]--
	l.unready(e)
	l.blocked.drop(e)
	end := len(l.entries) - 1
	last := l.entries[end]
	l.entries[e.index], l.at[e.index] = last, l.at[end]
	last.index = e.index
	if at := l.at[e.index]; at > 0 {
		l.ready[at-1].index = int32(e.index)
	}
	l.entries[end] = nil
	l.entries, l.at = l.entries[:end], l.at[:end]
}

// update restores what follows from the state of a proxy.
func (l *lane) update(e *entry, now time.Time) {
	o, free := e.proxy.obstacle(l.target, now)
	l.kept[e.obstacle]--
	l.kept[o]++
	e.obstacle = o
	if o == none {
		l.blocked.drop(e)
		l.settle(e)
		return
	}
	l.unready(e)
	if e.free = free; free.IsZero() {
		l.blocked.drop(e)
	} else {
		l.blocked.put(e)
	}
}

// refusal says why the lane has no proxy to offer, or too few.
func (l *lane) refusal(now time.Time) *NoMatch {
	e := &NoMatch{Considered: len(l.entries), Unhealthy: l.kept[unhealthy], AtCapacity: l.kept[atCapacity],
		InCooldown: l.kept[inCooldown], Eligible: l.kept[none]}
	if first, ok := l.blocked.first(); ok {
		e.RetryAfter = first.free.Sub(now)
	}
	return e
}

// border goes through the proxies of a lane that are ready, in order. Nothing of the lane must change meanwhile.
type border struct {
	lane   *lane
	places []int // a heap of those whose parents have all been passed: the next one in order is among them
	last   int   // the place that was passed last, whose children are not among them yet; -1 for none
}

// begin goes back to the first proxy of a lane.
func (b *border) begin(l *lane) {
	b.lane, b.last = l, -1
	b.places = append(b.places[:0], 0)[:min(1, len(l.ready))]
}

// next returns the next proxy, or nil.
func (b *border) next() *member {
	if b.last >= 0 {
		b.open(b.last)
	}
	if len(b.places) == 0 {
		return nil
	}
	b.last = b.pop()
	return b.lane.proxy(b.lane.ready[b.last])
}

// open adds the children of a place.
func (b *border) open(at int) {
	for child := 4*at + 1; child <= 4*at+4 && child < len(b.lane.ready); child++ {
		b.places = append(b.places, child)
		i := len(b.places) - 1
		for ; i > 0 && b.before(child, b.places[(i-1)/2]); i = (i - 1) / 2 {
			b.places[i] = b.places[(i-1)/2]
		}
		b.places[i] = child
	}
}

// pop takes out the first place in order.
func (b *border) pop() int {
	first := b.places[0]
	last := len(b.places) - 1
	moved := b.places[last]
	b.places = b.places[:last]
	i := 0
	for child := 1; child < last; child = 2*i + 1 {
		if child+1 < last && b.before(b.places[child+1], b.places[child]) {
			child++
		}
		if !b.before(b.places[child], moved) {
			break
		}
		b.places[i] = b.places[child]
		i = child
	}
	if last > 0 {
		b.places[i] = moved
	}
	return first
}

func (b *border) before(i, j int) bool { return b.lane.before(b.lane.ready[i], b.lane.ready[j]) }

func (l *lane) proxy(p place) *member { return l.entries[p.index].proxy }

// settle gives a proxy its place among those that are ready.
func (l *lane) settle(e *entry) {
	this := place{e.proxy.rank, int32(e.index)}
	at := int(l.at[e.index]) - 1
	if at < 0 {
		at = len(l.ready)
		l.ready = append(l.ready, this)
	}
	l.sift(at, this)
}

// unready takes a proxy from those that are ready, if it is there.
func (l *lane) unready(e *entry) {
	at := int(l.at[e.index]) - 1
	if at < 0 {
		return
	}
	l.at[e.index] = 0
	last := len(l.ready) - 1
	moved := l.ready[last]
	l.ready = l.ready[:last]
	if at < last {
		l.sift(at, moved)
	}
}

// sift finds the place of a proxy, beginning at one that is free for it.
func (l *lane) sift(at int, this place) {
	for at > 0 && l.before(this, l.ready[(at-1)/4]) {
		l.set(at, l.ready[(at-1)/4])
		at = (at - 1) / 4
	}
	for 4*at+1 < len(l.ready) {
		child := l.least(4*at + 1)
		if !l.before(l.ready[child], this) {
			break
		}
		l.set(at, l.ready[child])
		at = child
	}
	l.set(at, this)
}

// least returns which of up to four neighbours comes first.
func (l *lane) least(from int) int {
	best := from
	for i := from + 1; i < from+4 && i < len(l.ready); i++ {
		if l.before(l.ready[i], l.ready[best]) {
			best = i
		}
	}
	return best
}

func (l *lane) set(at int, this place) {
	l.ready[at] = this
	l.at[this.index] = int32(at + 1)
}

func (l *lane) before(p, other place) bool {
	switch {
	case p.rank.A != other.rank.A:
		return p.rank.A < other.rank.A
	case p.rank.B != other.rank.B:
		return p.rank.B < other.rank.B
	}
	return l.proxy(p).candidate.Key < l.proxy(other).candidate.Key
}
