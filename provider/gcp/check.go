package gcp

import (
	"context"
	"strings"

	"github.com/proxyfleet/fleet/provider"
)

// Check asks for one machine of the project, whoever's it is: that takes credentials, the API and the permission to list.
func (p *machines) Check(ctx context.Context) []provider.TargetStatus {
	status := provider.TargetStatus{Target: p.settings.Project, Ready: true}
	page, err := p.client.instancesPage(ctx, "", 1, "")
	if err != nil {
		e := failure(ctx, "check", err)
		status.Ready, status.Reason = false, e.Reason
		if ctx.Err() != nil {
			status.Reason = provider.Timeout
		}
		status.Message = e.Err.Error()
		return []provider.TargetStatus{status}
	}
	if missing := lacking(page); len(missing) > 0 {
		status.Details = map[string]string{"unreachable": strings.Join(missing, ", ")}
	}
	return []provider.TargetStatus{status}
}
