package kvm2

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/internal/libvirt"
)

// Config is what the fleet's configuration says about this provider. Addresses are asked for in the order "agent", "arp", "lease"
// by default.
type Config struct {
	libvirt.Config
}

// namespace is that of the marks that this provider stores with its domains.
const namespace = "https://crawl.example.com/proxyfleet/kvm2/1"

// machines makes instances that are virtual machines.
type machines struct {
	*libvirt.Provider
}

var (
	_ provider.Provider    = (*machines)(nil)
	_ provider.Runner      = (*machines)(nil)
	_ provider.Delayer     = (*machines)(nil)
	_ provider.Checker     = (*machines)(nil)
	_ provider.Constructor = New
)

// New opens the provider: it reads the configuration, a [Config], and calls nobody yet. Of files that are not there it only warns,
// because they are read when a host is dialled, and may have come until then.
func New(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
	return open(env, raw, budgets())
}

// budgets bound each call, so that one host that says nothing costs no more than that.
func budgets() libvirt.Budgets {
	return libvirt.Budgets{
		Dial:  10 * time.Second,
		RPC:   30 * time.Second,
		Start: 90 * time.Second,
		Seed:  time.Minute,
		Image: 20 * time.Minute,
	}
}

func open(env provider.Environment, raw json.RawMessage, b libvirt.Budgets) (*machines, error) {
	var c Config
	if err := provider.DecodeConfig(raw, &c); err != nil {
		return nil, err
	}
	if env.TracerProvider == nil {
		env.TracerProvider = noop.NewTracerProvider()
	}
	s := spans{env.TracerProvider.Tracer("github.com/proxyfleet/fleet/provider/kvm2")}
	p, err := libvirt.New(env, c.Config, libvirt.Policy{
		Namespace:      namespace,
		AddressSources: []string{libvirt.Agent, libvirt.ARP, libvirt.Lease},
		PermanentDials: []string{libvirt.AuthenticationFailed, libvirt.KeyEncrypted, libvirt.HostKeyUnknown, libvirt.HostKeyChanged},
		CheckRoom:      true,
		Budgets:        b,
		Watch:          s.call,
		WatchDial:      s.dial,
		WatchImage:     s.download,
	})
	if err != nil {
		return nil, err
	}
	warnOfMissingFiles(cmp.Or(env.Logger, slog.New(slog.DiscardHandler)), p.Hosts())
	return &machines{p}, nil
}

func warnOfMissingFiles(logger *slog.Logger, hosts []libvirt.HostConfig) {
	for _, h := range hosts {
		for _, file := range []string{h.KeyFile, h.KnownHostsFile} {
			if _, err := os.Stat(file); err != nil {
				logger.Warn("a file is not there yet that a host is dialled with", "host", h.Name, "file", file, "error", err)
			}
		}
	}
}

// Delays leave a create the time that its budgets do.
func (p *machines) Delays() provider.Delays {
	return provider.Delays{Call: 100 * time.Second, Settle: 130 * time.Second}
}

// Check asks every host at once, over connections that it dials for that and closes: a check that takes too long disturbs nobody.
func (p *machines) Check(ctx context.Context) []provider.TargetStatus {
	return p.CheckAll(func(host string) provider.TargetStatus {
		c, err := p.Dial(ctx, host)
		if err != nil {
			return p.Unready(ctx, host, err)
		}
		defer c.Close()
		return p.CheckHost(ctx, c, host)
	})
}
