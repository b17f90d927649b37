package pod

import (
	"context"

	"github.com/proxyfleet/fleet/provider"
)

// Check asks for one pod of any fleet: that takes a cluster, credentials, and the permission that List needs.
func (p *pods) Check(ctx context.Context) []provider.TargetStatus {
	status := provider.TargetStatus{Target: "apiserver", Ready: true}
	if _, err := p.client.podsPage(ctx, p.settings.Namespace, managedLabel+"=true", 1, ""); err != nil {
		e := failure(ctx, "check", err)
		status.Ready, status.Reason, status.Message = false, e.Reason, provider.Clip(e.Err.Error())
		if ctx.Err() != nil {
			status.Reason = provider.Timeout
		}
	}
	return []provider.TargetStatus{status}
}
