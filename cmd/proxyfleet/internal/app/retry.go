package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

func newRetry() *cobra.Command {
	var c connection
	var namespace namespace
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "Try at once to make a proxy, whatever failed before",
		Long: `retry asks for another attempt at a proxy that could not be made, now and not when its turn comes: because
somebody has repaired what was wrong.`,
		Example: `  proxyfleet retry one`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := namespace.of(args[0])
			if err != nil {
				return err
			}
			return c.call(func(fleet *client.Client) error {
				p, err := fleet.Retry(cmd.Context(), in, name)
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s/%s is tried again\n", p.Namespace, p.Name)
				}
				return err
			})
		},
	}
	c.addFlags(cmd)
	namespace.addFlag(cmd.Flags())
	return cmd
}
