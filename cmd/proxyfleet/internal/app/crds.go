package app

import (
	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/api/v1alpha1"
)

func newCRDs() *cobra.Command {
	return &cobra.Command{
		Use:   "crds",
		Short: "Print the definitions that a Kubernetes cluster needs",
		Long: `crds prints the CustomResourceDefinitions of the objects that this release keeps in a Kubernetes cluster, Proxy
and ProviderHealth, as YAML. Apply them before a release that is new there is run.`,
		Example: `  proxyfleet crds | kubectl apply --server-side -f -`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(v1alpha1.CRDs())
			return err
		},
	}
}
