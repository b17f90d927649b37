package libvirt

import (
	"context"
	"encoding/xml"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// Domain is a virtual machine as libvirt refers to it.
type Domain = golibvirt.Domain

// incarnation is the UUID of a domain as text. Libvirt draws it when the domain is defined.
func incarnation(d Domain) string {
	u := d.UUID
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Domain looks a domain up. One that is not there is an error with the code of golibvirt.ErrNoDomain.
func (c *Conn) Domain(ctx context.Context, name string) (Domain, error) {
	return call(ctx, c, Call{RPC: "DomainLookupByName", Domain: name}, func(l *golibvirt.Libvirt) (Domain, error) {
		return l.DomainLookupByName(name)
	})
}

// Domains returns all domains of the host, whoever's they are.
func (c *Conn) Domains(ctx context.Context) ([]Domain, error) {
	return call(ctx, c, Call{RPC: "ConnectListAllDomains"}, func(l *golibvirt.Libvirt) ([]Domain, error) {
		all, _, err := l.ConnectListAllDomains(1, golibvirt.ConnectListDomainsActive|golibvirt.ConnectListDomainsInactive)
		return all, err
	})
}

// Metadata returns the element of a namespace that is stored with a domain, as XML.
func (c *Conn) Metadata(ctx context.Context, d Domain, namespace string) (string, error) {
	return call(ctx, c, Call{RPC: "DomainGetMetadata", Domain: d.Name}, func(l *golibvirt.Libvirt) (string, error) {
		return l.DomainGetMetadata(d, int32(golibvirt.DomainMetadataElement), golibvirt.OptString{namespace}, 0)
	})
}

// State returns what a domain does, and why.
func (c *Conn) State(ctx context.Context, d Domain) (Condition, error) {
	return call(ctx, c, Call{RPC: "DomainGetState", Domain: d.Name}, func(l *golibvirt.Libvirt) (Condition, error) {
		state, reason, err := l.DomainGetState(d, 0)
		return Condition{golibvirt.DomainState(state), reason}, err
	})
}

// Definition returns how a domain is defined, whether it runs or not.
func (c *Conn) Definition(ctx context.Context, d Domain) (libvirtxml.Domain, error) {
	var definition libvirtxml.Domain
	document, err := call(ctx, c, Call{RPC: "DomainGetXMLDesc", Domain: d.Name}, func(l *golibvirt.Libvirt) (string, error) {
		return l.DomainGetXMLDesc(d, golibvirt.DomainXMLInactive)
	})
	if err != nil {
		return definition, err
	}
	if err := definition.Unmarshal(document); err != nil {
		return definition, fmt.Errorf("the definition of %s cannot be read: %w", d.Name, err)
	}
	return definition, nil
}

// Interfaces returns the addresses of a domain as one source knows them.
func (c *Conn) Interfaces(ctx context.Context, d Domain, source golibvirt.DomainInterfaceAddressesSource) ([]golibvirt.DomainInterface, error) {
	return call(ctx, c, Call{RPC: "DomainInterfaceAddresses", Domain: d.Name}, func(l *golibvirt.Libvirt) ([]golibvirt.DomainInterface, error) {
		return l.DomainInterfaceAddresses(d, uint32(source), 0)
	})
}

// Define makes a domain that does not run yet. Its name must be free.
func (c *Conn) Define(ctx context.Context, definition libvirtxml.Domain) (Domain, error) {
	document, err := definition.Marshal()
	if err != nil {
		return Domain{}, err
	}
	return call(ctx, c, Call{RPC: "DomainDefineXML", Domain: definition.Name}, func(l *golibvirt.Libvirt) (Domain, error) {
		return l.DomainDefineXML(document)
	})
}

// Start starts a domain.
func (c *Conn) Start(ctx context.Context, d Domain) error {
	return act(ctx, c, Call{RPC: "DomainCreate", Domain: d.Name}, func(l *golibvirt.Libvirt) error { return l.DomainCreate(d) })
}

// Destroy stops a domain at once, as if its power failed. One that does not run is left alone.
func (c *Conn) Destroy(ctx context.Context, d Domain) error {
	err := act(ctx, c, Call{RPC: "DomainDestroy", Domain: d.Name}, func(l *golibvirt.Libvirt) error { return l.DomainDestroy(d) })
	if code(err, golibvirt.ErrOperationInvalid) {
		return nil
	}
	return err
}

// Undefine removes a domain that does not run, with its NVRAM, managed save image, and what is known of snapshots and checkpoints.
func (c *Conn) Undefine(ctx context.Context, d Domain) error {
	const all = golibvirt.DomainUndefineNvram | golibvirt.DomainUndefineManagedSave |
		golibvirt.DomainUndefineSnapshotsMetadata | golibvirt.DomainUndefineCheckpointsMetadata
	const old = all &^ golibvirt.DomainUndefineCheckpointsMetadata // libvirt before 5.6, and drivers that know no checkpoints
	undefine := func(flags golibvirt.DomainUndefineFlagsValues) error {
		return act(ctx, c, Call{RPC: "DomainUndefineFlags", Domain: d.Name}, func(l *golibvirt.Libvirt) error {
			return l.DomainUndefineFlags(d, flags)
		})
	}
	err := undefine(all)
	if code(err, golibvirt.ErrInvalidArg) {
		err = undefine(old)
	}
	if code(err, golibvirt.ErrInvalidArg) {
		err = undefine(0)
	}
	return err
}

// Hostname is what the host calls itself.
func (c *Conn) Hostname(ctx context.Context) (string, error) {
	return call(ctx, c, Call{RPC: "ConnectGetHostname"}, func(l *golibvirt.Libvirt) (string, error) { return l.ConnectGetHostname() })
}

// Guests returns the kinds of machines that the host can run on its own architecture.
func (c *Conn) Guests(ctx context.Context) (libvirtxml.CapsGuestArch, error) {
	document, err := call(ctx, c, Call{RPC: "ConnectGetCapabilities"}, func(l *golibvirt.Libvirt) (string, error) {
		return l.ConnectGetCapabilities()
	})
	if err != nil {
		return libvirtxml.CapsGuestArch{}, err
	}
	var caps libvirtxml.Caps
	if err := xml.Unmarshal([]byte(document), &caps); err != nil {
		return libvirtxml.CapsGuestArch{}, fmt.Errorf("the host's capabilities cannot be read: %w", err)
	}
	for _, guest := range caps.Guests {
		if guest.OSType == "hvm" && guest.Arch.Name == caps.Host.CPU.Arch {
			return guest.Arch, nil
		}
	}
	return libvirtxml.CapsGuestArch{}, fmt.Errorf("the host runs no machines of its own architecture, %s", caps.Host.CPU.Arch)
}
