package libvirt

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/proxyfleet/fleet/provider"
)

// Config is what the fleet's configuration says about a provider of virtual machines.
type Config struct {
	// Hosts are the hypervisors. At least one is required.
	Hosts []HostConfig `json:"hosts"`
	// Images are the disks that machines begin with. At least one is required.
	Images []Image `json:"images"`
	// MachineTypes are the sizes of machines. At least one is required.
	MachineTypes []MachineType `json:"machineTypes"`
	// DomainTypes are the ways to run a machine, the best one first: the first that a host offers is taken. "kvm" is hardware
	// virtualisation, "qemu" is emulation, which is slow. Defaults to "kvm" alone.
	DomainTypes []string `json:"domainTypes,omitempty"`
	// AddressSources say who is asked for a machine's address, in this order: "lease" is the DHCP server of a libvirt network,
	// "agent" the guest agent, "arp" the host's neighbour table. Defaults to the provider's own order.
	AddressSources []string `json:"addressSources,omitempty"`
	// Proxy says who sets up the proxy in a machine: "squid" is this provider, through vendor-data; "none" is the image, or the
	// user's cloud-init, and then credentials are theirs to set up as well. Defaults to "squid".
	Proxy string `json:"proxy,omitempty"`
	// AllowedClients are the networks that may use the proxies. Defaults to everybody who knows the password; required for
	// proxies without one.
	AllowedClients []netip.Prefix `json:"allowedClients,omitempty"`
	// AllowedDestinations are the private networks that proxies may lead to. Defaults to none.
	AllowedDestinations []netip.Prefix `json:"allowedDestinations,omitempty"`
}

// HostConfig is one hypervisor.
type HostConfig struct {
	// Name is what proxies call it by, as their placement.zone: letters, digits, '-' and '_'. It is part of the IDs of instances
	// and must stay. Required.
	Name string `json:"name"`
	// Address is that of its SSH server. The port defaults to 22. Required.
	Address string `json:"address"`
	// User is who logs in there. Required.
	User string `json:"user"`
	// KeyFile is the path of the user's private key, which has no passphrase. Required.
	KeyFile string `json:"keyFile"`
	// KnownHostsFile is the path of a file with the host's keys, as OpenSSH has it. Required.
	KnownHostsFile string `json:"knownHostsFile"`
	// Pool is the storage pool for images, disks and seeds of machines that are yet to be made. Defaults to "default".
	Pool string `json:"pool,omitempty"`
	// Network is the libvirt network that machines are connected to. Defaults to "default".
	Network string `json:"network,omitempty"`
	// Socket is the path of libvirtd's socket. Defaults to "/var/run/libvirt/libvirt-sock".
	Socket string `json:"socket,omitempty"`
	// URI is what libvirtd is asked for. Defaults to "qemu:///system".
	URI string `json:"uri,omitempty"`
}

// Image is a disk that machines begin with: qcow2 or raw, of a system with cloud-init.
type Image struct {
	// Name is what proxies call it by, as their placement.image. Required.
	Name string `json:"name"`
	// URL is where the fleet gets it from: http or https. Of what it asks for, a token in its query say, nothing is ever shown, and
	// nothing of where its server leads but the host. Required.
	URL string `json:"url"`
	// SHA256 is that of the file, in hexadecimal. Required.
	SHA256 string `json:"sha256"`
	// Firmware is what boots it: "efi", without secure boot, or "bios". Defaults to "efi".
	Firmware string `json:"firmware,omitempty"`
}

// MachineType is a size of machines.
type MachineType struct {
	// Name is what proxies call it by, as their placement.machineType. Required.
	Name string `json:"name"`
	// CPUs is how many a machine has, 1 to 256. Required.
	CPUs uint `json:"cpus"`
	// MemoryMiB is how much memory a machine has, at least 64. Required.
	MemoryMiB uint `json:"memoryMiB"`
}

const (
	squid = "squid"
	none  = "none"
	efi   = "efi"
	bios  = "bios"
)

