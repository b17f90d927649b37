package lease

import (
	"cmp"
	"iter"
	"slices"
)

// runLength is how long a run of a ranking may become before it is cut in two.
const runLength = 128

// ranking is the proxies that are known, in the order in which they are offered. The order is cut into sorted runs, none
// of them empty, so that a change moves the proxies of one run and not those of the whole fleet.
type ranking struct{ runs [][]*member }

// all returns the proxies in order. Whoever changes the place of one must stop there.
func (r *ranking) all() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, run := range r.runs {
			for _, p := range run {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// find returns the place of a proxy, or the place where it belongs. There must be a run.
func (r *ranking) find(p *member) (run, at int) {
	run, _ = slices.BinarySearchFunc(r.runs, p, func(run []*member, p *member) int { return run[len(run)-1].compare(p) })
	run = min(run, len(r.runs)-1) // whoever comes after all others belongs at the end of the last run
	at, _ = slices.BinarySearchFunc(r.runs[run], p, (*member).compare)
	return run, at
}

func (r *ranking) insert(p *member) {
	if len(r.runs) == 0 {
		r.runs = [][]*member{{p}}
		return
	}
	run, at := r.find(p)
	whole := slices.Insert(r.runs[run], at, p)
	r.runs[run] = whole
	if len(whole) > runLength {
		half := len(whole) / 2
		r.runs = slices.Insert(r.runs, run+1, slices.Clone(whole[half:]))
		r.runs[run] = slices.Delete(whole, half, len(whole))
	}
}

func (r *ranking) remove(p *member) {
	run, at := r.find(p)
	r.runs[run] = slices.Delete(r.runs[run], at, at+1)
	if len(r.runs[run]) == 0 {
		r.runs = slices.Delete(r.runs, run, run+1)
	}
}

// compare says which of two proxies is offered first.
func (p *member) compare(other *member) int {
	return cmp.Or(p.rank.compare(other.rank), cmp.Compare(p.candidate.Key, other.candidate.Key))
}
