//go:build unix

package health_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/health"
)

const peersVariable = "HEALTH_BENCHMARK_PEERS"

// TestBenchmarkPeers is the other process of BenchmarkProbe: a proxy and two targets, whose CPU time is not to be counted.
func TestBenchmarkPeers(t *testing.T) {
	if os.Getenv(peersVariable) == "" {
		t.Skip("serves BenchmarkProbe, which starts it in a process of its own")
	}
	fmt.Println("peers", forwardProxy(t, false, "", ""), newOrigin(t, false).URL, newOrigin(t, true).URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startPeers starts the other process and returns the address of the proxy and the URLs of the targets.
func startPeers(b *testing.B) (proxy string, targets map[string]string) {
	b.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestBenchmarkPeers$")
	command.Env = append(os.Environ(), peersVariable+"=1")
	input, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
	})
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 4 && words[0] == "peers" {
			return words[1], map[string]string{"http": words[2], "https": words[3]}
		}
	}
	b.Fatal("the other process did not come up")
	return "", nil
}

// BenchmarkProbe compares the CPU time of a probe with that of a bare net/http request with a fresh transport, through
// the same proxy, in turns. The ratio is what to look at: it depends little on the machine.
func BenchmarkProbe(b *testing.B) {
	proxy, targets := startPeers(b)
	for _, kind := range []string{"http", "https"} {
		b.Run(kind, func(b *testing.B) {
			const batch = 20 // so that the clock's resolution does not matter
			target := through(b, "http", proxy, targets[kind])
			probe := func() error {
				if r := (health.HTTPProber{}).Probe(b.Context(), target); !r.OK {
					return fmt.Errorf("%s: %s", r.Party, r.Message)
				}
				return nil
			}
			bare := func() error { return bareRequest(target, proxy) }
			var ours, theirs time.Duration
			for b.Loop() {
				ours += cpuTime(b, batch, probe)
				theirs += cpuTime(b, batch, bare)
			}
			n := float64(batch * b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(ours.Microseconds())/n, "cpu-µs/probe")
			b.ReportMetric(float64(theirs.Microseconds())/n, "cpu-µs/net-http")
			b.ReportMetric(float64(ours)/float64(theirs), "ratio")
		})
	}
}

// bareRequest is what a probe would be without this package.
func bareRequest(t health.Target, proxy string) error {
	transport := &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
		TLSClientConfig:   t.TLS,
		DisableKeepAlives: true,
	}
	response, err := (&http.Client{Transport: transport, Timeout: t.Timeout}).Get(t.URL)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// cpuTime is the CPU time of this process, in user and in system mode, while it did something n times.
func cpuTime(b *testing.B, n int, do func() error) time.Duration {
	b.Helper()
	before := usage(b)
	for range n {
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
	return usage(b) - before
}

func usage(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
