package gcp

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/provider"
)

// The labels that hold the marks. Keys and values of labels have no capitals and no dots.
const (
	managedLabel = "proxyfleet_managed"
	fleetLabel   = "proxyfleet_fleet"
	uidLabel     = "proxyfleet_uid"
	hashLabel    = "proxyfleet_hash"
)

var (
	zoneName    = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)*-[a-z]$`)
	machineName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	imagePath   = regexp.MustCompile(`^(https://(www|compute)\.googleapis\.com/compute/v1/)?(projects/[a-z0-9.:-]+/)?` +
		`global/images/(family/)?[a-z][a-z0-9-]*$`)
	labelValue = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
	planned    = regexp.MustCompile(`^zones/([a-z0-9-]+)/instances/([a-z][a-z0-9-]*)$`)
)

func idOf(zone, name string) string { return "zones/" + zone + "/instances/" + name }

// place takes an ID apart. The zone of an instance is always that of its ID: the spec may name another one by now.
func place(op, id string) (zone, name string, err error) {
	parts := planned.FindStringSubmatch(id)
	if parts == nil {
		return "", "", &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NotConfigured,
			Err: fmt.Errorf("%q is no instance of Compute Engine", id)}
	}
	return parts[1], parts[2], nil
}

// refuse returns why nothing can be made from a request, whatever happens, or nil.
func (s settings) refuse(op string, r provider.Request) error {
	var missing []string
	for _, field := range []struct{ name, value string }{
		{"placement.zone", r.Placement.Zone}, {"placement.machineType", r.Placement.MachineType}, {"placement.image", r.Placement.Image},
	} {
		if field.value == "" {
			missing = append(missing, field.name)
		}
	}
	if len(missing) > 0 {
		return provider.Missing(op, strings.Join(missing, ", "))
	}
	if r.Credentials.IsZero() && len(s.AllowedClients) == 0 {
		return provider.Missing(op, "credentials (or allowedClients in the provider's configuration)")
	}
	if problems := s.problems(r); len(problems) > 0 {
		return &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField, Err: errors.Join(problems...)}
	}
	return nil
}

// problems tells what a request has that Compute Engine could not take. An edit with a typo thus stops nothing that runs.
func (s settings) problems(r provider.Request) []error {
	var problems []error
	check := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	const biggestDisk = 65536
	check(zoneName.MatchString(r.Placement.Zone), "placement.zone: want a zone, such as us-central1-a")
	check(machineName.MatchString(r.Placement.MachineType), "placement.machineType: want a name, such as e2-micro")
	check(imagePath.MatchString(r.Placement.Image),
		"placement.image: want a path, such as projects/debian-cloud/global/images/family/debian-12")
	check(r.Placement.DiskSizeGb >= 0 && r.Placement.DiskSizeGb <= biggestDisk, "placement.diskSizeGb: want at most 65536")
	check(resourceName.MatchString(r.Name), "name: want lower-case letters, digits and '-'")
	for _, mark := range []struct{ name, value string }{{"uid", r.Marks.UID}, {"hash", r.Marks.Hash}} { // to validate documents takes neither
		check(mark.value == "" || labelValue.MatchString(mark.value), mark.name+": want at most 63 lower-case letters, digits, '-' and '_', as labels take them")
	}
	if err := s.proxy(r).Validate(); err != nil {
		problems = append(problems, fmt.Errorf("port or credentials: %w", err))
	} else if err := s.oversize(r); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// resource is what Insert is asked for.
func (s settings) resource(r provider.Request) (*computepb.Instance, error) {
	metadata, err := s.metadata(r)
	if err != nil {
		return nil, err
	}
	zone := r.Placement.Zone
	vm := &computepb.Instance{
		Name:        new(r.Name),
		Description: new("A forward proxy of the fleet " + r.Marks.Fleet + ", kept by proxyfleet."),
		Labels: map[string]string{
			managedLabel: "true", fleetLabel: r.Marks.Fleet, uidLabel: r.Marks.UID, hashLabel: r.Marks.Hash,
		},
		MachineType:       new("zones/" + zone + "/machineTypes/" + r.Placement.MachineType),
		Metadata:          metadata,
		Disks:             []*computepb.AttachedDisk{s.disk(zone, r.Placement)},
		NetworkInterfaces: []*computepb.NetworkInterface{s.networkInterface(zone)},
		Scheduling:        s.scheduling(),
	}
	if len(s.Tags) > 0 {
		vm.Tags = &computepb.Tags{Items: s.Tags}
	}
	if s.ServiceAccount != "" {
		vm.ServiceAccounts = []*computepb.ServiceAccount{{
			Email:  new(s.ServiceAccount),
			Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}, // what it may do is for IAM to say
		}}
	}
	return vm, nil
}

