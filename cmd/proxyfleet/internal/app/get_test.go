package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/provider/monitor"
)

func TestGetProviders(t *testing.T) {
	want := called{stdout: `PROVIDER   READY     TARGETS   LAST CHECK   REASON
cloud      False     1/3       20s ago      hosts/b, for 5m: Timeout:  [2Jred 31m
                                            hosts/c, for 2h: Refused
late       Unknown   -         -            its first check has not ended
plain      Unknown   -         -            it has no check
well       True      1/1       0s ago
`}
	if diff := cmp.Diff(want, calling(t, api(t), "get", "providers"), cmp.AllowUnexported(called{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var list client.ProviderList
	got := calling(t, api(t), "get", "providers", "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || list.Count != 4 || list.Providers[0].Targets[1].Reason != "Timeout" {
		t.Errorf("as JSON: %+v: %v", got, err)
	}
	c := api(t)
	c.Providers = func() []monitor.Result { return nil }
	if got := calling(t, c, "get", "providers"); got.code != 0 || got.stdout != "" || got.stderr != "No providers are configured.\n" {
		t.Errorf("of none: %+v", got)
	}
}

// A command that only holds others does nothing, and does not pass for one that worked.
func TestIncomplete(t *testing.T) {
	for command, below := range map[string]string{"get": "providers, proxies, proxy", "lease": "acquire, release, renew, report"} {
		got := calling(t, api(t), command)
		want := called{code: exitUsage, stderr: "proxyfleet: " + command + " what? It takes one of: " + below + " (see 'proxyfleet " + command + " --help')\n"}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(called{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
	if got := calling(t, api(t)); got.code != 0 || !strings.Contains(got.stdout, "proxyfleet run") || got.stderr != "" {
		t.Errorf("alone: %+v", got)
	}
}
