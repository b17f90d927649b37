// Package cloudtest runs the example cloud inside of a test.
package cloudtest

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

// Start serves a cloud until the end of the test, and returns it with its address. No instance outlives the test. A config
// without a directory gets a temporary one; with the directory of an earlier cloud that was closed, it takes that over.
func Start(t testing.TB, config cloud.Config) (c *cloud.Cloud, url string) {
	t.Helper()
	NeedTinyproxy(t)
	if config.Dir == "" {
		config.Dir = t.TempDir()
	}
	c, err := cloud.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		if err := c.Close(); err != nil { // This frees the calls that are delayed; the server waits for them.
			t.Error(err)
		}
		server.Close()
		Purge(t, config.Dir)
	})
	return c, server.URL
}

// Purge ends all instances of a cloud that is closed, or was killed.
func Purge(t testing.TB, dir string) {
	t.Helper()
	c, err := cloud.Open(cloud.Config{Dir: dir})
	if err != nil {
		t.Error(err)
		return
	}
	if err := c.Purge(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// NeedTinyproxy skips a test on a machine without tinyproxy. Where CI is true, it fails it.
func NeedTinyproxy(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("tinyproxy"); err == nil {
		return
	}
	const missing = "tinyproxy is not installed (on Debian: apt-get install tinyproxy)"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}
