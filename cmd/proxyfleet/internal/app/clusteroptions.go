package app

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// clusterOptions are what the flags of run say of a fleet whose proxies are objects of a Kubernetes cluster.
type clusterOptions struct {
	kubernetes bool
	kubeconfig string
	namespace  string // "": all
	fleetID    string

	elect         bool
	electionID    string
	electionSpace string // "": the one that the process is in
	advertise     string

	gcNamespaced bool
}

func (o *clusterOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.kubernetes, "kubernetes", false, "keep the Proxy objects of a Kubernetes cluster, instead of documents; -f then holds a FleetConfiguration at most")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` that says which cluster (default: the one that this process runs in, else as kubectl finds it)")
	flags.StringVar(&o.namespace, "namespace", "", "`NAMESPACE` whose proxies are kept, and no others (default: all)")
	flags.StringVar(&o.fleetID, "fleet-id", "", "`ID` of the fleet in a cluster, instead of the configuration's fleetID (default, if all instances are pods: made from the election's namespace)")
	flags.BoolVar(&o.elect, "leader-elect", true, "take part in the election of a leader; false is for one replica alone")
	flags.StringVar(&o.electionID, "leader-election-id", "proxyfleet", "`NAME` of the Lease by which replicas elect the one that leads")
	flags.StringVar(&o.electionSpace, "leader-election-namespace", "", "`NAMESPACE` of that Lease (default: the one that this process runs in)")
	flags.StringVar(&o.advertise, "advertise-address", "", "`ADDRESS` at which the other replicas reach this one's API, with a port or with that of --listen (default: that of --listen)")
	flags.BoolVar(&o.gcNamespaced, "gc-allow-namespaced", false, "with --namespace, delete instances that no proxy there holds: only if no other process keeps proxies under this fleet ID")
}

// refuseForeign refuses flags that have no meaning for the kind of fleet that is asked for: what they were to do would not be
// done.
func (o *clusterOptions) refuseForeign(given func(string) bool) error {
	foreign, why := []string{"kubeconfig", "namespace", "fleet-id", "leader-elect", "leader-election-id", "leader-election-namespace",
		"advertise-address", "gc-allow-namespaced"}, "only with --kubernetes"
	if o.kubernetes {
		foreign = []string{"state", "secrets-dir", "leases", "allow-delete", "documents-poll"}
		why = "only without --kubernetes: there, proxies, Secrets and state are objects of the cluster, and leases are in memory"
	}
	var flags []string
	for _, name := range foreign {
		if given(name) {
			flags = append(flags, "--"+name)
		}
	}
	if len(flags) == 0 {
		return nil
	}
	verb := "has"
	if len(flags) > 1 {
		verb = "have"
	}
	return misused("%s %s a meaning %s", strings.Join(flags, ", "), verb, why)
}

// validate refuses what cannot name what it is to name.
func (o *clusterOptions) validate(listen string) error {
	for _, f := range []struct {
		flag, value string
		check       func(string) []string
	}{
		{"namespace", o.namespace, validation.IsDNS1123Label},
		{"leader-election-namespace", o.electionSpace, validation.IsDNS1123Label},
		{"leader-election-id", o.electionID, validation.IsDNS1123Subdomain},
		{"fleet-id", o.fleetID, checkFleetID},
	} {
		if f.value == "" && f.flag != "leader-election-id" {
			continue
		}
		if problems := f.check(f.value); len(problems) > 0 {
			return misused("--%s %q: %s", f.flag, f.value, problems[0])
		}
	}
	if o.gcNamespaced && o.namespace == "" {
		return misused("--gc-allow-namespaced has a meaning only with --namespace")
	}
	return o.validateAddress(listen)
}

// validateAddress refuses an address that others cannot ask for. Whether it leads to this process only they find out.
func (o *clusterOptions) validateAddress(listen string) error {
	if !o.elect {
		return nil
	}
	if o.advertise != "" {
		if ip, err := netip.ParseAddr(o.advertise); err == nil && !ip.IsUnspecified() {
			return nil // with whatever port this one gets
		}
		if !dialable(o.advertise) {
			return misused("--advertise-address %s must be HOST:PORT, with a host and a port that others can ask for, or an IP address", o.advertise)
		}
		return nil
	}
	if host, _, err := net.SplitHostPort(listen); err != nil || unspecified(host) {
		return misused("--listen %s is no address that others can ask for: say --advertise-address HOST:PORT, or --leader-elect=false for one replica alone", listen)
	}
	return nil
}

// address is where others reach an API that listens at another: an IP address alone, as a pod knows its own, gets that one's port.
func (o *clusterOptions) address(listening string) string {
	if ip, err := netip.ParseAddr(o.advertise); err == nil {
		_, port, _ := net.SplitHostPort(listening)
		return net.JoinHostPort(ip.String(), port)
	}
	return cmp.Or(o.advertise, listening)
}

func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && !unspecified(host) && !slices.Contains([]string{"", "0"}, port)
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// checkFleetID returns what is wrong with the identity of a fleet.
func checkFleetID(id string) []string {
	valid := len(id) <= 63 && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
	if valid {
		return nil
	}
	return []string{"must be 1 to 63 of a-z, 0-9 and -"}
}
