package app

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
)

// documents are the files that declare a fleet, and where it keeps its state.
type documents struct {
	files      []string
	secretsDir string
	state      string
}

func (d *documents) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&d.files, "file", "f", nil, "`FILE` of YAML documents: Proxy, Secret and FleetConfiguration; may be repeated (required)")
	flags.StringVar(&d.secretsDir, "secrets-dir", "", "`DIR` of further Secrets, laid out as NAMESPACE/NAME/KEY")
	flags.StringVar(&d.state, "state", "", "state `FILE` (default: the first -f file's name with the extension .db)")
}

func (d *documents) validate() error {
	if len(d.files) == 0 {
		return misused("-f FILE is required: the YAML documents that declare the fleet")
	}
	return nil
}

func (d *documents) sources() manifest.Sources {
	return manifest.Sources{Files: d.files, SecretsDir: d.secretsDir}
}

// statePath is the file that the fleet keeps its records in.
func (d *documents) statePath() string { return cmp.Or(d.state, withoutExtension(d.files[0])+".db") }

// providerDir is the directory in which each provider may have one of its own.
func (d *documents) providerDir() string { return withoutExtension(d.statePath()) + ".d" }

func withoutExtension(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) }

// load reads the documents, and returns all that is wrong with them, down to the configuration of the providers. It changes
// nothing: what it opens is to be looked at only.
func (d *documents) load(types map[string]ProviderType) (*manifest.Set, map[string]provider.Provider, error) {
	set, err := manifest.Load(d.sources())
	if err != nil {
		return nil, nil, err
	}
	c := configuration(set)
	fleet, unnamed := c.FleetID, checkIdentity(c, types)
	if unnamed != nil {
		fleet = notKnown
	}
	providers, err := openProviders(c, types, provider.Environment{Fleet: fleet, StateDir: d.providerDir()})
	if err := errors.Join(unnamed, err); err != nil {
		return nil, nil, err
	}
	return set, providers, nil
}

// notKnown stands for the identity of a fleet in providers that are to be looked at only.
const notKnown = "not-known-yet"

// configuration returns that of a set, or an empty one where no document holds it.
func configuration(set *manifest.Set) *manifest.Configuration {
	return cmp.Or(set.Configuration, &manifest.Configuration{})
}

// checkIdentity refuses a fleet that would not find its instances again once its state is lost.
func checkIdentity(c *manifest.Configuration, types map[string]ProviderType) error {
	if c.FleetID != "" {
		return nil
	}
	for _, p := range c.Providers {
		if types[p.Type].Outlives {
			return fmt.Errorf("FleetConfiguration: fleetID is required: instances of provider %q outlive this process and are found again by it; "+
				"choose one that no other fleet there has, and never change it", p.Name)
		}
	}
	return nil
}

// openProviders opens the configured providers for a fleet.
func openProviders(c *manifest.Configuration, types map[string]ProviderType, env provider.Environment) (map[string]provider.Provider, error) {
	configs := make([]provider.Config, len(c.Providers))
	for i, p := range c.Providers {
		configs[i] = provider.Config(p)
	}
	constructors := make(map[string]provider.Constructor, len(types))
	for name, t := range types {
		constructors[name] = t.New
	}
	return provider.Open(configs, constructors, env)
}
