package app

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/discovery/client"
)

func TestGC(t *testing.T) {
	// tail is what stays the same: what is kept, below an action of some width, and a provider that has nothing.
	tail := func(keep, done string) string {
		return "  " + keep + "   1 instance                               Live: it belongs to its proxy\n" +
			"  " + keep + "   1 instance                               UnknownAge: nobody knows when it was made; delete it at the provider if it is not wanted\n" +
			"\nidle: 0 listed, 0 " + done + "\n"
	}
	const held = "proxyfleet: cloud: the brake holds back 1 of 3 instances; if they may all go, say \"proxyfleet gc --allow cloud --max 1\"\n"
	tests := []struct {
		name   string
		sweeps sweeps
		args   []string
		want   called
	}{
		{"a plan", sweeps{}, []string{"--dry-run"}, called{stdout: `cloud: 3 listed, 1 to delete
  delete   hosts/a/domains/proxy-1   made 34m ago   Orphan: no proxy has its UID
` + tail("keep  ", "to delete")}},
		{"a plan with all that is kept", sweeps{}, []string{"--dry-run", "--all"}, called{stdout: `cloud: 3 listed, 1 to delete
  delete   hosts/a/domains/proxy-1   made 34m ago   Orphan: no proxy has its UID
  keep     hosts/a/domains/proxy-2   made 3h ago    Live: it belongs to default/one
  keep     hosts/a/domains/proxy-3   made -         UnknownAge: nobody knows when it was made; delete it at the provider if it is not wanted

idle: 0 listed, 0 to delete
`}},
		{"a sweep", sweeps{}, nil, called{stdout: `cloud: 3 listed, 1 deleted
  deleted   hosts/a/domains/proxy-1   made 34m ago   Orphan: no proxy has its UID
` + tail("keep   ", "deleted")}},
		{"a deletion that fails", sweeps{fails: errors.New("the host said " + hostile)}, nil, called{code: exitFailure, stdout: `cloud: 3 listed, 0 deleted, 1 not deleted
  failed   hosts/a/domains/proxy-1   made 34m ago   Orphan: the host said  [2Jred 31m
` + tail("keep  ", "deleted"), stderr: "proxyfleet: cloud: 1 instance could not be deleted; the next sweep tries again\n"}},
		{"a plan that the brake holds", sweeps{brake: true}, []string{"--dry-run"}, called{code: exitFailure, stderr: held, stdout: `cloud: 3 listed, 0 to delete, 1 held back by the brake
  hold   hosts/a/domains/proxy-1   made 34m ago   Orphan: no proxy has its UID
` + tail("keep", "to delete")}},
		{"a sweep whose brake is lifted", sweeps{brake: true}, []string{"--allow", "cloud", "--max", "1"}, called{stdout: `cloud: 3 listed, 1 deleted (up to 1 allowed)
  deleted   hosts/a/domains/proxy-1   made 34m ago   Orphan: no proxy has its UID
` + tail("keep   ", "deleted")}},
		{"the brake of nobody", sweeps{}, []string{"--allow", "clout", "--max", "1"}, called{code: exitFailure,
			stderr: "proxyfleet: no such provider: clout; there are cloud, idle (404 unknown_provider)\n"}},
		{"a brake without a bound", sweeps{}, []string{"--allow", "cloud"}, called{code: exitUsage,
			stderr: "proxyfleet: --allow and --max go together: whose brake is lifted, and for how many deletions (see 'proxyfleet gc --help')\n"}},
		{"a bound without a brake", sweeps{}, []string{"--max", "3"}, called{code: exitUsage,
			stderr: "proxyfleet: --allow and --max go together: whose brake is lifted, and for how many deletions (see 'proxyfleet gc --help')\n"}},
		{"an empty name", sweeps{}, []string{"--allow", "", "--max", "3"}, called{code: exitUsage,
			stderr: "proxyfleet: --allow must name a provider (see 'proxyfleet gc --help')\n"}},
		{"no deletion allowed", sweeps{}, []string{"--allow", "cloud", "--max", "0"}, called{code: exitUsage,
			stderr: "proxyfleet: --max must be at least 1 (see 'proxyfleet gc --help')\n"}},
		{"a deletion that is allowed and a plan", sweeps{}, []string{"--dry-run", "--allow", "cloud", "--max", "1"}, called{code: exitUsage,
			stderr: "proxyfleet: --dry-run changes nothing, and --allow lets a sweep delete: say one of them (see 'proxyfleet gc --help')\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := api(t)
			c.Sweeper = &test.sweeps
			got := calling(t, c, append([]string{"gc"}, test.args...)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(called{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever scripts it gets the plan of the API on stdout, and the same exit code.
func TestGCAsJSON(t *testing.T) {
	c := api(t)
	c.Sweeper = &sweeps{brake: true}
	got := calling(t, c, "gc", "--dry-run", "-o", "json")
	var plan client.SweepPlan
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || got.code != exitFailure || len(plan.Providers) != 2 || !plan.Providers[0].Braked {
		t.Errorf("got %+v: %v", got, err)
	}
}

// A provider that cannot be listed is told apart from one that has nothing.
func TestGCOfWhatCannotBeListed(t *testing.T) {
	c := api(t)
	c.Sweeper = unlisted{}
	got := calling(t, c, "gc")
	want := called{code: exitFailure, stdout: "cloud: not known\n",
		stderr: "proxyfleet: cloud: nothing is deleted, for nobody knows what is there: list: no route; \"proxyfleet get providers\" may say more\n"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(called{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Sweeper = nil
	if got := calling(t, c, "gc"); got.code != exitFailure || got.stderr != "proxyfleet: this fleet does not sweep here (501 not_supported)\n" {
		t.Errorf("without a sweeper: %+v", got)
	}
}

// unlisted is a sweeper whose provider does not say what it has.
type unlisted struct{ discovery.Sweeper }

func (unlisted) Sweep(context.Context) (discovery.SweepPlan, error) {
	return discovery.SweepPlan{Providers: []discovery.ProviderSweep{{Provider: "cloud", Err: errors.New("list: no route")}}}, nil
}