var (
	word   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	sha256 = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// withDefaults returns the configuration with what it leaves out.
func (c Config) withDefaults(sources []string) Config {
	c.DomainTypes = orElse(c.DomainTypes, "kvm")
	c.AddressSources = orElse(c.AddressSources, sources...)
	c.Proxy = cmp.Or(c.Proxy, squid)
	c.Hosts, c.Images = slices.Clone(c.Hosts), slices.Clone(c.Images)
	for i := range c.Hosts {
		h := &c.Hosts[i]
		h.Pool = cmp.Or(h.Pool, "default")
		h.Network = cmp.Or(h.Network, "default")
		h.Socket = cmp.Or(h.Socket, "/var/run/libvirt/libvirt-sock")
		h.URI = cmp.Or(h.URI, "qemu:///system")
		if _, _, err := net.SplitHostPort(h.Address); err != nil && h.Address != "" {
			h.Address = net.JoinHostPort(h.Address, "22")
		}
	}
	for i := range c.Images {
		c.Images[i].Firmware = cmp.Or(c.Images[i].Firmware, efi)
	}
	return c
}

func orElse(values []string, otherwise ...string) []string {
	if len(values) == 0 {
		return otherwise
	}
	return values
}

// validate returns all that is wrong at once.
func (c Config) validate() error {
	problems := slices.Concat(
		namesOf("hosts", c.Hosts, func(h HostConfig) string { return h.Name }),
		namesOf("images", c.Images, func(i Image) string { return i.Name }),
		namesOf("machineTypes", c.MachineTypes, func(m MachineType) string { return m.Name }),
		oneOf("domainTypes", c.DomainTypes, "kvm", "qemu", "test"),
		oneOf("addressSources", c.AddressSources, Lease, Agent, ARP),
		oneOf("proxy", []string{c.Proxy}, squid, none),
	)
	for i, h := range c.Hosts {
		problems = append(problems, h.problems(fmt.Sprintf("hosts[%d]", i))...)
	}
	for i, image := range c.Images {
		problems = append(problems, image.problems(fmt.Sprintf("images[%d]", i))...)
	}
	for i, m := range c.MachineTypes {
		if m.CPUs < 1 || m.CPUs > 256 {
			problems = append(problems, fmt.Errorf("machineTypes[%d].cpus: want 1 to 256", i))
		}
		if m.MemoryMiB < 64 {
			problems = append(problems, fmt.Errorf("machineTypes[%d].memoryMiB: want at least 64", i))
		}
	}
	return errors.Join(problems...)
}

func (h HostConfig) problems(at string) []error {
	var problems []error
	required := func(field, value string) {
		if value == "" {
			problems = append(problems, fmt.Errorf("%s.%s: required", at, field))
		}
	}
	required("address", h.Address)
	required("user", h.User)
	required("keyFile", h.KeyFile)
	required("knownHostsFile", h.KnownHostsFile)
	if !filepath.IsAbs(h.Socket) {
		problems = append(problems, fmt.Errorf("%s.socket: want an absolute path", at))
	}
	return problems
}

func (i Image) problems(at string) []error {
	var problems []error
	if u, err := url.Parse(i.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		problems = append(problems, fmt.Errorf("%s.url: want an http or https URL without credentials", at))
	}
	if !sha256.MatchString(i.SHA256) {
		problems = append(problems, fmt.Errorf("%s.sha256: want 64 hexadecimal digits in lower case", at))
	}
	return append(problems, oneOf(at+".firmware", []string{i.Firmware}, efi, bios)...)
}

// namesOf tells of names that are none, and of those that are there twice.
func namesOf[T any](at string, all []T, name func(T) string) []error {
	var problems []error
	if len(all) == 0 {
		problems = append(problems, fmt.Errorf("%s: want at least one", at))
	}
	seen := map[string]bool{}
	for i, one := range all {
		switch name := name(one); {
		case !word.MatchString(name):
			problems = append(problems, fmt.Errorf("%s[%d].name: want 1 to 63 letters, digits, '.', '-' and '_'", at, i))
		case seen[name]:
			problems = append(problems, fmt.Errorf("%s[%d].name: another has it already", at, i))
		default:
			seen[name] = true
		}
	}
	return problems
}

func oneOf(at string, values []string, known ...string) []error {
	var problems []error
	for _, value := range values {
		if !slices.Contains(known, value) {
			problems = append(problems, fmt.Errorf("%s: %q is not known; want some of %q", at, value, known))
		}
	}
	return problems
}

// chosen returns the one that a proxy names; where there is one alone, nobody needs to name it.
func chosen[T any](op, field, name string, all []T, nameOf func(T) string) (T, error) {
	if name == "" && len(all) == 1 {
		return all[0], nil
	}
	var nothing T
	if name == "" {
		return nothing, provider.Missing(op, field)
	}
	i := slices.IndexFunc(all, func(one T) bool { return nameOf(one) == name })
	if i < 0 {
		return nothing, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField,
			Err: fmt.Errorf("%s: %q is not configured", field, name)}
	}
	return all[i], nil
}
