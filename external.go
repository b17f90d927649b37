package fleet

import (
	"context"

	"github.com/proxyfleet/fleet/proxy"
)

// external takes the endpoint as it is: no provider is ever called. It never sees a planned instance: should a mode have
// changed in spite of [proxy.ValidateUpdate], the instance is removed first, as one that the spec does not want.
func (p *pass) external(ctx context.Context) (Result, error) {
	if p.p.Finalizer {
		return p.setFinalizer(ctx, false) // nothing is there that it could stand for
	}
	in, err := p.Store.Inputs(ctx, p.p)
	if err != nil {
		return p.unresolved(err)
	}
	p.set(proxy.Resolved, proxy.True, ReasonResolved, "")
	e := p.p.Spec.Endpoint
	if e == nil {
		return Result{}, proxy.Validate(p.p.Spec) // it says so
	}
	incarnation := p.Hasher.Endpoint(p.p.UID, *e, in.Username)
	if p.s.Instance.Incarnation != incarnation {
		p.leave()
	}
	p.s.Instance = proxy.Instance{Incarnation: incarnation, Host: e.Host, Port: e.Port}
	p.set(proxy.Provisioned, proxy.True, ReasonExternalEndpoint, "")
	p.applyHealth()
	return Result{}, nil
}
