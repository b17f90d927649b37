package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

// gcOptions are what the flags of gc say.
type gcOptions struct {
	dryRun bool
	allow  string
	most   int
	all    bool
	output format
}

func newGC() *cobra.Command {
	var c connection
	var o gcOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete the instances that no proxy has",
		Long: `gc makes a sweep now: it deletes the instances of this fleet that no proxy has, and that are not too young to
judge. The fleet does so every few minutes by itself. --dry-run only says what a sweep would do, and why.

Where a sweep would delete too much of what a provider has at once, the brake holds all of it back: that may be
a state file that was lost, and not an instance. Look at what it is; if it is right, --allow lifts the brake of
that provider for the sweep that this command then makes, and for that one only.

gc exits with 1 if something stays that is to go: a provider could not be listed, the brake holds, or a deletion
failed. The same goes for --dry-run.`,
		Example: `  proxyfleet gc --dry-run
  proxyfleet gc
  proxyfleet gc --allow cloud --max 12`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			return c.call(func(fleet *client.Client) error { return o.run(cmd, fleet) })
		},
	}
	c.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.dryRun, "dry-run", false, "say what a sweep would do, and delete nothing")
	flags.StringVar(&o.allow, "allow", "", "lift the brake of `PROVIDER` for one sweep")
	flags.IntVar(&o.most, "max", 0, "how many instances that sweep may delete: if it finds more than `N`, it deletes none")
	flags.BoolVar(&o.all, "all", false, "list each instance that is kept, and not only how many are")
	o.output.addFlag(flags)
	return cmd
}

// validate refuses flags that do not go together.
func (o *gcOptions) validate(given func(flag string) bool) error {
	switch {
	case given("allow") != given("max"):
		return misused("--allow and --max go together: whose brake is lifted, and for how many deletions")
	case given("allow") && o.allow == "":
		return misused("--allow must name a provider")
	case given("max") && o.most < 1:
		return misused("--max must be at least 1")
	case o.dryRun && given("allow"):
		return misused("--dry-run changes nothing, and --allow lets a sweep delete: say one of them")
	}
	return nil
}

func (o *gcOptions) run(cmd *cobra.Command, fleet *client.Client) error {
	plan, err := o.ask(cmd, fleet)
	if err != nil {
		return err
	}
	if o.output == asJSON {
		err = printJSON(cmd.OutOrStdout(), plan)
	} else {
		err = o.print(cmd.OutOrStdout(), plan)
	}
	return errors.Join(err, o.shortfall(plan))
}

// ask has a sweep planned or made.
func (o *gcOptions) ask(cmd *cobra.Command, fleet *client.Client) (client.SweepPlan, error) {
	if o.dryRun {
		return fleet.PlanSweep(cmd.Context())
	}
	if o.allow == "" {
		return fleet.Sweep(cmd.Context())
	}
	if err := fleet.AllowSweep(cmd.Context(), o.allow, o.most); err != nil {
		return client.SweepPlan{}, err
	}
	plan, err := fleet.Sweep(cmd.Context())
	if err != nil {
		err = fmt.Errorf("%w; the brake of %s stays lifted for the next sweep, unless this one has begun", err, o.allow)
	}
	return plan, err
}

// print prints what goes instance by instance, and what stays summed up, unless all was asked for.
func (o *gcOptions) print(w io.Writer, plan client.SweepPlan) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for i, p := range plan.Providers {
		if i > 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintln(table, printable(o.headline(p)))
		kept := map[string]int{}
		for _, v := range p.Instances {
			if v.Action == client.SweepKeep && !o.all {
				kept[v.Reason]++
				continue
			}
			fmt.Fprintln(table, "  "+row(o.done(v), v.ID, "made "+ago(plan.At, v.CreatedAt), joined(v.Reason, meaning(v))))
		}
		for _, reason := range slices.Sorted(maps.Keys(kept)) {
			sum := client.InstanceSweep{Reason: reason}
			fmt.Fprintln(table, "  "+row("keep", instances(kept[reason]), "", joined(reason, meaning(sum))))
		}
	}
	return table.Flush()
}

// headline sums a provider up.
func (o *gcOptions) headline(p client.ProviderSweep) string {
	if p.Error != "" {
		return p.Provider + ": not known"
	}
	n := count(p)
	said := fmt.Sprintf("%s: %d listed, %d deleted", p.Provider, p.Listed, n.deleted)
	if o.dryRun {
		said = fmt.Sprintf("%s: %d listed, %d to delete", p.Provider, p.Listed, n.deleted)
	}
	if n.failed > 0 {
		said += fmt.Sprintf(", %d not deleted", n.failed)
	}
	if n.held > 0 {
		said += fmt.Sprintf(", %d held back by the brake", n.held)
	}
	if p.Allowed > 0 {
		said += fmt.Sprintf(" (up to %d allowed)", p.Allowed)
	}
	return said
}

// sweepCount is how many instances of a provider have which fate.
type sweepCount struct{ deleted, failed, held int }

func count(p client.ProviderSweep) sweepCount {
	var n sweepCount
	for _, v := range p.Instances {
		switch {
		case v.Action == client.SweepHold:
			n.held++
		case v.Action == client.SweepDelete && v.Error != "":
			n.failed++
		case v.Action == client.SweepDelete:
			n.deleted++
		}
	}
	return n
}

// done says what happens or happened to an instance.
func (o *gcOptions) done(v client.InstanceSweep) string {
	switch {
	case v.Action == client.SweepDelete && v.Error != "":
		return "failed"
	case v.Action == client.SweepDelete && !o.dryRun:
		return "deleted"
	}
	return v.Action
}

// meaning says in a few words what the reason of a verdict means, and why a deletion failed.
func meaning(v client.InstanceSweep) string {
	if v.Error != "" {
		return v.Error
	}
	switch v.Reason {
	case "Orphan":
		return "no proxy has its UID"
	case "Stray":
		return cmp.Or(v.Proxy, "its proxy") + " has another instance"
	case "Live":
		return "it belongs to " + cmp.Or(v.Proxy, "its proxy")
	case "BeingDeleted":
		return "its proxy is being deleted, and takes it along"
	case "NoInstanceYet":
		return "its proxy has not seen its instance yet, which may be this one"
	case "Terminating":
		return "it goes already"
	case "TooYoung":
		return "it was made a short while ago; a later sweep looks again"
	case "UnknownAge":
		return "nobody knows when it was made; delete it at the provider if it is not wanted"
	case "NoIncarnation":
		return "a deletion could hit its successor; a later sweep looks again"
	case "NoUID":
		return "it does not say which proxy it was made for, and is never deleted"
	case "OtherFleet":
		return "it belongs to another fleet, and is never deleted"
	}
	return ""
}

// shortfall says, for each provider, what stays that is to go and what to do about it.
func (o *gcOptions) shortfall(plan client.SweepPlan) error {
	var all []error
	for _, p := range plan.Providers {
		n := count(p)
		if p.Error != "" {
			all = append(all, fmt.Errorf("%s: nothing is deleted, for nobody knows what is there: %s; \"proxyfleet get providers\" may say more",
				p.Provider, p.Error))
		}
		if n.held > 0 {
			all = append(all, fmt.Errorf("%s: the brake holds back %d of %s; if they may all go, say \"proxyfleet gc --allow %s --max %d\"",
				p.Provider, n.held, instances(p.Listed), p.Provider, n.held))
		}
		if n.failed > 0 {
			all = append(all, fmt.Errorf("%s: %s could not be deleted; the next sweep tries again", p.Provider, instances(n.failed)))
		}
	}
	return errors.Join(all...)
}

func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
