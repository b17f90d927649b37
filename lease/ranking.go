package lease

import (
	"cmp"
	"slices"
)

// ranking is the proxies that are known, in the order in which they are offered. It is a sorted slice: a change moves the
// pointers between the old place and the new one, which is cheap for a fleet of thousands, and a search for the first
// proxy that may be granted mostly ends where it begins.
type ranking []*member

// search returns the place of a proxy with that rank and key, or the place where it belongs.
func (r ranking) search(rank Rank, key string) int {
	at, _ := slices.BinarySearchFunc(r, rank, func(p *member, rank Rank) int {
		return cmp.Or(p.rank.compare(rank), cmp.Compare(p.candidate.Key, key))
	})
	return at
}

func (r *ranking) insert(p *member) {
	*r = slices.Insert(*r, r.search(p.rank, p.candidate.Key), p)
}

func (r *ranking) remove(p *member) {
	at := r.search(p.rank, p.candidate.Key)
	*r = slices.Delete(*r, at, at+1)
}

// move gives a proxy another rank.
func (r ranking) move(p *member, rank Rank) {
	from, to := r.search(p.rank, p.candidate.Key), r.search(rank, p.candidate.Key)
	if from < to {
		to-- // its own old place is before the new one
		copy(r[from:to], r[from+1:to+1])
	} else {
		copy(r[to+1:from+1], r[to:from])
	}
	r[to], p.rank = p, rank
}
