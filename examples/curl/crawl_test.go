// Package curl tests the script of this folder.
package curl

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/examples/internal/crawltest"
)

// TestCrawl fetches a page, and one that every proxy is banned from.
func TestCrawl(t *testing.T) {
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("%s is missing", program)
		}
	}
	trial := crawltest.New(t)
	crawl := func(url string) (stdout, stderr string, err error) {
		var out, say bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "./crawl.sh", url, "shop")
		cmd.Env = append(os.Environ(), "FLEET="+trial.Fleet())
		cmd.Stdout, cmd.Stderr = &out, &say
		err = cmd.Run()
		return out.String(), say.String(), err
	}
	page, said, err := crawl(trial.Start())
	if err != nil || !strings.Contains(page, "<title>Page 1</title>") || !strings.HasPrefix(said, "200 "+trial.Start()+" default/") {
		t.Errorf("%v: %.100q, and said: %s", err, page, said)
	}
	trial.BanAll()
	page, said, err = crawl(trial.Start())
	if err == nil || page != "" || strings.Count(said, "403 ") != 3 {
		t.Errorf("%v: %.100q, and said: %s", err, page, said)
	}
	tried := map[string]bool{}
	for line := range strings.Lines(said) {
		tried[line] = true
	}
	if len(tried) != 3 {
		t.Errorf("a proxy that is banned was tried again: %s", said)
	}
}
