package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

func newSkipCleanup() *cobra.Command {
	var c connection
	var namespace namespace
	cmd := &cobra.Command{
		Use:   "skip-cleanup NAME",
		Short: "Forget a proxy that is deleted, without deleting its instance",
		Long: `skip-cleanup lets the fleet forget a proxy whose instance it cannot delete, because its provider is gone for
good. It takes effect once the proxy is deleted. What is left of the instance is for you to remove.`,
		Example: `  proxyfleet skip-cleanup one`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := namespace.of(args[0])
			if err != nil {
				return err
			}
			return c.call(func(fleet *client.Client) error {
				p, err := fleet.SkipCleanup(cmd.Context(), in, name)
				if err != nil {
					return err
				}
				when := "is forgotten"
				if !p.Deleting {
					when = "will be forgotten once it is deleted"
				}
				instance := "it has no instance"
				if p.InstanceID != "" {
					instance = fmt.Sprintf("instance %s of provider %s is left to you", p.InstanceID, p.Provider)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s; %s\n", p.Namespace, p.Name, when, instance)
				return nil
			})
		},
	}
	c.addFlags(cmd)
	namespace.addFlag(cmd.Flags())
	return cmd
}
