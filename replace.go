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
	if p.provisioned().Status == proxy.True && got.State == provider.Running {
		return p.retire(ctx, got)
	}
	if end, waits := p.drain(got.Incarnation); waits {
		p.lacks(ReasonReplacing, fmt.Sprintf("waits for its open leases, until %v at the latest", proxy.At(end)))
		return Result{After: min(end.Sub(p.now), p.Intervals.DeletionPoll)}, nil
	}
	p.leave()
	p.lacks(ReasonReplacing, "")
	return p.remove(ctx, prov, got.Incarnation)
}

// retire takes an instance out of service. It is deleted by a later pass, when nobody can lease it any more.
func (p *pass) retire(ctx context.Context, got provider.Instance) (Result, error) {
	wait, err := p.pace.retire(ctx, p, got.Incarnation)
	switch {
	case err != nil:
		return Result{}, err
	case wait != "":
		p.keep(got, wait)
		return Result{After: p.Intervals.ProvisioningPoll}, nil
	}
	return Result{After: p.Intervals.Requeue}, nil
}

// drain says until when the open leases of an instance that is out of service are still waited for, if they are. The reason
// of the condition may be another one by now: that of a pass which the provider failed.
func (p *pass) drain(incarnation string) (end time.Time, waits bool) {
	provisioned := p.provisioned()
	draining := p.s.Instance.Retiring == incarnation && provisioned.Status != proxy.True
	if !draining || p.Leases == nil {
		return time.Time{}, false
	}
	if key := p.p.Key.String(); !p.Leases.Offered(key) && p.Leases.Active(key) == 0 { // none is open, and none will be
		return time.Time{}, false
	}
	end = provisioned.LastTransitionTime.Std().Add(p.Intervals.Drain)
	return end, end.After(p.now)
}

// queued says what the proxy waits for if it serves, is to be replaced, and has to wait for its turn. There may be thousands
// in the queue, so the provider is not asked about them.
func (p *pass) queued(ctx context.Context, w wish) (wait string) {
	last := p.s.Instance
	if p.s.Phase != proxy.Ready || last.Retiring != "" || w.err != nil || p.Hasher.Matches(last.Hash, p.p.UID, p.p.Spec, w.inputs) {
		return ""
	}
	wait, err := p.pace.turn(ctx, p)
	if err != nil {
		return ""
	}
	return wait
}

func (p *pass) queue(wait string) Result {
	p.set(proxy.Provisioned, proxy.True, ReasonCreated, wait)
	p.applyHealth()
	return Result{After: p.Intervals.ProvisioningPoll}
}

// pace bounds what passes that run at once may do together. It holds no knowledge: it counts the records of the store, and
// a lock makes counting and writing one step.
type pace struct {
	mu      sync.Mutex
	counted time.Time
	records []census
	notices map[[2]string]notice
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

// retire lets a pass take its instance out of service when it is its turn, or says what it waits for.
func (c *pace) retire(ctx context.Context, p *pass, incarnation string) (wait string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait, err := c.wait(ctx, p); err != nil || wait != "" {
		return wait, err
	}
	c.records = nil
	p.s.Instance.Retiring = incarnation
	p.lacks(ReasonReplacing, "")
	return "", p.commit(ctx)
}

// turn says what the pass waits for before it may replace; "" when it is its turn.
func (c *pace) turn(ctx context.Context, p *pass) (wait string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait(ctx, p)
}

// wait says why no other proxy of the provider may go out for its replacement, if so: a fifth of them may at once, and at
// least one. Those that are being deleted are not coming back, and so do not count. One that is out already keeps its turn.
func (c *pace) wait(ctx context.Context, p *pass) (string, error) {
	if p.s.Instance.Retiring != "" {
		return "", nil
	}
	if err := c.count(ctx, p); err != nil {
		return "", err
	}
	has, wants := p.s.Instance.Provider, p.p.Spec.Provider
	all, out := 0, 0
	for _, r := range c.records {
		if r.deleting || r.has != has && r.wants != wants {
			continue
		}
		all++
		if r.retiring {
			out++
		}
	}
	if out < max(1, all/5) {
		return "", nil
	}
	return c.notice(p.now, [2]string{has, wants}, out, max(1, all/5)), nil
}

// notice is what the statuses of those that wait say.
type notice struct {
	text string
	at   time.Time
}

// noticeAge is how long a notice holds. Each record that waits has it in its status, so that all of them are written when it
// changes.
const noticeAge = time.Minute

// waitsForTurn opens what is said of a proxy that waits.
const waitsForTurn = "replacement waits for its turn"

// notice returns what is said of the proxies that wait, which have the same provider and want the same.
func (c *pace) notice(now time.Time, of [2]string, out, most int) string {
	if n, ok := c.notices[of]; ok && now.Sub(n.at) < noticeAge {
		return n.text
	}
	if c.notices == nil {
		c.notices = map[[2]string]notice{}
	}
	n := notice{fmt.Sprintf("%s: %d of at most %d proxies of provider %q are out for theirs", waitsForTurn, out, most, of[0]), now}
	c.notices[of] = n
	return n.text
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
