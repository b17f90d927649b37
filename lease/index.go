package lease

import (
	"container/list"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// index is the lanes of a store.
//
// There is always one of all proxies. Others are made for selectors, and for targets that cool, when without one a request
// would pass over as many proxies as the lane would take to make; where requests pass over few it is left to chance, so that
// one is made after as many in the mean. A lane costs whatever changes one of its proxies, so one that was brought up to date
// more often than its making took, without being used, is dropped. So nobody pays for long what others ask for.
//
// The entries of all lanes together are bounded for each proxy, where a lane counts for emptyLane more than it has; beyond
// that, lanes go that were not used of late.
type index struct {
	bounds  bounds
	all     *lane
	lanes   map[string]*lane // the others, by key
	order   list.List        // of them; those at the back are the next to go
	entries int              // of the others
	sharing map[attribute]*sharing
	cooling map[string]int // how many cooldowns there are of each target
	scratch []byte
}

// bounds are what limits the lanes.
type bounds struct {
	perProxy int // entries for each proxy: an entry takes some hundred bytes
	fewest   int // entries that are allowed in small fleets too
	idle     int // how often a lane is brought up to date at least before it is dropped: that has a price of its own
}

// emptyLane is what a lane takes without any entry, in entries.
const emptyLane = 8

// attribute is one attribute of a proxy. Every proxy has the one that is empty.
type attribute struct{ key, value string }

// sharing is what has an attribute in common: proxies, and lanes whose selectors ask for it. Each lane is part of one of those
// that it could be part of.
type sharing struct {
	members map[*member]struct{}
	lanes   map[*lane]struct{}
}

func newIndex() index {
	return index{
		bounds:  bounds{perProxy: 32, fewest: 1 << 16, idle: 256},
		all:     newLane("", nil, ""),
		lanes:   map[string]*lane{},
		sharing: map[attribute]*sharing{},
		cooling: map[string]int{},
	}
}

// find returns the lane with the fewest proxies that has all those which a request may get, and whether it has no others
// ready.
func (x *index) find(r *Request) (l *lane, exact bool) {
	target := x.special(r.Target)
	if len(r.Selector) == 0 && target == "" {
		return x.all, true
	}
	if l := x.lane(r.Selector, target); l != nil {
		return l, true
	}
	if target != "" && len(r.Selector) > 0 {
		if l := x.lane(r.Selector, ""); l != nil {
			return l, false
		}
	}
	return x.all, false
}

// special returns a target, or none if no proxy cools for it: it finds proxies like any other then.
func (x *index) special(target string) string {
	if x.cooling[target] == 0 {
		return ""
	}
	return target
}

// lane returns the lane of a selector and a target, which is used now, or nil.
func (x *index) lane(selector map[string]string, target string) *lane {
	x.scratch = appendKey(x.scratch[:0], selector, target)
	l := x.lanes[string(x.scratch)]
	if l != nil {
		l.idle, l.used = 0, true
	}
	return l
}

// appendKey appends the key of a lane: one for each selector and target.
func appendKey(b []byte, selector map[string]string, target string) []byte {
	b = appendText(b, target)
	if len(selector) > 1 {
		for _, k := range slices.Sorted(maps.Keys(selector)) {
			b = appendText(appendText(b, k), selector[k])
		}
		return b
	}
	for k, v := range selector { // there is no order to find
		b = appendText(appendText(b, k), v)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(s)), 10), ':'), s...)
}

// narrowest returns the rarest attribute of a selector.
func (x *index) narrowest(selector map[string]string) (rarest attribute) {
	fewest := x.having(rarest)
	for k, v := range selector {
		if a := (attribute{k, v}); x.having(a) <= fewest {
			rarest, fewest = a, x.having(a)
		}
	}
	return rarest
}

// having returns how many proxies have an attribute.
func (x *index) having(a attribute) int {
	if s := x.sharing[a]; s != nil {
		return len(s.members)
	}
	return 0
}

