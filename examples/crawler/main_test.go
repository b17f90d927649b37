package main

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/proxyfleet/fleet/examples/internal/crawltest"
)

// asProgram lets the binary of the test be the program.
const asProgram = "CRAWLER_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestCrawl crawls a site while its proxies are banned, killed and added.
func TestCrawl(t *testing.T) {
	trial := crawltest.New(t)
	trial.Check(trial.Run(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], "-fleet", trial.Fleet(), trial.Start())
		cmd.Env = append(os.Environ(), asProgram+"=1")
		return cmd
	}))
}
