package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// replace handles an instance that the spec does not want. One that serves waits for its turn, is closed to new leases, and
// then waits for its open ones, so that one edit of many proxies does not take the fleet down. An edit that cannot be
// fulfilled replaces nothing: what runs goes on, and the condition says what is wrong.
func (p *pass) replace(ctx context.Context, w wish, prov provider.Provider, got provider.Instance) (Result, error) {
	if p.p.Spec.Mode == proxy.External {
		p.leave()
		p.lacks(ReasonReplacing, "")
		return p.remove(ctx, prov, got.Incarnation)
	}
	if w.err != nil {
		return p.keep(got, message("the edit is not applied", describe(w.err))), nil
	}
	provisioned, _ := p.s.Condition(proxy.Provisioned)
	if provisioned.Status == proxy.True && got.State == provider.Running {
		return p.retire(ctx, got)
	}
	if wait := p.drain(got.Incarnation); wait > 0 {
		return Result{After: min(wait, p.Intervals.DeletionPoll)}, nil
	}
	p.leave()
	p.lacks(ReasonReplacing, "")
	return p.remove(ctx, prov, got.Incarnation)
}

// retire takes an instance out of service. It is deleted by a later pass, when nobody can lease it any more.
func (p *pass) retire(ctx context.Context, got provider.Instance) (Result, error) {
	turn, err := p.pace.retire(ctx, p, got.Incarnation)
	switch {
	case err != nil:
		return Result{}, err
	case !turn:
		p.keep(got, waitsForTurn)
		return Result{After: p.Intervals.ProvisioningPoll}, nil
	}
	return Result{After: p.Intervals.Requeue}, nil
}

// drain is how long the open leases of an instance that is out of service are still waited for.
func (p *pass) drain(incarnation string) time.Duration {
	provisioned, _ := p.s.Condition(proxy.Provisioned)
	draining := p.s.Instance.Retiring == incarnation && provisioned.Reason == ReasonReplacing
	if !draining || p.Leases == nil || p.Leases.Active(p.p.Key.String()) == 0 {
		return 0
	}
	return provisioned.LastTransitionTime.Std().Add(p.Intervals.Drain).Sub(p.now)
}

const waitsForTurn = "replacement waits for its turn: others of this provider are out for theirs"

// queued says whether the proxy serves, is to be replaced, and has to wait. There may be thousands in the queue, so the
// provider is not asked about them.
func (p *pass) queued(ctx context.Context, w wish) bool {
	last := p.s.Instance
	if p.s.Phase != proxy.Ready || last.Retiring != "" || w.err != nil || p.Hasher.Matches(last.Hash, p.p.UID, p.p.Spec, w.inputs) {
		return false
	}
	turn, err := p.pace.turn(ctx, p)
	return err == nil && !turn
}

func (p *pass) queue() Result {
	p.set(proxy.Provisioned, proxy.True, ReasonCreated, waitsForTurn)
	p.applyHealth()
	return Result{After: p.Intervals.ProvisioningPoll}
}

// pace bounds what passes that run at once may do together. It holds no knowledge: it counts the records of the store, and
// a lock makes counting and writing one step.
type pace struct {
	mu      sync.Mutex
	counted time.Time
	records []census
}

// census is what pace needs to know of a record.
type census struct {
	key      proxy.Key
	wants    string // the provider that the spec names
	has      string // the provider that holds its instance
	retiring bool
	deleting bool
}

// censusAge is how long a count serves. Within this process nothing is added to a count but by pace, which then counts anew.
const censusAge = time.Second

// admit lets a pass write its intent, unless its provider has as many instances as it may have.
func (c *pace) admit(ctx context.Context, p *pass, w wish) (full bool, err error) {
	name := p.p.Spec.Provider
	most := p.MaxInstances[name]
	if most <= 0 {
		return false, p.intend(ctx, w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.count(ctx, p); err != nil {
		return false, err
	}
	n := 0
	for _, r := range c.records {
		if r.has == name && r.key != p.p.Key {
			n++
		}
	}
	if n >= most {
		p.lacks(ReasonQuotaExceeded, fmt.Sprintf("MaxInstances: provider %q has all %d instances that it may have", name, most))
		return true, nil
	}
	c.records = nil
	return false, p.intend(ctx, w)
}

// retire lets a pass take its instance out of service when it is its turn.
func (c *pace) retire(ctx context.Context, p *pass, incarnation string) (turn bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn, err := c.hasTurn(ctx, p); err != nil || !turn {
		return turn, err
	}
	c.records = nil
	p.s.Instance.Retiring = incarnation
	p.lacks(ReasonReplacing, "")
	return true, p.commit(ctx)
}

// turn says whether it is the pass's turn to replace.
func (c *pace) turn(ctx context.Context, p *pass) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasTurn(ctx, p)
}

// hasTurn says whether another proxy of the provider may go out for its replacement: a fifth of them at once, and at least
// one. Those that are being deleted are not coming back, and so do not count. One that is out already keeps its turn.
func (c *pace) hasTurn(ctx context.Context, p *pass) (bool, error) {
	if p.s.Instance.Retiring != "" {
		return true, nil
	}
	if err := c.count(ctx, p); err != nil {
		return false, err
	}
	all, out := 0, 0
	for _, r := range c.records {
		if r.deleting || r.has != p.s.Instance.Provider && r.wants != p.p.Spec.Provider {
			continue
		}
		all++
		if r.retiring {
			out++
		}
	}
	return out < max(1, all/5), nil
}

// count takes a census of the records.
func (c *pace) count(ctx context.Context, p *pass) error {
	if c.records != nil && p.now.Sub(c.counted) < censusAge {
		return nil
	}
	list, err := p.Store.List(ctx)
	if err != nil {
		return fmt.Errorf("count the proxies of the provider: %w", err)
	}
	c.records = make([]census, 0, len(list))
	for _, r := range list {
		last := r.Status.Instance
		c.records = append(c.records, census{r.Key, r.Spec.Provider, last.Provider, last.Retiring != "", r.Deleting})
	}
	c.counted = p.now
	return nil
}
