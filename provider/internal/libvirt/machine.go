package libvirt

import (
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/provider"
)

// machine is what a request asks for, with what the configuration says about it.
type machine struct {
	request provider.Request
	host    HostConfig
	image   Image
	size    MachineType
}

// machine looks a request up in the configuration. It asks no host.
func (c Config) machine(op string, r provider.Request) (machine, error) {
	host, err := chosen(op, "placement.zone", r.Placement.Zone, c.Hosts, func(h HostConfig) string { return h.Name })
	if err != nil {
		return machine{}, err
	}
	size, err := chosen(op, "placement.machineType", r.Placement.MachineType, c.MachineTypes, func(m MachineType) string { return m.Name })
	if err != nil {
		return machine{}, err
	}
	image, err := chosen(op, "placement.image", r.Placement.Image, c.Images, func(i Image) string { return i.Name })
	if err != nil {
		return machine{}, err
	}
	if gib := r.Placement.DiskSizeGb; gib < 0 || gib > mostDisk {
		return machine{}, provider.Unsupported(op, "placement.diskSizeGb")
	}
	m := machine{request: r, host: host, image: image, size: size}
	if c.Proxy == squid {
		if err := c.squid(r).Validate(); err != nil {
			return machine{}, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField,
				Err: fmt.Errorf("credentials: %w", err)}
		}
	}
	return m, nil
}

// mostDisk is the largest disk in GiB.
const mostDisk = 64 << 10

func (m machine) id() string      { return idOf(m.host.Name, m.request.Name) }
func (m machine) disk() string    { return diskOf(m.request.Name) }
func (m machine) seed() string    { return seedOf(m.request.Name) }
func idOf(host, n string) string  { return "hosts/" + host + "/domains/" + n }
func diskOf(domain string) string { return domain + ".qcow2" }
func seedOf(domain string) string { return domain + "-seed.iso" }

// squid is the proxy that a machine is to run.
func (c Config) squid(r provider.Request) nocloud.Proxy {
	return nocloud.Proxy{
		Name: r.Name, Port: r.Port,
		Username: r.Credentials.Username, Password: r.Credentials.Password,
		AllowedClients: c.AllowedClients, AllowedDestinations: c.AllowedDestinations,
	}
}

// seedISO is the disk that tells a machine what to be. Its instance ID is new for each incarnation. What cannot be said to a machine
// never can; a disk that cannot be written here, for which files are needed, may be written later.
func (c Config) seedISO(r provider.Request, incarnation string) ([]byte, error) {
	seed := nocloud.Seed{InstanceID: incarnation, Hostname: r.Name, UserData: r.CloudInit}
	var err error
	if c.Proxy == squid {
		seed.VendorData, err = nocloud.VendorData(c.squid(r))
	}
	if err = errors.Join(err, seed.Validate()); err != nil {
		return nil, wrong(provider.ErrPermanent, provider.UnsupportedField, "cloudInit: %w", err)
	}
	iso, err := seed.ISO()
	if err != nil {
		return nil, wrong(provider.ErrTransient, SeedFailed, "%w", err)
	}
	return iso, nil
}

// definition is a machine as libvirt defines it, on a host that runs such guests.
func (m machine) definition(domainType string, guest libvirtxml.CapsGuestArch, metadata string) libvirtxml.Domain {
	d := libvirtxml.Domain{
		Type:       domainType,
		Name:       m.request.Name,
		Metadata:   &libvirtxml.DomainMetadata{XML: metadata},
		Memory:     &libvirtxml.DomainMemory{Unit: "MiB", Value: m.size.MemoryMiB},
		VCPU:       &libvirtxml.DomainVCPU{Value: m.size.CPUs},
		OS:         m.bootFrom(guest),
		Features:   &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}},
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: m.devices(),
	}
	if domainType == "kvm" {
		d.CPU = &libvirtxml.DomainCPU{Mode: "host-model"}
	}
	return d
}

func (m machine) bootFrom(guest libvirtxml.CapsGuestArch) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:        &libvirtxml.DomainOSType{Type: "hvm", Arch: guest.Name, Machine: machineOf(guest)},
		BootDevices: []libvirtxml.DomainBootDevice{{Dev: "hd"}},
	}
	if m.image.Firmware == efi {
		os.Firmware = "efi"
		os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{{Enabled: "no", Name: "secure-boot"}}}
	}
	return os
}

// machineOf is the board, by the name that stands for its newest version. A host that has neither takes its default.
func machineOf(guest libvirtxml.CapsGuestArch) string {
	for _, board := range []string{"q35", "virt"} {
		if slices.ContainsFunc(guest.Machines, func(m libvirtxml.CapsGuestMachine) bool { return m.Name == board }) {
			return board
		}
	}
	return ""
}

// devices are what a machine has. The seed is on virtio-scsi, because the kernels of cloud images may know no other CD-ROM.
func (m machine) devices() *libvirtxml.DomainDeviceList {
	return &libvirtxml.DomainDeviceList{
		Controllers: []libvirtxml.DomainController{{Type: "scsi", Model: "virtio-scsi"}},
		Disks: []libvirtxml.DomainDisk{
			{
				Device: "disk", Source: m.volume(m.disk()),
				Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Discard: "unmap"},
				Target: &libvirtxml.DomainDiskTarget{Dev: "vda", Bus: "virtio"},
			},
			{
				Device: "cdrom", Source: m.volume(m.seed()), ReadOnly: &libvirtxml.DomainDiskReadOnly{},
				Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
				Target: &libvirtxml.DomainDiskTarget{Dev: "sda", Bus: "scsi"},
			},
		},
		Interfaces: []libvirtxml.DomainInterface{{
			Source: &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: m.host.Network}},
			Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		}},
		Serials:  []libvirtxml.DomainSerial{{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}},
		Consoles: []libvirtxml.DomainConsole{{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
	}
}

// poolOf is the pool in which a machine has its disk and its seed, as its definition says, or else another.
func poolOf(d libvirtxml.Domain, otherwise string) string {
	if d.Devices == nil {
		return otherwise
	}
	for _, disk := range d.Devices.Disks {
		if s := disk.Source; s != nil && s.Volume != nil && s.Volume.Volume == diskOf(d.Name) {
			return s.Volume.Pool
		}
	}
	return otherwise
}

func (m machine) volume(name string) *libvirtxml.DomainDiskSource {
	return &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: m.host.Pool, Volume: name}}
}
