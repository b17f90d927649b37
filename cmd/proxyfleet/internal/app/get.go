package app

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

func newGet() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show proxies and providers",
		Args:  cobra.NoArgs,
		RunE:  incomplete,
	}
	c.addFlags(cmd)
	cmd.AddCommand(newGetProxies(&c), newGetProxy(&c), newGetProviders(&c))
	return cmd
}

func newGetProxies(c *connection) *cobra.Command {
	var namespace namespace
	var output format
	var all bool
	var selector map[string]string
	cmd := &cobra.Command{
		Use:   "proxies",
		Short: "List the proxies, and say of those that are not Ready why",
		Example: `  proxyfleet get proxies
  proxyfleet get proxies --all-namespaces --selector region=eu
  proxyfleet get proxies -o json | jq -r '.proxies[] | select(.phase != "Ready") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := client.Filter{Namespace: namespace.name, Attributes: selector}
			if all {
				filter.Namespace = ""
			}
			return c.call(func(fleet *client.Client) error {
				proxies, err := fleet.ListProxies(cmd.Context(), filter)
				switch {
				case err != nil:
					return err
				case output == asJSON:
					return printJSON(cmd.OutOrStdout(), proxyList{append([]client.Proxy{}, proxies...), len(proxies)})
				case len(proxies) == 0 && all:
					fmt.Fprintln(cmd.ErrOrStderr(), "No proxies found.")
					return nil
				case len(proxies) == 0:
					fmt.Fprintf(cmd.ErrOrStderr(), "No proxies found in namespace %s; -A lists those of all.\n", namespace.name)
					return nil
				}
				return printProxies(cmd.OutOrStdout(), proxies, all)
			})
		},
	}
	namespace.addFlag(cmd.Flags())
	output.addFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the proxies of all namespaces")
	addSelector(cmd.Flags(), &selector)
	return cmd
}

func newGetProxy(c *connection) *cobra.Command {
	var namespace namespace
	var output format
	cmd := &cobra.Command{
		Use:     "proxy NAME",
		Short:   "Show one proxy with its conditions",
		Example: `  proxyfleet get proxy one`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := namespace.of(args[0])
			if err != nil {
				return err
			}
			return c.call(func(fleet *client.Client) error {
				p, err := fleet.GetProxy(cmd.Context(), in, name)
				if err != nil {
					return err
				}
				if output == asJSON {
					return printJSON(cmd.OutOrStdout(), p)
				}
				return printProxy(cmd.OutOrStdout(), p)
			})
		},
	}
	namespace.addFlag(cmd.Flags())
	output.addFlag(cmd.Flags())
	return cmd
}

func newGetProviders(c *connection) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "providers",
		Short: "List the providers, and say of those that are not ready why",
		Long: `providers lists what the last check of each provider found: whether the backend can be reached and used.
Providers that have no check are Unknown, and so is each one before its first check.`,
		Example: `  proxyfleet get providers
  proxyfleet get providers -o json | jq '.providers[].targets[] | select(.ready | not)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(func(fleet *client.Client) error {
				list, err := fleet.ListProviders(cmd.Context())
				switch {
				case err != nil:
					return err
				case output == asJSON:
					return printJSON(cmd.OutOrStdout(), list)
				case list.Count == 0:
					fmt.Fprintln(cmd.ErrOrStderr(), "No providers are configured.")
					return nil
				}
				return printProviders(cmd.OutOrStdout(), list)
			})
		},
	}
	output.addFlag(cmd.Flags())
	return cmd
}

// printProviders prints a table, with a row for each target that is not ready.
func printProviders(w io.Writer, list client.ProviderList) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PROVIDER\tREADY\tTARGETS\tLAST CHECK\tREASON")
	for _, p := range list.Providers {
		provider := []string{p.Name, p.Ready, targets(p), ago(list.At, p.CheckedAt)}
		for _, trouble := range troubles(list.At, p) {
			fmt.Fprintln(table, row(append(provider, trouble)...))
			provider = make([]string, len(provider))
		}
	}
	return table.Flush()
}

