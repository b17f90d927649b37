package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/proxyfleet/fleet/proxy"
)

// Configuration is what a document of kind FleetConfiguration holds.
type Configuration struct {
	// FleetID is the identity of the fleet, from which the names and marks of its instances are made: 1 to 63 lower-case
	// letters, digits or '-'. It may be left out; who needs it says so.
	FleetID string `json:"fleetID,omitempty"`
	// HealthCheck holds what the health checks of proxies default to. Its own fields default to the built-in ones.
	HealthCheck proxy.HealthCheck `json:"healthCheck,omitzero"`
	// Providers are what the proxies of mode Managed may name.
	Providers []Provider `json:"providers,omitempty"`
}

// Provider is one configured provider.
type Provider struct {
	// Name is what specs call it.
	Name string `json:"name"`
	// Type says which implementation it is.
	Type string `json:"type"`
	// MaxInstances is how many instances it may have at once. Defaults to 0, which is no limit.
	MaxInstances int `json:"maxInstances,omitempty"`
	// Config is an object that the implementation decodes, and refuses what it does not know. Defaults to an empty one.
	Config json.RawMessage `json:"config,omitempty"`
}

var (
	fleetID  = regexp.MustCompile(`^[-a-z0-9]{1,63}$`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// validate returns all problems.
func (c *Configuration) validate() []error {
	var all []error
	add := func(field, format string, args ...any) {
		all = append(all, &proxy.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.FleetID != "" && !fleetID.MatchString(c.FleetID) {
		add("fleetID", "must be 1 to 63 lower-case letters, digits or '-', not %q", c.FleetID)
	}
	if err := proxy.ValidateHealthCheck("healthCheck", c.HealthCheck); err != nil {
		all = append(all, err)
	}
	names := map[string]bool{}
	for i, p := range c.Providers {
		field := fmt.Sprintf("providers[%d]", i)
		switch {
		case !dnsLabel.MatchString(p.Name):
			add(field+".name", "must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not %q", p.Name)
		case names[p.Name]:
			add(field+".name", "must be unique: another provider is named %q", p.Name)
		}
		names[p.Name] = true
		if p.Type == "" {
			add(field+".type", "is required: the kind of provider")
		}
		if p.MaxInstances < 0 {
			add(field+".maxInstances", "must be at least 1, or left out for no limit, not %d", p.MaxInstances)
		}
		if p.Config[0] != '{' {
			add(field+".config", "must be an object")
		}
	}
	return all
}
