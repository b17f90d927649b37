// Package scrapy tests the Scrapy middleware of this folder.
package scrapy

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/proxyfleet/fleet/examples/internal/crawltest"
)

// python is Debian's, because its package python3-scrapy is for that one.
const python = "/usr/bin/python3"

// TestCrawl crawls a site while its proxies are banned, killed and added.
func TestCrawl(t *testing.T) {
	if output, err := exec.Command(python, "-c", "import scrapy").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("Scrapy is missing: install the package python3-scrapy: %v: %s", err, output)
		}
		t.Skip("Scrapy is missing: install the package python3-scrapy to run this test")
	}
	trial := crawltest.New(t)
	trial.Check(trial.Run(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, python, "crawl.py", "--fleet", trial.Fleet(), trial.Start())
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}))
}
