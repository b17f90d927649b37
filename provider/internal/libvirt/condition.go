package libvirt

import (
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/proxyfleet/fleet/provider"
)

// Condition is what a domain does, and libvirt's number for why, whose meaning depends on it.
type Condition struct {
	State  golibvirt.DomainState
	Reason int32
}

// The reasons of an instance's state.
const (
	NotStarted = "NotStarted" // it was made, and its start failed or never came
	DiskFull   = "DiskFull"   // it is paused, because its disk could not be written to
	Paused     = "Paused"
	Crashed    = "Crashed"
	ShutOff    = "ShutOff"
	NoState    = "NoState"   // libvirt does not know what it does
	NoAddress  = "NoAddress" // it runs, and no address of it is known yet
)

// halfMade says whether a domain was defined and never ran, because whoever defined it did not come to start it, or could not.
func (c Condition) halfMade() bool {
	reason := golibvirt.DomainShutoffReason(c.Reason)
	return c.State == golibvirt.DomainShutoff && (reason == golibvirt.DomainShutoffUnknown || reason == golibvirt.DomainShutoffFailed)
}

// describe puts a condition into an instance. Running is still without an address.
func (c Condition) describe(in *provider.Instance) {
	set := func(state provider.State, reason, message string) {
		in.State, in.Reason, in.Message = state, reason, message
	}
	switch c.State {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked:
		set(provider.Running, "", "")
	case golibvirt.DomainNostate:
		set(provider.Provisioning, NoState, "libvirt does not know what the machine does")
	case golibvirt.DomainPaused:
		c.describePaused(set)
	case golibvirt.DomainCrashed:
		set(provider.Stopped, Crashed, "the machine has crashed")
	case golibvirt.DomainShutoff, golibvirt.DomainShutdown:
		switch {
		case c.halfMade():
			set(provider.Stopped, NotStarted, "the machine was not started, or the host was started anew")
		case golibvirt.DomainShutoffReason(c.Reason) == golibvirt.DomainShutoffCrashed && c.State == golibvirt.DomainShutoff:
			set(provider.Stopped, Crashed, "the machine has crashed")
		default:
			set(provider.Stopped, ShutOff, "the machine is shut off")
		}
	default:
		set(provider.Stopped, "UnknownState", fmt.Sprintf("libvirt calls the state %d", c.State))
	}
}

func (c Condition) describePaused(set func(provider.State, string, string)) {
	switch golibvirt.DomainPausedReason(c.Reason) {
	case golibvirt.DomainPausedStartingUp:
		set(provider.Provisioning, "", "the machine starts")
	case golibvirt.DomainPausedIoerror:
		set(provider.Stopped, DiskFull, "the machine was paused when its disk could not be written to: look at the free space of the host's pool")
	default:
		set(provider.Stopped, Paused, "the machine is paused")
	}
}
