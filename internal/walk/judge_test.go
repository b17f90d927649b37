package walk

import (
	"context"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// What a history is judged by. Kills are counted one by one, the others once per history.
const (
	doubled     = "doubled"     // two instances of one UID at a time
	orphaned    = "orphaned"    // an instance whose record is gone
	strayLive   = "strayLive"   // at the end an instance of a live UID that the spec does not name
	orphanDead  = "orphanDead"  // at the end an instance whose record is gone
	wrongSpec   = "wrongSpec"   // at the end an instance made from other inputs
	stuck       = "stuck"       // at the end not what the spec asks for
	modeChanged = "modeChanged" // an edit went through that must be refused
	tokenTwice  = "tokenTwice"  // one idempotency token for two intents: the provider makes nothing for the second
	needless    = "needless"    // kills of what the spec wanted when the killer last compared versions
	raced       = "raced"       // kills of what the spec wanted again between that comparison and the delete; no flaw
	inherited   = "inherited"   // a proxy is Ready by the verdict on another instance
	crowded     = "crowded"     // more proxies out of service at once than the pace allows
	creates     = "creates"     // all instances made; no flaw
)

// tally counts what happened, by kind.
type tally map[string]int

func (t tally) add(u tally) {
	for kind, n := range u {
		t[kind] += n
	}
}

// flaws is all that must not happen.
func (t tally) flaws() (n int) {
	for kind, count := range t {
		if kind != raced && kind != creates {
			n += count
		}
	}
	return n
}

// once counts what is counted once per history.
func (h *history) once(kind string) {
	if h.tally[kind] == 0 {
		h.count(kind)
	}
}

func (h *history) count(kind string) {
	h.tally[kind]++
	h.log("%s", kind)
}

// judge looks at the world after each step.
func (h *history) judge() {
	owned := map[string]bool{}
	for _, k := range h.keys {
		if p := h.store.now(k); p != nil {
			owned[p.UID] = true
			h.served(k, p)
		}
	}
	if h.paced && len(h.out) > max(1, len(h.keys)/5) {
		h.once(crowded)
	}
	per := map[string]int{}
	for _, i := range h.world.insts {
		if h.abandoned(i) {
			continue
		}
		if per[i.Marks.UID]++; per[i.Marks.UID] > 1 {
			h.once(doubled)
		}
		if !owned[i.Marks.UID] && i.State != provider.Terminating {
			h.once(orphaned)
		}
	}
}

// served notes that a proxy is in service.
func (h *history) served(k proxy.Key, p *proxy.Proxy) {
	if p.Status.Phase != proxy.Ready {
		return
	}
	h.serving[k] = true
	delete(h.out, k)
	if !h.world.probed[p.Status.Instance.Incarnation] {
		h.once(inherited)
	}
}

// abandoned says whether nobody has to care about an instance, until a later life of its name takes it.
func (h *history) abandoned(i *inst) bool {
	if !i.abandoned {
		return false
	}
	for _, k := range h.keys {
		if p := h.store.now(k); p != nil && !p.Deleting && p.Status.Instance.Incarnation == i.Incarnation {
			i.abandoned = false
			delete(h.world.skipped, i.Marks.UID)
			return false
		}
	}
	return true
}

// kill judges a delete by the reconciler.
func (h *history) kill(by *thread, i *inst) {
	h.log("kill %s of %s", i.Incarnation, i.built)
	for _, k := range h.keys {
		p := h.store.now(k)
		if p == nil || p.UID != i.Marks.UID {
			continue
		}
		in, err := h.store.Memory.Inputs(context.Background(), p)
		if h.serving[k] {
			h.out[k], h.serving[k] = true, false
		}
		switch {
		case !h.keeps(p, in, err != nil, i):
		case by.known.record != nil && !h.keeps(by.known.record, by.known.inputs, by.known.failed, i):
			h.count(raced)
		default:
			h.count(needless)
		}
	}
}

// keeps says whether an instance must stay: the spec asks for exactly this one, or for nothing that could be made, because a
// reference leads nowhere or the edit is a typo.
func (h *history) keeps(p *proxy.Proxy, in proxy.Inputs, unresolved bool, i *inst) bool {
	if p.UID != i.Marks.UID || p.Deleting || p.Spec.Mode == proxy.External || i.State != provider.Running {
		return false
	}
	typo := p.Spec.Provider != "a" && p.Spec.Provider != "b" || p.Spec.Placement.Zone == ""
	return unresolved || typo || i.built == asksFor(p.Spec, in)
}

// verdict looks at what is left in the end.
func (h *history) verdict() {
	good := map[proxy.Key]int{}
	for _, i := range h.world.insts {
		if h.abandoned(i) {
			continue
		}
		k, p := h.owner(i)
		if p == nil {
			h.once(orphanDead)
			continue
		}
		in, _ := h.store.Memory.Inputs(context.Background(), p)
		switch {
		case p.Spec.Mode == proxy.External || i.prov != p.Spec.Provider || i.ID != p.Spec.Placement.Zone+"/"+provider.Name(fleetID, p.UID):
			h.once(strayLive)
		case i.built != asksFor(p.Spec, in) || i.State != provider.Running:
			h.once(wrongSpec)
		default:
			good[k]++
		}
	}
	for _, k := range h.keys {
		p := h.store.now(k)
		if p == nil {
			continue
		}
		external := p.Spec.Mode == proxy.External
		there := external && p.Status.Phase == proxy.Probing && p.Status.Instance.Host == p.Spec.Endpoint.Host ||
			!external && p.Status.Phase == proxy.Ready && good[k] == 1
		if p.Deleting || !there {
			h.log("%s: %+v", k.Name, p.Status)
			h.once(stuck)
		}
	}
}

// owner is the record of an instance.
func (h *history) owner(i *inst) (proxy.Key, *proxy.Proxy) {
	for _, k := range h.keys {
		if p := h.store.now(k); p != nil && p.UID == i.Marks.UID {
			return k, p
		}
	}
	return proxy.Key{}, nil
}
