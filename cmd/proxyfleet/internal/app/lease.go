package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

func newLease() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Acquire, renew, release and report on leases",
		Long: `A lease is the right to send requests through one proxy for a time. Whoever reports what came back keeps
the proxies that a target has banned away from that target.`,
		Example: `  proxyfleet lease acquire --target example.com
  proxyfleet lease report ID banned
  proxyfleet lease release ID`,
		Args: cobra.NoArgs,
		RunE: incomplete,
	}
	c.addFlags(cmd)
	cmd.AddCommand(newLeaseAcquire(&c), newLeaseRenew(&c), newLeaseRelease(&c), newLeaseReport(&c))
	return cmd
}

func newLeaseAcquire(c *connection) *cobra.Command {
	var r lease.Request
	var output format
	cmd := &cobra.Command{
		Use:   "acquire",
		Short: "Lease a proxy",
		Long: `acquire leases a healthy proxy and prints its URL, which holds its credentials. The ID of the lease, for
renew, release and report, goes to stderr. With --count there is a line for each lease, or with -o json a list.`,
		Example: `  curl -x "$(proxyfleet lease acquire --target example.com)" https://example.com/
  proxyfleet lease acquire --target example.com --session alice --wait 30s
  proxyfleet lease acquire --selector region=eu --ttl 1m -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(func(fleet *client.Client) error {
				grant, err := fleet.Acquire(cmd.Context(), r)
				if err != nil {
					return err
				}
				return printGrant(cmd, grant, output, r.Count > 1)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Target, "target", "", "`NAME` of what is to be crawled, mostly a host: proxies that it banned are left out")
	addSelector(flags, &r.Selector)
	positive(flags, &r.TTL, "ttl", 0, "how long the lease lasts (default: what the fleet is set to)")
	flags.StringVar(&r.ID, "request-id", "", "`ID` under which the same request gets the same lease again")
	positive(flags, &r.Wait, "wait", 0, "how long to wait for a proxy to come free (default: not at all)")
	flags.StringVar(&r.Session, "session", "", "`NAME` of requests that stay with one proxy while that is possible")
	flags.IntVar(&r.Count, "count", 1, "how many leases, each of another proxy: all `N` or none")
	output.addFlag(flags)
	return cmd
}

// printGrant prints what was granted: the URLs to stdout, where programs read them, and the rest to stderr.
func printGrant(cmd *cobra.Command, g lease.Grant, output format, several bool) error {
	var documents []leaseDocument
	for _, l := range g.Leases {
		documents = append(documents, documentOf(l))
	}
	switch {
	case output == asJSON && several:
		return printJSON(cmd.OutOrStdout(), documents)
	case output == asJSON:
		return printJSON(cmd.OutOrStdout(), documents[0])
	}
	if g.Moved {
		fmt.Fprintln(cmd.ErrOrStderr(), "the session had another proxy before")
	}
	for i, l := range g.Leases {
		fmt.Fprintf(cmd.ErrOrStderr(), "lease %s of %s/%s until %s\n", l.ID, l.Proxy.Namespace, l.Proxy.Name, stamp(l.Expires))
		fmt.Fprintln(cmd.OutOrStdout(), documents[i].Proxy.URL)
	}
	return nil
}

func newLeaseRenew(c *connection) *cobra.Command {
	var ttl time.Duration
	var output format
	cmd := &cobra.Command{
		Use:     "renew ID",
		Short:   "Let a lease last longer, from now on",
		Example: `  proxyfleet lease renew ID --ttl 10m`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(func(fleet *client.Client) error {
				l, err := fleet.Renew(cmd.Context(), args[0], ttl)
				if err != nil {
					return err
				}
				if output == asJSON {
					return printJSON(cmd.OutOrStdout(), documentOf(l))
				}
				fmt.Fprintf(cmd.OutOrStdout(), "lease %s of %s/%s until %s\n", l.ID, l.Proxy.Namespace, l.Proxy.Name, stamp(l.Expires))
				return nil
			})
		},
	}
	positive(cmd.Flags(), &ttl, "ttl", 0, "how long it lasts from now on (default: as long as it was granted for)")
	output.addFlag(cmd.Flags())
	return cmd
}

func newLeaseRelease(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "release ID",
		Short: "End a lease",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(func(fleet *client.Client) error { return fleet.Release(cmd.Context(), args[0]) })
		},
	}
}

func newLeaseReport(c *connection) *cobra.Command {
	var target string
	cmd := &cobra.Command{
		Use:   "report ID RESULT",
		Short: "Tell what came back: ok, rate_limited, banned or failed",
		Long: `report tells what came back from a target. rate_limited and banned keep the proxy from that target for a while;
failed has the proxy probed at once.`,
		Example:   `  proxyfleet lease report ID banned --target example.com`,
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{string(lease.OK), string(lease.RateLimited), string(lease.Banned), string(lease.Failed)},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(func(fleet *client.Client) error {
				return fleet.Report(cmd.Context(), args[0], lease.Report{Outcome: lease.Outcome(args[1]), Target: target})
			})
		},
	}
	cmd.Flags().StringVar(&target, "target", "", "`NAME` of what answered (default: the target of the lease)")
	return cmd
}

// leaseDocument is a lease as the API shows it.
type leaseDocument struct {
	LeaseID    string        `json:"leaseID"`
	Proxy      leaseEndpoint `json:"proxy"`
	Target     string        `json:"target,omitempty"`
	ExpiresAt  time.Time     `json:"expiresAt"`
	TTLSeconds int64         `json:"ttlSeconds"`
}

type leaseEndpoint struct {
	URL        string            `json:"url"`
	Host       string            `json:"host"`
	Port       int               `json:"port"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Attributes map[string]string `json:"attributes"`
}

// documentOf returns a lease with the credentials of its proxy, for the one who holds it.
func documentOf(l lease.Lease) leaseDocument {
	p := l.Proxy
	return leaseDocument{
		LeaseID:    l.ID,
		Proxy:      leaseEndpoint{p.RevealURL().String(), p.Host, p.Port, p.Name, p.Namespace, p.Attributes},
		Target:     l.Target,
		ExpiresAt:  l.Expires,
		TTLSeconds: int64(l.TTL / time.Second),
	}
}
