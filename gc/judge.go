package gc

import (
	"cmp"
	"slices"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// judge decides about the instances of one provider by the records.
type judge struct {
	fleet    string
	provider string
	youngest time.Time // what was made later is too young
	records  map[string]Held
}

// verdict decides about an instance.
func (j judge) verdict(in provider.Instance) Verdict {
	v := Verdict{ID: in.ID, Incarnation: in.Incarnation, UID: in.Marks.UID, Created: in.Created, Action: Keep}
	switch {
	case in.Marks.Fleet != j.fleet:
		v.Reason = OtherFleet
		return v
	case v.UID == "":
		v.Reason = NoUID
		return v
	}
	v.Reason, v.Key = j.claim(v)
	switch {
	case !v.Reason.unclaimed():
	case in.State == provider.Terminating:
		v.Reason = Terminating
	case v.Incarnation == "":
		v.Reason = NoIncarnation
	case v.Created.IsZero():
		v.Reason = UnknownAge
	case v.Created.After(j.youngest):
		v.Reason = TooYoung
	default:
		v.Action = Delete
	}
	return v
}

// claim says whether the record of an instance's UID holds it, and the key of that record.
//
// A record owns whatever has the ID of its status at the provider of its status, of any incarnation: that is what the
// reconciler finds when it looks, and no two instances have one ID. It also owns the incarnation of its status under any
// name, for two providers of the configuration may lead to the same backend. All else is a stray, but only once the record
// has seen its instance: until then it may be about to meet this one.
func (j judge) claim(v Verdict) (Reason, string) {
	held, known := j.records[v.UID]
	switch {
	case !known:
		return Orphan, ""
	case held.Deleting:
		return BeingDeleted, held.Key
	case held.External && held.ID == "":
		return Stray, held.Key
	case held.Provider == j.provider && held.ID == v.ID:
		return Live, held.Key
	case held.ID == "" || held.Incarnation == "":
		return NoInstanceYet, held.Key
	case held.Incarnation == v.Incarnation:
		return Live, held.Key
	}
	return Stray, held.Key
}

// verdicts decides about what a provider listed, in the order of IDs. What it listed twice has one verdict, for a list that
// grows by its repetitions would make any number of deletions a small part of it. Where two entries of one incarnation
// differ, the one that keeps it counts.
func (j judge) verdicts(list []provider.Instance) []Verdict {
	var all []Verdict
	for _, in := range list {
		all = append(all, j.verdict(in))
	}
	slices.SortStableFunc(all, func(a, b Verdict) int {
		keepFirst := cmp.Compare(b.Action, a.Action)
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Incarnation, b.Incarnation), keepFirst)
	})
	return slices.CompactFunc(all, func(a, b Verdict) bool { return a.ID == b.ID && a.Incarnation == b.Incarnation })
}

// unclaimed says whether the reason is that of an instance which no record holds.
func (r Reason) unclaimed() bool { return r == Orphan || r == Stray }

// The brake lets so much of what a provider has go in one sweep; more than both is held back.
const (
	freeDeletions = 3
	freePercent   = 20
)

// brake holds all deletions back when they are too many and not allowed. Wrong records make many orphans at once; a crash
// makes few.
func (p *ProviderPlan) brake() {
	n := p.count(Delete)
	if n <= freeDeletions || n*100 <= p.Listed*freePercent || n <= p.Allowed {
		return
	}
	p.Braked = true
	for i := range p.Instances {
		if p.Instances[i].Action == Delete {
			p.Instances[i].Action = Hold
		}
	}
}

func (p *ProviderPlan) count(a Action) int {
	n := 0
	for _, v := range p.Instances {
		if v.Action == a {
			n++
		}
	}
	return n
}
