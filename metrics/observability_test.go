package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/metrics"
)

const observability = "../deploy/observability"

// promtool runs it in a directory, and fails the test when it finds something.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, observability, "check", "config", "prometheus.yaml") // the rules as well
	promtool(t, observability, "test", "rules", "alerts_test.yaml")
}

// Every alert is tested, and explained to the operator whom it wakes.
func TestAlertsAreComplete(t *testing.T) {
	tests, page := readFile(t, observability+"/alerts_test.yaml"), readFile(t, "../docs/observability.md")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(readFile(t, observability+"/alerts.yaml"), -1)
	if len(alerts) < 10 {
		t.Fatalf("found only the alerts %v", alerts)
	}
	for _, alert := range alerts {
		if !strings.Contains(tests, "alertname: "+alert[1]+"\n        exp_alerts:\n") {
			t.Errorf("no test sees %s fire", alert[1])
		}
		if !strings.Contains(page, "| `"+alert[1]+"` |") {
			t.Errorf("docs/observability.md does not explain %s", alert[1])
		}
	}
}

// dashboard is what the tests look at in one.
type dashboard struct {
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(readFile(t, observability+"/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 {
		t.Fatalf("found only %d panels", len(d.Panels))
	}
	return d
}

// queries are those of the dashboard, with its variables filled in as Grafana does.
func queries(t *testing.T) []string {
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	var all []string
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	return all
}

func TestDashboardIsLaidOut(t *testing.T) {
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another", p.Title)
		}
		ids[p.ID] = true
		if p.Title == "" || p.Type != "row" && p.Description == "" {
			t.Errorf("panel %d %q lacks a title or a description", p.ID, p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("panel %q lies on %q or beyond the edge, at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
	}
}

// That each returns data is shown with a fleet that runs: TestPrometheus in cmd/proxyfleet.
func TestQueriesAreValid(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, q := range queries(t) {
		fmt.Fprintf(&rules, "  - {record: 'query:%d', expr: %q}\n", i, q)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "rules.yaml")
}

func TestQueriesUseSeriesThatExist(t *testing.T) {
	text := fullScrape(t)
	exists := func(name string) bool { return count(text, name) > 0 }
	series := regexp.MustCompile(`\b(proxyfleet|promhttp|process|go)_[a-z_]+`)
	used := series.FindAllString(strings.Join(append(queries(t), expressions(t)...), "\n"), -1)
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		if !exists(name) {
			t.Errorf("a query or an alert uses %s, which no scrape has", name)
		}
	}
	shown := strings.Join(queries(t), "\n")
	for _, name := range families(text) {
		if !strings.Contains(shown, name[0]) {
			t.Errorf("the dashboard does not show %s", name[0])
		}
	}
}

// expressions are the lines of the alerts that are no text for people.
func expressions(t *testing.T) []string {
	var all []string
	for line := range strings.Lines(readFile(t, observability+"/alerts.yaml")) {
		if !regexp.MustCompile(`^ +(summary|description):`).MatchString(line) {
			all = append(all, line)
		}
	}
	return all
}

// The page describes each series with its type and its labels, and none that is not there.
func TestPageDescribesEverySeries(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `(proxyfleet_[a-z_]+)` \\| (\\w+) \\| ([^|]*)\\|")
	labels := regexp.MustCompile("`([a-z]+)`")
	var described [][3]string
	for _, match := range row.FindAllStringSubmatch(readFile(t, "../docs/observability.md"), -1) {
		var names []string
		for _, label := range labels.FindAllStringSubmatch(match[3], -1) {
			names = append(names, label[1])
		}
		slices.Sort(names)
		described = append(described, [3]string{match[1], match[2], strings.Join(names, " ")})
	}
	slices.SortFunc(described, func(a, b [3]string) int { return strings.Compare(a[0], b[0]) })
	if diff := cmp.Diff(families(fullScrape(t)), described); diff != "" {
		t.Errorf("docs/observability.md differs from what a scrape has (-scrape +page):\n%s", diff)
	}
}

// families are name, type and labels of what a scrape has of the fleet, in the order of the names.
func families(text string) [][3]string {
	typed := regexp.MustCompile(`(?m)^# TYPE (proxyfleet_[a-z_]+) (\w+)$`)
	label := regexp.MustCompile(`([a-z]+)="`)
	var all [][3]string
	for _, match := range typed.FindAllStringSubmatch(text, -1) {
		first := regexp.MustCompile(`(?m)^` + match[1] + `(_sum|)(\{.*)? [^ ]+$`).FindString(text)
		var names []string
		for _, l := range label.FindAllStringSubmatch(first, -1) {
			names = append(names, l[1])
		}
		slices.Sort(names)
		all = append(all, [3]string{match[1], match[2], strings.Join(names, " ")})
	}
	return all
}

// fullScrape has every series that there is.
func fullScrape(t *testing.T) string {
	m := newMetrics(t, metrics.Config{Providers: []string{"cloud"}})
	read(t, m, sources())
	history(m)
	return scrape(t, m.Handler())
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