// pays says whether a request that has passed over some proxies is the one to make a lane that takes so many to make.
func pays(passed, making int) bool { return passed > 0 && rand.IntN(making+1) < passed }

// make makes the lane of a selector and a target. It can be used at once, and is kept unless the lanes that are needed leave no
// room for it.
func (x *index) make(selector map[string]string, target string, now time.Time) *lane {
	key := string(appendKey(nil, selector, target))
	l := newLane(key, maps.Clone(selector), target)
	l.shared = x.narrowest(selector)
	s := x.share(l.shared)
	for p := range s.members {
		if p.matches(selector) {
			l.take(p, now)
		}
	}
	s.lanes[l] = struct{}{}
	x.lanes[key] = l
	l.element = x.order.PushFront(l)
	x.entries += len(l.entries) + emptyLane
	x.shrink()
	return l
}

// shrink drops lanes until those that are left are within bounds, or in use by those who wait. One that was used since it was
// last considered is spared once.
func (x *index) shrink() {
	for tries := 2 * x.order.Len(); tries > 0 && x.entries > max(x.bounds.fewest, x.bounds.perProxy*len(x.all.entries)); tries-- {
		l := x.order.Back().Value.(*lane)
		if l.used || l.queues.Len() > 0 {
			l.used = false
			x.order.MoveToFront(l.element)
		} else {
			x.drop(l)
		}
	}
}

// drop drops a lane.
func (x *index) drop(l *lane) {
	delete(x.lanes, l.key)
	x.order.Remove(l.element)
	x.entries -= len(l.entries) + emptyLane
	s := x.sharing[l.shared]
	delete(s.lanes, l)
	x.unshare(l.shared, s)
	for _, e := range l.entries {
		e.proxy.dropEntry(e)
	}
}

// kept says whether a lane is still kept up to date.
func (x *index) kept(l *lane) bool { return l == x.all || x.lanes[l.key] == l }

func (x *index) share(a attribute) *sharing {
	s := x.sharing[a]
	if s == nil {
		s = &sharing{members: map[*member]struct{}{}, lanes: map[*lane]struct{}{}}
		x.sharing[a] = s
	}
	return s
}

func (x *index) unshare(a attribute, s *sharing) {
	if len(s.members) == 0 && len(s.lanes) == 0 {
		delete(x.sharing, a)
	}
}

// place puts a proxy that has become known, or whose attributes have changed, into the lanes that it belongs to.
func (x *index) place(p *member, now time.Time) {
	if p.own.lane != nil {
		x.displace(p)
	}
	p.own = entry{lane: x.all, proxy: p}
	x.all.add(&p.own, now)
	p.attributes = append(p.attributes, attribute{})
	for k, v := range p.candidate.Attributes {
		p.attributes = append(p.attributes, attribute{k, v})
	}
	for _, a := range p.attributes {
		s := x.share(a)
		s.members[p] = struct{}{}
		for l := range s.lanes {
			if p.matches(l.selector) {
				l.take(p, now)
				x.entries++
			}
		}
	}
}

// displace takes a proxy out of all lanes.
func (x *index) displace(p *member) {
	x.all.remove(&p.own)
	for _, e := range p.entries {
		e.lane.remove(e)
	}
	x.entries -= len(p.entries)
	for _, a := range p.attributes {
		s := x.sharing[a]
		delete(s.members, p)
		x.unshare(a, s)
	}
	p.own, p.entries, p.attributes = entry{}, nil, nil
}

// update brings the lanes of a proxy up to date.
func (x *index) update(p *member, now time.Time) {
	if p.own.lane == nil {
		return // it was removed
	}
	x.all.update(&p.own, now)
	var idle *lane
	for _, e := range p.entries {
		l := e.lane
		l.update(e, now)
		if l.idle++; l.idle > max(len(l.entries), x.bounds.idle) && l.queues.Len() == 0 {
			idle = l
		}
	}
	if idle != nil {
		x.drop(idle)
	}
}
