package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider"

	examplecloud "github.com/proxyfleet/fleet/examples/provider"
)

// Prometheus scrapes a fleet: each panel of the dashboard has something to show, and operators are told of a brake that is
// engaged and of a provider that died, and not before.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.declare("early")
	s := w.start("--metrics-listen", "127.0.0.1:0", "--provider-check-interval", "10s", "--gc-interval", "1s", "--gc-min-age", "1s")
	metrics := s.log.find("serving metrics", "url")
	prom := startPrometheus(t, metrics)
	prom.await("proxyfleet_build_info")

	w.declare("early", "late") // so that Prometheus sees events, and not only their sum
	eventually(t, func() string {
		if all := s.list(); all["early"].Phase != "Ready" || all["late"].Phase != "Ready" || all["dead"].Phase != "Unhealthy" {
			return fmt.Sprintf("not all proxies are as they should be: %+v", all)
		}
		return ""
	})
	for range 3 {
		w.crawl(s)
	}
	for _, query := range dashboardQueries(t) {
		prom.await(query)
	}
	prom.calm("BrakeEngaged", "ProviderTargetDown", "ScrapeIncomplete")

	w.leaveOrphans(5)
	prom.await(`ALERTS{alertname="BrakeEngaged", alertstate="firing", provider="toy"}`)
	if lifted := s.cli("gc", "--allow", "toy", "--max", "5"); lifted.code != 0 {
		t.Fatalf("the brake cannot be lifted: %s", lifted.stderr)
	}
	prom.awaitNone(`ALERTS{alertname="BrakeEngaged"}`)
	prom.await(`proxyfleet_gc_collected_total{provider="toy", kind="orphan", result="ok"} == 5`)

	if err := w.cloud.Close(); err != nil {
		t.Fatal(err)
	}
	prom.await(`ALERTS{alertname="ProviderTargetDown", alertstate="firing", provider="toy", target="a"}`)

	text := get(t, metrics)
	for _, unwanted := range []string{planted, crawled} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the metrics hold %q", unwanted)
		}
	}
}

// crawled is a target that must be in no metric.
const crawled = "shop.example"

// watched is a fleet on the example cloud, with a proxy that is dead.
type watched struct {
	*place
	cloud *cloud.Cloud
	url   string
}

func newWatched(t *testing.T) *watched {
	w := &watched{place: newPlace(t)}
	w.cloud, w.url = cloudtest.Start(t, cloud.Config{})
	return w
}

func (w *watched) declare(names ...string) {
	documents := []string{fmt.Sprintf(`apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: watched
healthCheck: {url: %q, interval: 1s, timeout: 5s}
providers:
- name: toy
  type: example
  config: {url: %q, zones: [a]}
`, w.target.plain.URL+"/healthz", w.url), login("watched"), external("dead", "http", "127.0.0.1:1", "login", "")}
	for _, name := range names {
		documents = append(documents, declared{name: name, provider: "toy"}.String())
	}
	w.write("fleet.yaml", documents...)
}

// crawl leases a proxy and is banned. The third time it waits for a second, and in vain, for both proxies have banned it.
func (w *watched) crawl(s *server) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	grant, err := s.client.Acquire(ctx, lease.Request{Target: crawled, Wait: time.Second})
	if _, refused := errors.AsType[*lease.NoMatch](err); refused {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	id := grant.Leases[0].ID
	if err := s.client.Report(ctx, id, lease.Report{Outcome: lease.Banned}); err != nil {
		w.t.Fatal(err)
	}
	if err := s.client.Release(ctx, id); err != nil {
		w.t.Fatal(err)
	}
}

// leaveOrphans makes instances with the mark of the fleet that belong to no proxy. No sweep sees some of them only: until they are
// all old enough, there is no list.
func (w *watched) leaveOrphans(n int) {
	w.t.Helper()
	if err := w.cloud.Inject(cloud.Fault{Op: "list", Status: http.StatusServiceUnavailable, Times: 1000}); err != nil {
		w.t.Fatal(err)
	}
	defer w.cloud.Heal()
	config := fmt.Appendf(nil, `{"url": %q, "zones": ["a"]}`, w.url)
	p, err := examplecloud.New(provider.Environment{Fleet: "watched"}, config)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range n {
		uid := fmt.Sprintf("orphan-%d", i)
		marks := provider.Marks{Fleet: "watched", UID: uid, Hash: "v1-none"}
		if _, err := p.Create(w.t.Context(), provider.Request{Name: uid, Marks: marks, Token: uid, Port: 3128}); err != nil {
			w.t.Fatal(err)
		}
	}
	<-time.After(3 * time.Second) // longer than --gc-min-age, by the clocks of two processes: nothing tells that something is old
}

// dashboardQueries are those of all panels, with Grafana's variables filled in.
func dashboardQueries(t *testing.T) []string {
	text, err := os.ReadFile("../../deploy/observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	var queries []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, variables.Replace(target.Expr))
		}
	}
	if len(queries) < 20 {
		t.Fatalf("the dashboard has only the queries %q", queries)
	}
	return queries
}

// prometheus is the real one.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus has it scrape a fleet every second, with the alerts of this repository, which wait for a second and
// not for minutes.
func startPrometheus(t *testing.T, metrics string) *prometheus {
	t.Helper()
	target, err := url.Parse(metrics)
	if err != nil || target.Path != "/metrics" {
		t.Fatalf("the metrics are at %q: %v", metrics, err)
	}
	rules, err := os.ReadFile("../../deploy/observability/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"alerts.yaml": regexp.MustCompile(`for: \d+m`).ReplaceAllString(string(rules), "for: 1s"),
		"prometheus.yaml": fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
- job_name: proxyfleet
  static_configs: [{targets: [%q]}]
`, target.Host),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress()
	log := new(journal)
	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", log)
		}
	})
	return &prometheus{t: t, url: "http://" + address}
}

// freeAddress is one that nobody listens on, for programs that do not say which they took. Its port is below those that Linux gives
// to whoever takes any, so that nobody comes in between.
func freeAddress() string {
	for {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 31100+rand.IntN(1600))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
}

// await waits until a query returns something.
func (p *prometheus) await(query string) {
	p.t.Helper()
	eventually(p.t, func() string {
		if n, err := p.ask(query); err != nil || n == 0 {
			return fmt.Sprintf("%s returns nothing: %v", query, err)
		}
		return ""
	})
}

// awaitNone waits until it returns nothing.
func (p *prometheus) awaitNone(query string) {
	p.t.Helper()
	eventually(p.t, func() string {
		if n, err := p.ask(query); err != nil || n != 0 {
			return fmt.Sprintf("%s returns %d values: %v", query, n, err)
		}
		return ""
	})
}

// calm says that none of the alerts ever fired.
func (p *prometheus) calm(alerts ...string) {
	p.t.Helper()
	query := fmt.Sprintf(`count_over_time(ALERTS{alertname=~%q, alertstate="firing"}[10m])`, strings.Join(alerts, "|"))
	if n, err := p.ask(query); err != nil || n != 0 {
		p.t.Errorf("of %v, %d have fired: %v", alerts, n, err)
	}
}

// ask returns how many values a query has that are numbers.
func (p *prometheus) ask(query string) (int, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, fmt.Errorf("%s", answer.Error)
	}
	numbers := 0
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			numbers++
		}
	}
	return numbers, nil
}

// get returns a page.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
