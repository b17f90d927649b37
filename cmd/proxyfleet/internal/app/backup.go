package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/discovery/client"
)

func newBackup() *cobra.Command {
	var c connection
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save a consistent copy of the fleet's state",
		Long: `backup writes the state of a running fleet, as it is at one moment, to a file that only you can read. There are
no Secrets in it, and no leases, which would all be over when it is needed. To restore it, stop the fleet and put
the file in the place of its state file; the lease file stays as it is.`,
		Example: `  proxyfleet backup fleet-2026-01-31.db`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) && !force {
				return fmt.Errorf("%s exists: choose another name, or say --force to replace it", path)
			}
			return c.call(func(fleet *client.Client) error { return save(cmd.Context(), fleet, path) })
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

// save writes a backup. The file gets its name when it is whole and on disk.
func save(ctx context.Context, fleet *client.Client, path string) error {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*") // readable by its owner alone
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) //nolint:errcheck // it is garbage, or has its name
	if err := fleet.Backup(ctx, part); err != nil {
		return errors.Join(err, part.Close())
	}
	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}
