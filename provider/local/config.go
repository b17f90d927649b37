package local

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/proxyfleet/fleet/provider"
)

// Config is what this provider asks for, as JSON.
type Config struct {
	// Addresses are where instances listen, one each, on the port that their proxy asks for: addresses, ranges such as
	// "127.0.0.10-127.0.0.29" and prefixes such as "127.0.0.16/28", of which all addresses count. Required.
	Addresses []string `json:"addresses"`
	// SourceAddresses are where connections leave from, in the same form: the first belongs to the first of Addresses, and
	// so on, so there must be as many. Defaults to what the host chooses.
	SourceAddresses []string `json:"sourceAddresses,omitempty"`
	// AllowNonLoopback lets Addresses be ones that other hosts can reach. Each proxy then needs credentials. Defaults to
	// false.
	AllowNonLoopback bool `json:"allowNonLoopback,omitempty"`
	// AllowedDestinations are addresses and prefixes of loopback and private networks, and addresses of this host, that the
	// proxies may relay to, at all ports or at one: "127.0.0.1:8080", "10.1.0.0/16:443", "[fd00::1]:443". Defaults to none.
	AllowedDestinations []string `json:"allowedDestinations,omitempty"`
}

// settings are a Config that has been found good.
type settings struct {
	pool    pool
	blocks  []block // what Check looks at
	exposed bool    // some address can be reached from other hosts
	allowed []destination
}

func decode(raw json.RawMessage) (settings, error) {
	var c Config
	if err := provider.DecodeConfig(raw, &c); err != nil {
		return settings{}, err
	}
	return c.settings()
}

// settings returns what a Config means, or all that is wrong with it.
func (c Config) settings() (settings, error) {
	var s settings
	var problems [5]error
	s.pool.listen, problems[0] = expand("config.addresses", c.Addresses)
	s.pool.source, problems[1] = expand("config.sourceAddresses", c.SourceAddresses)
	if len(s.pool.listen) == 0 && problems[0] == nil {
		problems[2] = errors.New("config.addresses: at least one is required")
	}
	if n := len(s.pool.source); n > 0 && n != len(s.pool.listen) && problems[0] == nil && problems[1] == nil {
		problems[2] = fmt.Errorf("config.sourceAddresses: there are %d, and %d addresses: want one for each", n, len(s.pool.listen))
	}
	for _, a := range s.pool.listen {
		if a.IsLoopback() {
			continue
		}
		s.exposed = true
		if !c.AllowNonLoopback {
			problems[3] = fmt.Errorf("config.addresses: other hosts can reach %v: set allowNonLoopback, and credentials for each proxy, if they shall", a)
			break
		}
	}
	s.blocks = append(blocks(listenBlock, c.Addresses), blocks(sourceBlock, c.SourceAddresses)...)
	s.allowed, problems[4] = parseAllowed(c.AllowedDestinations)
	return s, errors.Join(problems[:]...)
}
