// Package app is the proxyfleet program but for the providers that it knows: those its main function brings. A program with
// other providers is another main function.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/provider"
)

// ProviderType is a kind of provider that a configuration may name.
type ProviderType struct {
	// New opens a provider.
	New provider.Constructor
	// Outlives says that instances run on when this process has ended. The identity of the fleet, by which they are found
	// again, must then be declared.
	Outlives bool
	// InCluster says that instances are in the cluster whose objects the proxies are, where they are that: they then need no
	// identity that outlives the cluster.
	InCluster bool
}

// The exit codes beside 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Main runs the program and returns its exit code. Types are the providers by the names of their types. The first interrupt
// or SIGTERM lets the program come to an end; the second ends it at once.
func Main(args []string, types map[string]ProviderType, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal does what signals do
	begun := false
	root := newRoot(types)
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*usageError](err); ok || !begun {
		line := strings.Join(strings.Fields(err.Error()), " ") // a suggestion takes several
		complain(stderr, fmt.Errorf("%s (see '%s --help')", line, command.CommandPath()))
		return exitUsage
	}
	complain(stderr, err)
	return exitFailure
}

// complain writes an error, a line for each of its problems.
func complain(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "proxyfleet: %s\n", printable(strings.TrimRight(line, "\n")))
	}
}

// usageError says that the program was called in a way that it does not understand.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func misused(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// incomplete refuses a command that only holds others: a script whose variable is empty must not pass for one that worked.
func incomplete(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, below := range cmd.Commands() {
		names = append(names, below.Name())
	}
	return misused("%s what? It takes one of: %s", cmd.Name(), strings.Join(names, ", "))
}

func newRoot(types map[string]ProviderType) *cobra.Command {
	root := &cobra.Command{
		Use:   "proxyfleet",
		Short: "Keep a fleet of forward proxies, and lease them to crawlers",
		Long: `proxyfleet keeps a fleet of forward proxies for web crawlers. It makes the proxies that YAML
documents declare, probes each through itself, and leases the healthy ones.

One command is the fleet, and stays in the foreground:

  proxyfleet run -f fleet.yaml

All others but validate, crds and version speak to a fleet that runs:

  proxyfleet get proxies
  curl -x "$(proxyfleet lease acquire --target example.com)" https://example.com/`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		newRun(types), newValidate(types),
		newGet(), newExplain(), newLease(), newRetry(), newSkipCleanup(), newGC(), newBackup(),
		newCRDs(), newVersion(),
	)
	return root
}
