package gcptest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
)

var (
	resourceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKey     = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValue   = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	image        = regexp.MustCompile(`^(https://www\.googleapis\.com/compute/v1/)?(projects/[^/]+/)?global/images/(family/)?[a-z][-a-z0-9]*$`)
	subnetwork   = regexp.MustCompile(`^(projects/[^/]+/)?regions/([a-z0-9-]+)/subnetworks/[a-z0-9-]+$`)
	network      = regexp.MustCompile(`^(projects/[^/]+/)?global/networks/[a-z0-9-]+$`)
)

// judge says what the API would not take about a machine, in its words.
func judge(vm *computepb.Instance, zone string) error {
	for _, judge := range []func(*computepb.Instance, string) error{
		judgeNames, judgeOutput, judgeDisks, judgeNetwork, judgeMetadata, judgeScheduling,
	} {
		if err := judge(vm, zone); err != nil {
			return err
		}
	}
	return nil
}

func wrong(field, value, why string) error {
	return invalid("Invalid value for field 'resource.%s': '%s'. %s", field, value, why)
}

func judgeNames(vm *computepb.Instance, zone string) error {
	if !resourceName.MatchString(vm.GetName()) {
		return wrong("name", vm.GetName(), "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
	}
	kind, ok := strings.CutPrefix(vm.GetMachineType(), "zones/"+zone+"/machineTypes/")
	if !ok || kind == "" || strings.Contains(kind, "/") {
		return wrong("machineType", vm.GetMachineType(), "The URL is malformed.")
	}
	for key, value := range vm.GetLabels() {
		if !labelKey.MatchString(key) || !labelValue.MatchString(value) {
			return wrong("labels", "", "Label key '"+key+"' or its value violates format constraints.")
		}
	}
	for i, tag := range vm.GetTags().GetItems() {
		if !resourceName.MatchString(tag) {
			return wrong("tags.items["+strconv.Itoa(i)+"]", tag, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
	}
	for i, account := range vm.GetServiceAccounts() {
		if account.GetEmail() == "" || len(account.GetScopes()) == 0 {
			return wrong("serviceAccounts["+strconv.Itoa(i)+"]", account.GetEmail(), "At least one scope must be specified.")
		}
	}
	return nil
}

// judgeOutput refuses what only the API may say.
func judgeOutput(vm *computepb.Instance, _ string) error {
	if vm.Id != nil || vm.Status != nil || vm.CreationTimestamp != nil || vm.SelfLink != nil {
		return wrong("id", "", "The field is output only.")
	}
	return nil
}

func judgeDisks(vm *computepb.Instance, zone string) error {
	if len(vm.GetDisks()) != 1 || !vm.GetDisks()[0].GetBoot() {
		return wrong("disks", "", "At least one boot disk is required.")
	}
	disk := vm.GetDisks()[0]
	from := disk.GetInitializeParams()
	if from == nil || disk.Source != nil {
		return wrong("disks[0]", "", "Either initializeParams or source must be specified.")
	}
	if !image.MatchString(from.GetSourceImage()) {
		return wrong("disks[0].initializeParams.sourceImage", from.GetSourceImage(), "The URL is malformed.")
	}
	if from.DiskType != nil && !strings.HasPrefix(from.GetDiskType(), "zones/"+zone+"/diskTypes/") {
		return wrong("disks[0].initializeParams.diskType", from.GetDiskType(), "The URL is malformed.")
	}
	if from.DiskSizeGb != nil && (from.GetDiskSizeGb() < 10 || from.GetDiskSizeGb() > 65536) {
		return wrong("disks[0].initializeParams.diskSizeGb", strconv.FormatInt(from.GetDiskSizeGb(), 10),
			"Disk size must be larger than the size of the image.")
	}
	return nil
}

func judgeNetwork(vm *computepb.Instance, zone string) error {
	if len(vm.GetNetworkInterfaces()) == 0 {
		return wrong("networkInterfaces", "", "At least one network interface is required.")
	}
	nic := vm.GetNetworkInterfaces()[0]
	switch parts := subnetwork.FindStringSubmatch(nic.GetSubnetwork()); {
	case nic.Subnetwork != nil && (parts == nil || !strings.HasPrefix(zone, parts[2]+"-")):
		return wrong("networkInterfaces[0].subnetwork", nic.GetSubnetwork(), "The URL is malformed, or of another region.")
	case nic.Subnetwork == nil && !network.MatchString(nic.GetNetwork()):
		return wrong("networkInterfaces[0].network", nic.GetNetwork(), "The URL is malformed.")
	}
	return judgeAddresses(nic)
}

func judgeAddresses(nic *computepb.NetworkInterface) error {
	for _, c := range nic.GetAccessConfigs() {
		if c.GetType() != "ONE_TO_ONE_NAT" {
			return wrong("networkInterfaces[0].accessConfigs[0].type", c.GetType(), "")
		}
		if c.NetworkTier != nil && !slices.Contains([]string{"PREMIUM", "STANDARD"}, c.GetNetworkTier()) {
			return wrong("networkInterfaces[0].accessConfigs[0].networkTier", c.GetNetworkTier(), "")
		}
	}
	for _, c := range nic.GetIpv6AccessConfigs() {
		if c.GetType() != "DIRECT_IPV6" || c.GetNetworkTier() != "PREMIUM" || nic.GetStackType() != "IPV4_IPV6" || nic.Subnetwork == nil {
			return wrong("networkInterfaces[0].ipv6AccessConfigs[0]", c.GetType(),
				"External IPv6 needs a dual-stack subnetwork and the premium tier.")
		}
	}
	return nil
}

func judgeMetadata(vm *computepb.Instance, _ string) error {
	total := 0
	for i, item := range vm.GetMetadata().GetItems() {
		total += len(item.GetKey()) + len(item.GetValue())
		if item.GetKey() == "" || item.Value == nil {
			return wrong("metadata.items["+strconv.Itoa(i)+"]", item.GetValue(), "Key and value are required.")
		}
		if len(item.GetValue()) > 256<<10 {
			return invalid("Value for field 'resource.metadata.items[%d].value' is too large: maximum size 262144 character(s); actual size %d.",
				i, len(item.GetValue()))
		}
	}
	if total > 512<<10 {
		return invalid("Metadata size is too large: maximum size 524288; actual size %d.", total)
	}
	return nil
}

func judgeScheduling(vm *computepb.Instance, _ string) error {
	s := vm.GetScheduling()
	switch s.GetProvisioningModel() {
	case "", "STANDARD":
		if s.InstanceTerminationAction != nil {
			return wrong("scheduling.instanceTerminationAction", s.GetInstanceTerminationAction(), "Only for spot VMs.")
		}
	case "SPOT":
		if s.AutomaticRestart == nil || s.GetAutomaticRestart() || s.GetOnHostMaintenance() != "TERMINATE" {
			return invalid("Scheduling must have preemptible be false when AutomaticRestart is true.")
		}
		if !slices.Contains([]string{"", "STOP", "DELETE"}, s.GetInstanceTerminationAction()) {
			return wrong("scheduling.instanceTerminationAction", s.GetInstanceTerminationAction(), "")
		}
	default:
		return wrong("scheduling.provisioningModel", s.GetProvisioningModel(), "")
	}
	return nil
}