// targets says how many of a provider's targets are ready.
func targets(p client.Provider) string {
	if len(p.Targets) == 0 {
		return "-"
	}
	ready := 0
	for _, t := range p.Targets {
		if t.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(p.Targets))
}

// troubles says of each target that is not ready why, and is one empty text if there is none.
func troubles(now time.Time, p client.Provider) []string {
	var all []string
	for _, t := range p.Targets {
		if !t.Ready {
			all = append(all, fmt.Sprintf("%s, for %s: %s", t.Name, roughly(now.Sub(t.Since)), joined(t.Reason, t.Message)))
		}
	}
	switch {
	case len(all) > 0:
		return all
	case !p.CanCheck:
		return []string{"it has no check"}
	case len(p.Targets) == 0:
		return []string{"its first check has not ended"}
	}
	return []string{""}
}

// proxyList is what the API answers, on one page.
type proxyList struct {
	Proxies []client.Proxy `json:"proxies"`
	Count   int            `json:"count"`
}

// printProxies prints a table.
func printProxies(w io.Writer, proxies []client.Proxy, namespaces bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(namespace string, cells ...string) {
		if namespaces {
			cells = append([]string{namespace}, cells...)
		}
		fmt.Fprintln(table, row(cells...))
	}
	line("NAMESPACE", "NAME", "PHASE", "PROVIDER", "ADDRESS", "LATENCY", "LEASES", "REASON")
	for _, p := range proxies {
		line(p.Namespace, p.Name, p.Phase, cmp.Or(p.Provider, p.Mode), address(p), latency(p),
			fmt.Sprintf("%s/%d", openLeases(p), p.MaxLeases), why(p))
	}
	return table.Flush()
}

// openLeases is how many leases of a proxy are open, where the process that was asked knows.
func openLeases(p client.Proxy) string {
	if p.ActiveLeases == nil {
		return "-"
	}
	return strconv.Itoa(*p.ActiveLeases)
}

// printProxy prints all that is known of a proxy.
func printProxy(w io.Writer, p client.Proxy) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name, value string) { fmt.Fprintln(table, row(name+":", value)) }
	line("Name", p.Namespace+"/"+p.Name)
	line("UID", p.UID)
	line("Phase", p.Phase)
	line("Mode", p.Mode)
	line("Provider", providerOf(p))
	line("Instance", cmp.Or(p.InstanceID, "-"))
	line("Address", address(p))
	line("Latency", latency(p))
	line("Leases", fmt.Sprintf("%s of %d", openLeases(p), p.MaxLeases))
	line("Attributes", cmp.Or(formatAttributes(p.Attributes), "-"))
	fmt.Fprintln(table, "\nCONDITION\tSTATUS\tSINCE\tREASON")
	for _, c := range p.Conditions {
		fmt.Fprintln(table, row(c.Type, c.Status, stamp(c.LastTransitionTime), reason(c)))
	}
	return table.Flush()
}

// providerOf is who has the instance, and who is to have it if that is another one.
func providerOf(p client.Proxy) string {
	if p.DeclaredProvider != "" {
		return p.Provider + ", declared: " + p.DeclaredProvider
	}
	return cmp.Or(p.Provider, "-")
}

func address(p client.Proxy) string {
	if p.Host == "" {
		return "-"
	}
	return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

func latency(p client.Proxy) string {
	if p.LatencyMillis == 0 {
		return "-"
	}
	return millis(p.LatencyMillis)
}

func millis(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

func formatAttributes(attributes map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		all = append(all, k+"="+attributes[k])
	}
	return strings.Join(all, ",")
}

// why returns what keeps a proxy from being Ready, or else what is to be said of one that is.
func why(p client.Proxy) string {
	for _, aspect := range []string{"Resolved", "Provisioned", "Healthy"} {
		for _, c := range p.Conditions {
			if c.Type == aspect && (c.Status != "True" || c.Message != "") {
				return reason(c)
			}
		}
	}
	return ""
}

func reason(c client.Condition) string { return joined(c.Reason, c.Message) }
