package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

func newValidate(types map[string]ProviderType) *cobra.Command {
	var d documents
	cmd := &cobra.Command{
		Use:   "validate -f FILE...",
		Short: "Check documents without applying them",
		Long: `validate says all that is wrong with documents, down to the configuration of the providers: all that run
would refuse before it changes anything. It may be used while a fleet runs on the same files.

It warns of proxies that would be declared and could not be made as they are.`,
		Example: `  proxyfleet validate -f fleet.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.validate(); err != nil {
				return err
			}
			set, providers, err := d.load(types)
			if err != nil {
				return err
			}
			doubts, err := rehearse(cmd.Context(), set, providers)
			if err != nil {
				return err
			}
			for _, doubt := range doubts {
				complain(cmd.ErrOrStderr(), doubt)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "valid: proxies %d, Secrets %d, providers %d\n", len(set.Proxies), len(set.Secrets), len(providers))
			return nil
		},
	}
	d.addFlags(cmd.Flags())
	return cmd
}

// rehearse applies a set to a store that is thrown away, and returns a warning for each proxy that could not be made.
func rehearse(ctx context.Context, set *manifest.Set, providers map[string]provider.Provider) (doubts []error, err error) {
	secrets := manifest.NewSecrets()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "rehearsal", Secrets: secrets})
	applier, err := manifest.NewApplier(manifest.ApplierConfig{Store: store, Secrets: secrets})
	if err != nil {
		return nil, err
	}
	if err := applier.Apply(ctx, set); err != nil {
		return nil, err
	}
	all, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		in, err := store.Inputs(ctx, p)
		if err == nil {
			err = plan(p, in, providers)
		}
		if err != nil {
			doubts = append(doubts, fmt.Errorf("warning: Proxy %v: %w", p.Key, err))
		}
	}
	return doubts, nil
}

// plan returns why a proxy that is to be made cannot be, as far as that is known without asking anybody.
func plan(p *proxy.Proxy, in proxy.Inputs, providers map[string]provider.Provider) error {
	spec := p.Spec.Canonical()
	if spec.Mode != proxy.Managed {
		return nil
	}
	made, ok := providers[spec.Provider]
	if !ok {
		return fmt.Errorf("spec.provider: no provider %q is configured", spec.Provider)
	}
	_, err := made.Plan(provider.Request{
		Name:        "proxy-rehearsal",
		Placement:   provider.Placement(spec.Placement),
		Port:        int(spec.Port),
		CloudInit:   in.CloudInit,
		Credentials: provider.Credentials{Username: in.Username, Password: in.Password},
	})
	return err
}
