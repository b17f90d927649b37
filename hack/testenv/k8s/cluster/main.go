// Command cluster runs the Kubernetes cluster that tests have, for trying things by hand, until it is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/proxyfleet/fleet/internal/cluster"
)

func main() {
	node := flag.Bool("node", false, "with a node that has an image of Squid (needs root)")
	flag.Parse()
	if err := run(context.Background(), *node); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, node bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.Start(ctx, cluster.Config{Controllers: true})
	if err != nil {
		return err
	}
	defer c.Close()
	if node {
		archive, image, err := cluster.SquidImage(ctx)
		if err != nil {
			return err
		}
		if err := c.Node(ctx, archive); err != nil {
			return err
		}
		fmt.Printf("# Pods are in %s, reach this machine at %s, and can run %s.\n", c.Pods(), c.Gateway(), image)
	}
	fmt.Printf("export KUBECONFIG=%s\nalias kubectl=%s\n", c.Kubeconfig(), c.KubectlPath())
	<-ctx.Done()
	return nil
}
