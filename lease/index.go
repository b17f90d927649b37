package lease

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// index is the lanes of a store.
//
// There is always one of all proxies. Others are made for selectors and targets that would have to pass over many proxies
// otherwise: once a selector, or a selector and a target that cools, has passed over as many proxies as its own lane would
// take to make. A lane costs whatever changes one of its proxies, so one that was brought up to date more often than its
// making took, without being used, is dropped. So nobody pays for long what others ask for, and what is asked for seldom
// costs about what a look at every proxy would.
//
// The entries of all lanes together are bounded by entriesPerProxy for each proxy, where a lane counts for emptyLane more
// than it has; beyond that, the lane that was used longest ago goes.
type index struct {
	all     *lane
	lanes   map[string]*lane // the others, by key
	entries int              // of the others
	debts   map[string]int   // how many proxies were passed over for want of a lane, by key
	cooling map[string]int   // how many cooldowns there are of each target
	stirred []*lane          // those with queues in which a proxy may have come free
	uses    uint64
	scratch []byte
}

const (
	// entriesPerProxy bounds the lanes: an entry takes some hundred bytes.
	entriesPerProxy = 32
	// emptyLane is what a lane takes without any entry, in entries.
	emptyLane = 8
	// fewestEntries are allowed in small fleets too.
	fewestEntries = 1 << 16
	// mostDebts bounds what is remembered of selectors and targets that nobody may ever ask for again.
	mostDebts = 1 << 12
	// leastIdle is for lanes of few proxies: making and dropping one has a price of its own.
	leastIdle = 256
)

func newIndex() index {
	return index{all: newLane("", nil, ""), lanes: map[string]*lane{}, debts: map[string]int{}, cooling: map[string]int{}}
}

// find returns the lane with the fewest proxies that has all those which a request may get, and whether it has no others
// ready. Where it has, want is the key of the lane that has not.
func (x *index) find(r *Request) (l *lane, want string, exact bool) {
	x.uses++
	target := r.Target
	if x.cooling[target] == 0 {
		target = "" // nothing is special about it
	}
	if len(r.Selector) == 0 && target == "" {
		return x.all, "", true
	}
	x.scratch = appendKey(x.scratch[:0], r.Selector, target)
	if l = x.lanes[string(x.scratch)]; l != nil {
		l.used, l.idle = x.uses, 0
		return l, "", true
	}
	want = string(x.scratch)
	if target != "" && len(r.Selector) > 0 {
		x.scratch = appendKey(x.scratch[:0], r.Selector, "")
		if l = x.lanes[string(x.scratch)]; l != nil {
			l.used, l.idle = x.uses, 0
			return l, want, false
		}
	}
	return x.all, want, false
}

// appendKey appends the key of a lane: one for each selector and target.
func appendKey(b []byte, selector map[string]string, target string) []byte {
	b = strconv.AppendQuote(b, target)
	if len(selector) == 1 {
		for k, v := range selector {
			return strconv.AppendQuote(strconv.AppendQuote(b, k), v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		b = strconv.AppendQuote(strconv.AppendQuote(b, k), selector[k])
	}
	return b
}

// owe notes how many proxies a request has passed over for want of a lane, and says whether it is time for one.
func (x *index) owe(key string, passed int) bool {
	if len(x.debts) >= mostDebts {
		clear(x.debts)
	}
	debt := x.debts[key] + passed
	if debt < len(x.all.entries) {
		x.debts[key] = debt
		return false
	}
	delete(x.debts, key)
	return true
}

// make makes a lane of those members that match.
func (x *index) make(key string, selector map[string]string, target string, members map[string]*member, now time.Time) *lane {
	l := newLane(key, maps.Clone(selector), target)
	l.used = x.uses
	for _, p := range members {
		if p.known && p.matches(selector) {
			l.add(p, now)
		}
	}
	x.lanes[key] = l
	x.entries += len(l.entries) + emptyLane
	x.shrink(l)
	return l
}

// shrink drops lanes until those that are left are within bounds. One that is needed stays.
func (x *index) shrink(needed *lane) {
	for x.entries > max(fewestEntries, entriesPerProxy*len(x.all.entries)) {
		var oldest *lane
		for _, l := range x.lanes {
			if l != needed && len(l.queues) == 0 && (oldest == nil || l.used < oldest.used) {
				oldest = l
			}
		}
		if oldest == nil {
			return
		}
		x.drop(oldest)
	}
}

// drop drops a lane.
func (x *index) drop(l *lane) {
	delete(x.lanes, l.key)
	x.entries -= len(l.entries) + emptyLane
	for _, e := range l.entries {
		p := e.proxy
		at := slices.Index(p.entries, e)
		p.entries = slices.Delete(p.entries, at, at+1)
	}
}

// place puts a proxy that has become known, or whose attributes have changed, into the lanes that it belongs to.
func (x *index) place(p *member, now time.Time) {
	x.displace(p)
	x.all.add(p, now)
	for _, l := range x.lanes {
		if p.matches(l.selector) {
			l.add(p, now)
			x.entries++
		}
	}
	for _, e := range p.entries {
		x.stir(e)
	}
}

// stir notes that those who wait for a proxy of a lane may get this one.
func (x *index) stir(e *entry) {
	if l := e.lane; len(l.queues) > 0 && e.obstacle == none && !l.stirred {
		l.stirred = true
		x.stirred = append(x.stirred, l)
	}
}

// displace takes a proxy out of all lanes.
func (x *index) displace(p *member) {
	for _, e := range p.entries {
		e.lane.remove(e)
		if e.lane != x.all {
			x.entries--
		}
	}
	p.entries = nil
}

// update brings the lanes of a proxy up to date.
func (x *index) update(p *member, now time.Time) {
	var idle *lane
	for _, e := range p.entries {
		e.lane.update(e, now)
		x.stir(e)
		e.lane.idle++
		if e.lane.idle > max(len(e.lane.entries), leastIdle) && e.lane != x.all && len(e.lane.queues) == 0 {
			idle = e.lane
		}
	}
	if idle != nil {
		x.drop(idle)
	}
}