// disk is the boot disk, which goes with its machine.
func (s settings) disk(zone string, p provider.Placement) *computepb.AttachedDisk {
	from := &computepb.AttachedDiskInitializeParams{SourceImage: new(p.Image)}
	if p.DiskSizeGb != 0 {
		from.DiskSizeGb = new(p.DiskSizeGb)
	}
	if s.DiskType != "" {
		from.DiskType = new("zones/" + zone + "/diskTypes/" + s.DiskType)
	}
	return &computepb.AttachedDisk{Boot: new(true), AutoDelete: new(true), InitializeParams: from}
}

func (s settings) networkInterface(zone string) *computepb.NetworkInterface {
	nic := &computepb.NetworkInterface{}
	switch {
	case subnetPath.MatchString(s.Subnetwork):
		nic.Subnetwork = new(s.Subnetwork)
	case s.Subnetwork != "":
		region := zone[:strings.LastIndex(zone, "-")]
		nic.Subnetwork = new("regions/" + region + "/subnetworks/" + s.Subnetwork)
	default:
		nic.Network = new("global/networks/default")
	}
	if s.Address == ipv4 || s.Address == dual {
		external := &computepb.AccessConfig{Type: new("ONE_TO_ONE_NAT"), Name: new("External NAT")}
		if s.NetworkTier != "" {
			external.NetworkTier = new(s.NetworkTier)
		}
		nic.AccessConfigs = []*computepb.AccessConfig{external}
	}
	if s.Address == ipv6 || s.Address == dual {
		nic.StackType = new("IPV4_IPV6")
		nic.Ipv6AccessConfigs = []*computepb.AccessConfig{{
			Type: new("DIRECT_IPV6"), Name: new("External IPv6"),
			NetworkTier: new("PREMIUM"), // there is no other for IPv6
		}}
	}
	return nic
}

// scheduling stops a spot machine that is taken away, so that the fleet sees why it went, and deletes it.
func (s settings) scheduling() *computepb.Scheduling {
	if s.Provisioning == onDemand {
		return &computepb.Scheduling{ProvisioningModel: new("STANDARD")}
	}
	return &computepb.Scheduling{
		ProvisioningModel:         new("SPOT"),
		InstanceTerminationAction: new("STOP"),
		OnHostMaintenance:         new("TERMINATE"),
		AutomaticRestart:          new(false),
	}
}

// instance is what the fleet makes of a machine.
func (s settings) instance(zone string, vm *computepb.Instance) provider.Instance {
	in := provider.Instance{
		ID:          idOf(zone, vm.GetName()),
		Incarnation: strconv.FormatUint(vm.GetId(), 10),
		Marks:       provider.Marks{Fleet: vm.GetLabels()[fleetLabel], UID: vm.GetLabels()[uidLabel], Hash: vm.GetLabels()[hashLabel]},
		State:       stateOf(vm.GetStatus()),
		Message:     safe(vm.GetStatusMessage()),
	}
	in.Created, _ = time.Parse(time.RFC3339, vm.GetCreationTimestamp()) // zero is what stands for unknown
	if in.State != provider.Running {
		in.Reason = camel(vm.GetStatus())
		return in
	}
	if in.Host = s.host(vm); in.Host == "" {
		in.State, in.Reason = provider.Provisioning, noAddress
	}
	return in
}

// stateOf is what a status means. One that is not known is Stopped: the fleet makes another instance.
func stateOf(status string) provider.State {
	switch status {
	case "PENDING", "PROVISIONING", "STAGING", "REPAIRING":
		return provider.Provisioning
	case "RUNNING":
		return provider.Running
	case "PENDING_STOP", "STOPPING", "SUSPENDING", "DEPROVISIONING":
		return provider.Terminating
	}
	return provider.Stopped
}

// host is where a machine is reached, or "".
func (s settings) host(vm *computepb.Instance) string {
	for _, nic := range vm.GetNetworkInterfaces() {
		address := ""
		switch s.Address {
		case internal:
			address = nic.GetNetworkIP()
		case ipv6:
			for _, c := range nic.GetIpv6AccessConfigs() {
				address = c.GetExternalIpv6()
			}
		default:
			for _, c := range nic.GetAccessConfigs() {
				address = c.GetNatIP()
			}
		}
		if address != "" {
			return address
		}
	}
	return ""
}

// camel is a word of the API as the fleet writes reasons: PENDING_STOP is PendingStop.
func camel(word string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.ToLower(word), "_") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
