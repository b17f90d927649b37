package libvirt

import (
	"context"
	"errors"
	"fmt"
	"sync"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/proxyfleet/fleet/provider"
)

// CheckAll has all hosts judged at once.
func (p *Provider) CheckAll(judge func(host string) provider.TargetStatus) []provider.TargetStatus {
	all := make([]provider.TargetStatus, len(p.config.Hosts))
	var group sync.WaitGroup
	for i, h := range p.config.Hosts {
		group.Go(func() { all[i] = judge(h.Name) })
	}
	group.Wait()
	return all
}

// CheckHost says over a connection to a host whether machines could be made there.
func (p *Provider) CheckHost(ctx context.Context, c *Conn, host string) provider.TargetStatus {
	h := p.hosts[host]
	hostname, err := c.Hostname(ctx)
	if err != nil {
		return p.Unready(ctx, host, err)
	}
	details := map[string]string{"user": h.User, "pool": h.Pool, "hostname": hostname, "libvirtVersion": c.Version()}
	pool, err := c.Pool(ctx, h.Pool)
	if err != nil {
		status := p.Unready(ctx, host, err)
		status.Details = details
		return status
	}
	details["poolState"] = poolState(pool.State)
	details["poolCapacityGiB"] = gib(pool.Capacity)
	details["poolAvailableGiB"] = gib(pool.Available)
	status := provider.TargetStatus{Target: host, Ready: true, Details: details}
	if !pool.Running() {
		status.Ready, status.Reason, status.Message = false, PoolInactive, fmt.Sprintf("pool %s is %s", h.Pool, details["poolState"])
		return status
	}
	status.Message = fmt.Sprintf("libvirt %s, %s GiB free in pool %s", c.Version(), details["poolAvailableGiB"], h.Pool)
	return status
}

// Unready is the verdict on a host that could not be asked.
func (p *Provider) Unready(ctx context.Context, host string, err error) provider.TargetStatus {
	status := provider.TargetStatus{Target: host, Reason: provider.Timeout, Message: "the host did not answer in time"}
	if ctx.Err() != nil {
		return status
	}
	if e, ok := errors.AsType[*provider.Error](p.failure(ctx, "check", err)); ok {
		status.Reason, status.Message = e.Reason, err.Error()
	}
	return status
}

func poolState(s golibvirt.StoragePoolState) string {
	switch s {
	case golibvirt.StoragePoolInactive:
		return "inactive"
	case golibvirt.StoragePoolBuilding:
		return "building"
	case golibvirt.StoragePoolRunning:
		return "running"
	case golibvirt.StoragePoolDegraded:
		return "degraded"
	case golibvirt.StoragePoolInaccessible:
		return "inaccessible"
	}
	return "unknown"
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<30)) }
