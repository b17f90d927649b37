package kvm

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
)

// Config is what the fleet's configuration says about this provider. Addresses are asked for in the order "lease", "arp", "agent"
// by default.
type Config struct {
	libvirt.Config
}

// namespace is that of the marks that this provider stores with its domains.
const namespace = "https://crawl.example.com/proxyfleet/kvm/1"

// machines makes instances that are virtual machines.
type machines struct {
	*libvirt.Provider

	mu sync.Mutex
	// left has the last check of each host that was given up before its answer, as what is closed when it has ended.
	left map[string]<-chan struct{}
}

var (
	_ provider.Provider    = (*machines)(nil)
	_ provider.Runner      = (*machines)(nil)
	_ provider.Delayer     = (*machines)(nil)
	_ provider.Checker     = (*machines)(nil)
	_ provider.Constructor = New
)

// New opens the provider: it reads the configuration, a [Config], and calls nobody yet.
func New(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
	var c Config
	if err := provider.DecodeConfig(raw, &c); err != nil {
		return nil, err
	}
	p, err := libvirt.New(env, c.Config, libvirt.Policy{
		Namespace:      namespace,
		AddressSources: []string{libvirt.Lease, libvirt.ARP, libvirt.Agent},
		KeepLogin:      true,
	})
	if err != nil {
		return nil, err
	}
	return &machines{Provider: p, left: map[string]<-chan struct{}{}}, nil
}

// Check asks every host at once, over the connection that all calls share. That connection is not the check's to close: a check
// that takes too long is left to itself, and until it has ended the host is not asked again.
func (p *machines) Check(ctx context.Context) []provider.TargetStatus {
	return p.CheckAll(func(host string) provider.TargetStatus { return p.checkHost(ctx, host) })
}

func (p *machines) checkHost(ctx context.Context, host string) provider.TargetStatus {
	if p.abandoned(host) {
		return provider.TargetStatus{Target: host, Reason: provider.Timeout, Message: "an earlier check is still without an answer"}
	}
	verdicts, ended := make(chan provider.TargetStatus, 1), make(chan struct{})
	go func() {
		defer close(ended)
		verdicts <- p.verdict(ctx, host)
	}()
	select {
	case v := <-verdicts:
		return v
	case <-ctx.Done():
		p.abandon(host, ended)
		return provider.TargetStatus{Target: host, Reason: provider.Timeout, Message: "the host did not answer in time"}
	}
}

// verdict dials within ctx, and then asks without a limit: a call that is given up would take the connection along.
func (p *machines) verdict(ctx context.Context, host string) provider.TargetStatus {
	c, err := p.Conn(ctx, host)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return p.Unready(ctx, host, err)
	}
	return p.CheckHost(context.WithoutCancel(ctx), c, host)
}

func (p *machines) abandon(host string, ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[host] = ended
}

// abandoned says whether a check that was given up still waits for an answer.
func (p *machines) abandoned(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended, ok := p.left[host]
	if !ok {
		return false
	}
	select {
	case <-ended:
		delete(p.left, host)
		return false
	default:
		return true
	}
}
