package app

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

func newExplain() *cobra.Command {
	var c connection
	var namespace namespace
	var output format
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say why a proxy is as it is, and what happens next",
		Long: `explain prints on one page why a proxy is as it is and what happens next: its conditions, its instance as it is
recorded and as its provider sees it now, its last probes, its leases and cooldowns, and the last pass that the
fleet made over it.`,
		Example: `  proxyfleet explain one
  proxyfleet explain crawl/one
  proxyfleet explain one -o json | jq .lastPass`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := namespace.of(args[0])
			if err != nil {
				return err
			}
			return c.call(func(fleet *client.Client) error {
				e, err := fleet.Explain(cmd.Context(), in, name)
				if err != nil {
					return err
				}
				if output == asJSON {
					return printJSON(cmd.OutOrStdout(), e)
				}
				return explanation{e}.print(cmd.OutOrStdout())
			})
		},
	}
	c.addFlags(cmd)
	namespace.addFlag(cmd.Flags())
	output.addFlag(cmd.Flags())
	return cmd
}

// maxRows is how many leases and cooldowns a page has, for a page is what people read.
const maxRows = 10

// explanation is why a proxy is as it is, for people. Ages are those of the fleet's clock.
type explanation struct{ client.Explanation }

func (e explanation) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, e.verdict())
	e.section(table, "Proxy", e.proxy())
	e.section(table, "Conditions", e.conditions())
	if e.Instance != nil || e.Observed != nil {
		e.section(table, "Instance", e.instance())
	}
	e.section(table, "Probes, newest first", e.probes())
	e.section(table, fmt.Sprintf("Leases, %d of %d", len(e.Leases), e.Proxy.MaxLeases), e.leases())
	e.section(table, "Cooldowns", e.cooldowns())
	e.section(table, "Passes", e.passes())
	return table.Flush()
}

// section prints a heading and its rows, whose cells are separated by tabs.
func (e explanation) section(w io.Writer, heading string, rows []string) {
	if len(rows) == 0 {
		fmt.Fprintf(w, "\n%s: none\n", heading)
		return
	}
	fmt.Fprintf(w, "\n%s\n", heading)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+row)
	}
}

func (e explanation) proxy() []string {
	p := e.Proxy
	declared := p.Mode
	if by := cmp.Or(p.DeclaredProvider, p.Provider); by != "" && p.Mode == "Managed" {
		declared += " by " + by
	}
	if p.ObservedGeneration < p.Generation {
		declared += "; the last edit has not been looked at yet"
	}
	rows := []string{
		row("Declared", declared),
		row("Attributes", cmp.Or(formatAttributes(p.Attributes), "-")),
		row("Address", address(p)),
		row("Latency", latency(p)),
	}
	if e.Problem != "" {
		rows = append(rows, row("Problem", e.Problem))
	}
	if p.Deleting {
		rows = append(rows, row("Deleting", "the record goes as soon as the instance is gone"))
	}
	return rows
}

func (e explanation) conditions() []string {
	var rows []string
	for _, c := range e.Proxy.Conditions {
		rows = append(rows, row(c.Type, c.Status, ago(e.At, c.LastTransitionTime), reason(c)))
	}
	return rows
}

func (e explanation) instance() []string {
	var rows []string
	if i := e.Instance; i != nil {
		rows = append(rows, row("ID", cmp.Or(i.ID, "-")), row("Incarnation", cmp.Or(i.Incarnation, "-")))
		if e.Proxy.DeclaredProvider != "" {
			rows = append(rows, row("Provider", i.Provider+", and not yet "+e.Proxy.DeclaredProvider))
		}
		if i.Retiring != "" {
			rows = append(rows, row("Replaces", i.Retiring))
		}
		if i.Attempt > 0 {
			rows = append(rows, row("Attempt", fmt.Sprintf("%d, begun %s", i.Attempt, ago(e.At, i.Planned))))
		}
	}
	if e.Backoff.After(e.At) {
		rows = append(rows, row("Next attempt", "not before "+stamp(e.Backoff)+", "+until(e.At, e.Backoff)))
	}
	if e.Outdated {
		rows = append(rows, row("Outdated", "it was made from other inputs than are declared now, and is to be replaced"))
	}
	if e.Observed != nil {
		rows = append(rows, row("Provider says", e.observed()))
	}
	return rows
}

// observed is what the provider says of the instance now.
func (e explanation) observed() string {
	o := e.Observed
	if o.Error != "" {
		return "nothing: " + o.Error
	}
	if o.State == "NotFound" {
		return "there is no such instance"
	}
	said := o.State
	if o.Host != "" {
		said += " at " + o.Host
		if o.Port != 0 {
			said = o.State + " at " + net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
		}
	}
	if e.Instance != nil && o.Incarnation != "" && o.Incarnation != e.Instance.Incarnation {
		said += ", as incarnation " + o.Incarnation
	}
	if note := joined(o.Reason, o.Message); note != "" {
		said += " (" + note + ")"
	}
	return said
}

func (e explanation) probes() []string {
	var rows []string
	for _, p := range e.Probes {
		outcome, detail := "ok", ""
		if p.StatusCode != 0 {
			detail = fmt.Sprintf("status %d", p.StatusCode)
		}
		if !p.OK {
			outcome, detail = "failed", joined(p.Party, p.Message)
		}
		rows = append(rows, row(ago(e.At, p.At), outcome, millis(p.LatencyMillis), detail))
	}
	return rows
}

func (e explanation) leases() []string {
	return firstOf(e.Leases, func(l client.OpenLease) string {
		granted := "granted before the fleet was started"
		if !l.GrantedAt.IsZero() {
			granted = "granted " + ago(e.At, l.GrantedAt)
		}
		return row(cmp.Or(l.Target, "no target"), granted, "ends "+until(e.At, l.ExpiresAt))
	})
}

func (e explanation) cooldowns() []string {
	return firstOf(e.Cooldowns, func(c client.Cooldown) string {
		what := "rests, ends " + until(e.At, c.Until)
		if c.State != "cooling" {
			what = "may be tried by one lease at a time"
		}
		return row(cmp.Or(c.Target, "every target"), what)
	})
}

// firstOf returns as many rows as a page has room for, and says how many more there are.
func firstOf[T any](all []T, show func(T) string) []string {
	var rows []string
	for i, one := range all {
		if i == maxRows {
			return append(rows, fmt.Sprintf("and %d more, which -o json shows", len(all)-i))
		}
		rows = append(rows, show(one))
	}
	return rows
}

func (e explanation) passes() []string {
	if e.LastPass == nil {
		return nil
	}
	p := e.LastPass
	last := ago(e.At, p.At) + ", took " + millis(p.TookMillis)
	if p.Error != "" {
		last += ", failed: " + p.Error
	}
	next := "when something happens"
	if !p.Next.IsZero() {
		next = until(e.At, p.Next) + ", or when something happens"
	}
	return []string{row("Last", last), row("Next", next)}
}
