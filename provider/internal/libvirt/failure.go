package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of what libvirt itself complains of, and of a seed. Those of connections are with [DialError], and those of images
// with [transfers].
const (
	NoRights        = "NoRights"        // the user may not do that
	Unsupported     = "Unsupported"     // the host's libvirt cannot do that
	DomainRefused   = "DomainRefused"   // libvirt does not take the definition
	NoDomainType    = "NoDomainType"    // the host has none of the domain types that are configured
	FirmwareMissing = "FirmwareMissing" // the host has no UEFI
	NetworkMissing  = "NetworkMissing"  // the network is not there
	NetworkDown     = "NetworkInactive"
	PoolMissing     = "PoolMissing"
	PoolInactive    = "PoolInactive"
	PoolBusy        = "PoolBusy" // something else works on the pool
	PoolFull        = "PoolFull"
	HostFull        = "HostFull"     // the host has no memory for the machine
	LibvirtError    = "LibvirtError" // anything else that libvirt says
	StartFailed     = "StartFailed"  // the machine was defined, and does not start
	SeedFailed      = "SeedFailed"   // the seed cannot be written on the fleet's side, which needs files for it
	HostMisread     = "HostMisread"  // the host answers what is not understood
)

// code says whether an error is libvirt's of that number.
func code(err error, number golibvirt.ErrorNumber) bool {
	return err != nil && Code(err) == uint32(number)
}

// verdict is what an error means.
type verdict struct {
	class  provider.Class
	reason string
}

// verdictOn is that on an error of libvirt: by its number, and where one number stands for several things, by the text.
func verdictOn(e golibvirt.Error) verdict {
	switch golibvirt.ErrorNumber(e.Code) {
	case golibvirt.ErrNoNetwork:
		return verdict{provider.ErrPermanent, NetworkMissing}
	case golibvirt.ErrNoStoragePool:
		return verdict{provider.ErrPermanent, PoolMissing}
	case golibvirt.ErrAuthFailed, golibvirt.ErrAuthCancelled, golibvirt.ErrAuthUnavailable, golibvirt.ErrAccessDenied,
		golibvirt.ErrOperationDenied:
		return verdict{provider.ErrPermanent, NoRights}
	case golibvirt.ErrNoSupport, golibvirt.ErrConfigUnsupported, golibvirt.ErrArgumentUnsupported:
		return verdict{provider.ErrPermanent, Unsupported}
	case golibvirt.ErrXMLError, golibvirt.ErrXMLDetail, golibvirt.ErrXMLInvalidSchema:
		return verdict{provider.ErrPermanent, DomainRefused}
	}
	for _, t := range texts {
		if strings.Contains(e.Message, t.about) && strings.Contains(e.Message, t.says) {
			return t.verdict
		}
	}
	return verdict{provider.ErrTransient, LibvirtError}
}

// texts are what libvirt says under numbers that stand for many things.
var texts = [...]struct {
	about, says string
	verdict     verdict
}{
	{"", "No space left on device", verdict{provider.ErrQuotaExceeded, PoolFull}},
	{"", "Disk quota exceeded", verdict{provider.ErrQuotaExceeded, PoolFull}},
	{"", "Cannot allocate memory", verdict{provider.ErrQuotaExceeded, HostFull}},
	{"", "cannot set up guest memory", verdict{provider.ErrQuotaExceeded, HostFull}},
	{"Unable to find", "firmware", verdict{provider.ErrPermanent, FirmwareMissing}},
	{"pool", "is not active", verdict{provider.ErrTransient, PoolInactive}},
	{"pool", "asynchronous jobs running", verdict{provider.ErrTransient, PoolBusy}},
	{"network", "is not active", verdict{provider.ErrTransient, NetworkDown}},
}

// failure is the error of an operation, by what it came from. A reason that an error has already stays.
func (p *Provider) failure(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*provider.Error](err); ok {
		withOp := *known
		withOp.Op = op
		return &withOp
	}
	if interrupted := provider.Interrupted(ctx, op); interrupted != nil {
		return interrupted
	}
	v := p.policy.verdictOn(err)
	return &provider.Error{Op: op, Class: v.class, Reason: v.reason, Err: err}
}

func (p Policy) verdictOn(err error) verdict {
	if e, ok := errors.AsType[golibvirt.Error](err); ok {
		if dial, ok := errors.AsType[*DialError](err); ok {
			return p.verdictOnDial(dial)
		}
		return verdictOn(e)
	}
	if errors.Is(err, golibvirt.ErrUnsupported) {
		return verdict{provider.ErrPermanent, Unsupported}
	}
	if dial, ok := errors.AsType[*DialError](err); ok {
		return p.verdictOnDial(dial)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return verdict{provider.ErrTransient, provider.Timeout} // of one call, not of the operation
	}
	return verdict{provider.ErrTransient, HostMisread}
}

func (p Policy) verdictOnDial(e *DialError) verdict {
	if slices.Contains(p.PermanentDials, e.Reason) {
		return verdict{provider.ErrPermanent, e.Reason}
	}
	return verdict{provider.ErrTransient, e.Reason}
}

// wrong is an error that is known for what it is. Whoever calls puts in the operation.
func wrong(class provider.Class, reason, format string, args ...any) *provider.Error {
	return &provider.Error{Op: "make", Class: class, Reason: reason, Err: fmt.Errorf(format, args...)}
}
