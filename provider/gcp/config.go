package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// Config is what the fleet's configuration says about this provider. What costs money has no default.
type Config struct {
	// Project is the ID of the Google Cloud project. Required.
	Project string `json:"project"`
	// Provisioning is how machines are paid for: "onDemand", or "spot", which is cheaper and may be taken away at any moment.
	// Required.
	Provisioning string `json:"provisioning"`
	// Address is what a machine is reached at, and crawls from: "ipv4" is an external address of its own; "ipv6" is an external
	// IPv6 address instead, and "dual" one beside; "internal" is none but that of the network, behind whatever NAT it has. With
	// "dual", clients connect over IPv4. Required.
	Address string `json:"address"`

	// CredentialsFile is the path of a service account's key, or of a configuration for workload identity federation. Defaults
	// to application default credentials.
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// Subnetwork is the name of a subnetwork that each region has, or the path of one, such as
	// "projects/p/regions/us-central1/subnetworks/s". Required for "ipv6" and "dual"; defaults to the project's default network.
	Subnetwork string `json:"subnetwork,omitempty"`
	// NetworkTier is "PREMIUM" or "STANDARD", for an external IPv4 address. Defaults to that of the project.
	NetworkTier string `json:"networkTier,omitempty"`
	// Tags are the network tags of machines, for firewall rules. Defaults to none.
	Tags []string `json:"tags,omitempty"`
	// ServiceAccount is the e-mail address of the service account that machines run as. Defaults to none, which is what a proxy
	// needs.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// DiskType is the type of the boot disk, such as "pd-balanced". Defaults to that of Compute Engine.
	DiskType string `json:"diskType,omitempty"`

	// AllowedClients are the networks that may use the proxies. Defaults to everybody who knows the password; required for
	// proxies without one.
	AllowedClients []netip.Prefix `json:"allowedClients,omitempty"`
	// AllowedDestinations are the private networks that proxies may lead to. Defaults to none.
	AllowedDestinations []netip.Prefix `json:"allowedDestinations,omitempty"`

	// Endpoint is the URL of the API, for Private Service Connect and for test servers. Defaults to Google's.
	Endpoint string `json:"endpoint,omitempty"`
	// WithoutAuthentication sends no credentials, to a test server at Endpoint. Defaults to false.
	WithoutAuthentication bool `json:"withoutAuthentication,omitempty"`
	// Settle is how long after a create a test server may answer that nothing is there, such as "2s"; see provider.Delays. It
	// is for WithoutAuthentication only, because Compute Engine's own is known. Defaults to 5 minutes.
	Settle string `json:"settle,omitempty"`
}

// The values of Config.Provisioning.
const (
	onDemand = "onDemand"
	spot     = "spot"
)

// The values of Config.Address.
const (
	ipv4     = "ipv4"
	ipv6     = "ipv6"
	dual     = "dual"
	internal = "internal"
)

var (
	projectID    = regexp.MustCompile(`^([a-z][-a-z0-9.]*[a-z0-9]:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$`)
	resourceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subnetPath   = regexp.MustCompile(`^(projects/[^/]+/)?regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+$`)
	email        = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)
)

// settings are a configuration that is right.
type settings struct {
	Config
	delays provider.Delays
}

func decode(raw json.RawMessage) (settings, error) {
	var c Config
	if err := provider.DecodeConfig(raw, &c); err != nil {
		return settings{}, err
	}
	s := settings{Config: c, delays: provider.DefaultDelays()}
	problems := append(c.placeProblems(), c.endpointProblems()...)
	if c.Settle != "" {
		settle, err := time.ParseDuration(c.Settle)
		if err != nil || settle < time.Second || settle > time.Hour {
			problems = append(problems, errors.New("settle: want a duration from 1s to 1h"))
		}
		s.delays = provider.Delays{Call: settle / 2, Settle: settle}
	}
	return s, errors.Join(problems...)
}

// problem is something that may be wrong with a configuration.
type problem struct {
	wrong bool
	text  string
}

func errorsOf(all []problem) []error {
	var problems []error
	for _, p := range all {
		if p.wrong {
			problems = append(problems, errors.New(p.text))
		}
	}
	return problems
}

// placeProblems tells what is wrong with where and how machines are to run.
func (c Config) placeProblems() []error {
	oneOf := func(value string, known ...string) bool { return slices.Contains(known, value) }
	fits := func(value string, forms ...*regexp.Regexp) bool {
		return value == "" || slices.ContainsFunc(forms, func(form *regexp.Regexp) bool { return form.MatchString(value) })
	}
	badTag := slices.IndexFunc(c.Tags, func(tag string) bool { return !resourceName.MatchString(tag) })
	return errorsOf([]problem{
		{!projectID.MatchString(c.Project), "project: want the ID of a Google Cloud project, such as my-project-123"},
		{!oneOf(c.Provisioning, onDemand, spot),
			`provisioning: want "onDemand" or "spot"; neither is the default, because they differ in price`},
		{!oneOf(c.Address, ipv4, ipv6, dual, internal),
			`address: want "ipv4", "ipv6", "dual" or "internal"; none is the default, because external addresses cost money`},
		{!fits(c.Subnetwork, resourceName, subnetPath),
			"subnetwork: want a name, or a path like projects/p/regions/us-central1/subnetworks/s"},
		{c.Subnetwork == "" && oneOf(c.Address, ipv6, dual), "subnetwork: required for IPv6, which the default network does not have"},
		{!oneOf(c.NetworkTier, "", "PREMIUM", "STANDARD"), "networkTier: want PREMIUM or STANDARD"},
		{badTag >= 0, fmt.Sprintf("tags[%d]: want lower-case letters, digits and '-', beginning with a letter", badTag)},
		{!fits(c.ServiceAccount, email), "serviceAccount: want an e-mail address"},
		{!fits(c.DiskType, resourceName), "diskType: want a name, such as pd-balanced"},
	})
}

// endpointProblems tells what is wrong with where the API is.
func (c Config) endpointProblems() []error {
	u, err := url.Parse(c.Endpoint)
	isURL := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && (u.Scheme == "https" || u.Scheme == "http")
	return errorsOf([]problem{
		{c.Endpoint != "" && !isURL, "endpoint: want a URL like https://compute-psc.p.googleapis.com"},
		{isURL && u.Scheme == "http" && !c.WithoutAuthentication,
			"endpoint: want https, because credentials are sent there; for a test server set withoutAuthentication"},
		{c.WithoutAuthentication && c.Endpoint == "", "withoutAuthentication: only for a test server, which endpoint names"},
		{c.WithoutAuthentication && c.CredentialsFile != "", "credentialsFile: not used with withoutAuthentication"},
		{c.Settle != "" && !c.WithoutAuthentication, "settle: only for a test server; Compute Engine's own is known"},
	})
}
