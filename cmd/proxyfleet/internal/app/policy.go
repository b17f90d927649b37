package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxyfleet/fleet/lease"
)

// policy is the value of the flag that names the order in which proxies are leased.
type policy string

// fewestActive is what a fleet has that says nothing.
const fewestActive policy = "fewest-active"

func policies() map[policy]lease.Policy {
	return map[policy]lease.Policy{
		fewestActive: lease.FewestActive{},
		"spread":     lease.Spread{},
		"fastest":    lease.Fastest{},
		"random":     lease.Random{},
	}
}

// UnmarshalText reads the name of a policy.
func (p *policy) UnmarshalText(text []byte) error {
	if policies()[policy(text)] == nil {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(policies())) {
			names = append(names, string(name))
		}
		return fmt.Errorf("must be one of %s, not %q", strings.Join(names, ", "), text)
	}
	*p = policy(text)
	return nil
}

// MarshalText returns the name of a policy.
func (p policy) MarshalText() ([]byte, error) { return []byte(p), nil }
