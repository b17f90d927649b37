package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyfleet/fleet/health"
)

// The engine tells of probes with its lock held: were it to wait for a scrape, nothing would be probed meanwhile.
func TestScrapesHoldNoProbeUp(t *testing.T) {
	p := newProbes()
	for _, key := range []string{"default/a", "default/b", "default/c"} {
		p.Probed(key, health.Result{OK: true, Latency: time.Second})
	}
	scraped, told := make(chan prometheus.Metric), make(chan bool)
	go func() {
		p.Collect(scraped)
		close(scraped)
	}()
	<-scraped // the scrape is under way, and does not get on
	go func() {
		p.Probed("default/a", health.Result{Party: health.PartyDial})
		p.Probed("default/d", health.Result{OK: true})
		p.Forgotten("default/b")
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("a probe waits for a scrape")
	}
	rest := 0
	for range scraped {
		rest++
	}
	if rest != 2 {
		t.Errorf("the scrape has %d series more, want those of its beginning: 2", rest)
	}
}
