package examplecloud

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/proxyfleet/fleet/provider"
)

var _ provider.Checker = (*Provider)(nil)

// Check asks each zone for the first page of our instances: what List needs, and no more. The zones are the targets, for one
// can fail while the others work, and they are asked at once, so that one that hangs leaves the others their time.
func (p *Provider) Check(ctx context.Context) []provider.TargetStatus {
	verdicts := make([]provider.TargetStatus, len(p.Zones))
	var group sync.WaitGroup
	for i, zone := range p.Zones {
		group.Go(func() { verdicts[i] = p.checkZone(ctx, zone) })
	}
	group.Wait()
	return verdicts
}

func (p *Provider) checkZone(ctx context.Context, zone string) provider.TargetStatus {
	query := url.Values{"label": {"proxyfleet-fleet=" + p.fleet}}
	var page struct{ Instances []instance }
	err := p.call(ctx, "check", http.MethodGet, collection(zone)+"?"+query.Encode(), "", nil, &page)
	if err == nil {
		return provider.TargetStatus{Target: zone, Ready: true}
	}
	return provider.TargetStatus{Target: zone, Reason: reasonOf(ctx, err), Message: err.Error()}
}

// reasonOf is a word that stays for as long as the cause does, made from the class: a code of the cloud may be anything.
func reasonOf(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return provider.Timeout
	}
	reason := map[provider.Class]string{
		provider.ErrPermanent: "Refused", provider.ErrQuotaExceeded: "RateLimited", provider.ErrCanceled: "Canceled",
	}[provider.ClassOf(err)]
	return cmp.Or(reason, "Unavailable")
}
