package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery/client"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// page is what people see of an explanation.
func page(t *testing.T, e client.Explanation) string {
	t.Helper()
	var text strings.Builder
	if err := (explanation{e}).print(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A proxy of which all is known fills one page, on which nobody has to add up times.
func TestExplanation(t *testing.T) {
	e := client.Explanation{
		At: noon,
		Proxy: client.Proxy{
			Namespace: "default", Name: "one", Mode: "Managed", Phase: "Unhealthy", Provider: "cloud", Generation: 3, ObservedGeneration: 2,
			Host: "192.0.2.7", Port: 3128, LatencyMillis: 87, Attributes: map[string]string{"region": "eu"}, MaxLeases: 20, ActiveLeases: new(12),
			Conditions: []client.Condition{
				{Type: "Healthy", Status: "False", Reason: "ProbeFailed", Message: "target: " + hostile, LastTransitionTime: noon.Add(-3 * time.Minute)},
				{Type: "Provisioned", Status: "True", Reason: "Created", LastTransitionTime: noon.Add(-26 * time.Hour)},
			},
		},
		Instance: &client.Instance{Provider: "cloud", ID: "hosts/a/domains/proxy-1", Incarnation: "42", Retiring: "41", Attempt: 2,
			Planned: noon.Add(-27 * time.Hour), Retry: noon.Add(-26 * time.Hour)},
		Problem: "placement.zone: no such zone", Outdated: true, Backoff: noon.Add(5 * time.Minute),
		Observed: &client.Observed{State: "Running", Incarnation: "43", Host: "192.0.2.7", Port: 3128, Reason: "Paused", Message: "by hand"},
		Probes: []client.Probe{
			{At: noon.Add(-12 * time.Second), Party: "target", Message: "the target hung up", LatencyMillis: 1500},
			{At: noon.Add(-42 * time.Second), OK: true, LatencyMillis: 87, StatusCode: 204},
		},
		Cooldowns: []client.Cooldown{
			{Target: "example.com", Until: noon.Add(8 * time.Minute), State: "cooling"},
			{Target: "example.org", Until: noon.Add(-time.Minute), State: "half-open"},
		},
		LastPass: &client.Pass{At: noon.Add(-3 * time.Second), TookMillis: 12, Error: "get: timeout", Next: noon.Add(57 * time.Second)},
	}
	for i := range 12 {
		e.Leases = append(e.Leases, client.OpenLease{Target: "example.net", GrantedAt: noon.Add(-time.Minute), ExpiresAt: noon.Add(time.Duration(i) * time.Minute)})
	}
	e.Leases[0].Target = ""
	want := `default/one is Unhealthy: its probes fail (target:  [2Jred 31m ). It is leased again when they succeed.

Proxy
  Declared     Managed by cloud; the last edit has not been looked at yet
  Attributes   region=eu
  Address      192.0.2.7:3128
  Latency      87ms
  Problem      placement.zone: no such zone

Conditions
  Healthy       False   3m ago     ProbeFailed: target:  [2Jred 31m
  Provisioned   True    1d2h ago   Created

Instance
  ID              hosts/a/domains/proxy-1
  Incarnation     42
  Replaces        41
  Attempt         2, begun 1d3h ago
  Next attempt    not before 2026-01-02T12:05:00Z, in 5m
  Outdated        it was made from other inputs than are declared now, and is to be replaced
  Provider says   Running at 192.0.2.7:3128, as incarnation 43 (Paused: by hand)

Probes, newest first
  12s ago   failed   1.5s   target: the target hung up
  42s ago   ok       87ms   status 204

Leases, 12 of 20
  no target     granted 1m ago   ends now
  example.net   granted 1m ago   ends in 1m
  example.net   granted 1m ago   ends in 2m
  example.net   granted 1m ago   ends in 3m
  example.net   granted 1m ago   ends in 4m
  example.net   granted 1m ago   ends in 5m
  example.net   granted 1m ago   ends in 6m
  example.net   granted 1m ago   ends in 7m
  example.net   granted 1m ago   ends in 8m
  example.net   granted 1m ago   ends in 9m
  and 2 more, which -o json shows

Cooldowns
  example.com   rests, ends in 8m
  example.org   may be tried by one lease at a time

Passes
  Last   3s ago, took 12ms, failed: get: timeout
  Next   in 57s, or when something happens
`
	if diff := cmp.Diff(want, page(t, e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An edit that has not been followed shows both providers.
func TestExplanationOfAMove(t *testing.T) {
	e := client.Explanation{At: noon, Proxy: client.Proxy{Mode: "Managed", Provider: "old", DeclaredProvider: "new"},
		Instance: &client.Instance{Provider: "old", ID: "x"}}
	if text := page(t, e); !strings.Contains(text, "Managed by new\n") || !strings.Contains(text, "Provider      old, and not yet new\n") {
		t.Errorf("the page:\n%s", text)
	}
	e.Proxy.Mode, e.Proxy.DeclaredProvider = "External", ""
	if text := page(t, e); !strings.Contains(text, "Declared     External\n") {
		t.Errorf("the page of what is External now:\n%s", text)
	}
}

// What is not there is said to be not there.
func TestExplanationOfNothing(t *testing.T) {
	e := client.Explanation{At: noon, Proxy: client.Proxy{Namespace: "default", Name: "one", Mode: "Managed", Phase: "Pending", MaxLeases: 10}}
	want := `default/one is Pending: it has no instance yet. "proxyfleet retry one" tries now.

Proxy
  Declared     Managed
  Attributes   -
  Address      -
  Latency      -

Conditions: none

Probes, newest first: none

Leases, 0 of 10: none

Cooldowns: none

Passes: none
`
	if diff := cmp.Diff(want, page(t, e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The first line answers the question.
func TestVerdict(t *testing.T) {
	provisioned := func(reason, message string) []client.Condition {
		return []client.Condition{{Type: "Provisioned", Status: "False", Reason: reason, Message: message}}
	}
	next := &client.Pass{Next: noon.Add(12 * time.Second)}
	tests := []struct {
		name string
		e    client.Explanation
		want string
	}{
		{"free", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 10}, Leases: make([]client.OpenLease, 2)}, "is Ready: its probes succeed, and 8 of its 10 leases are free."},
		{"a note", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 10, Conditions: []client.Condition{
			{Type: "Provisioned", Status: "True", Reason: "Created", Message: "the edit is not applied: no such zone"}}}},
			"is Ready: its probes succeed, and 10 of its 10 leases are free; Created: the edit is not applied: no such zone."},
		{"taken", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 2}, Leases: make([]client.OpenLease, 2)}, "is Ready: its probes succeed, and all of its 2 leases are out."},
		{"found unhealthy just now", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 2}, Verdict: "unhealthy", Probes: []client.Probe{{Party: "dial", Message: "refused"}}},
			"is Ready: its probes fail by now, so it is not leased, and its phase follows; the last one failed (dial: refused)."},
		{"resting", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 2}, Cooldowns: []client.Cooldown{{State: "cooling", Until: noon.Add(time.Minute)}}},
			"is Ready: its probes succeed, but it rests from every target, and is leased again in 1m."},
		{"resting from one", client.Explanation{Proxy: client.Proxy{Phase: "Ready", MaxLeases: 2},
			Cooldowns: []client.Cooldown{{Target: "example.com", State: "cooling", Until: noon.Add(time.Minute)}}}, "is Ready: its probes succeed, and 2 of its 2 leases are free."},
		{"probing", client.Explanation{Proxy: client.Proxy{Phase: "Probing"}, LastPass: next},
			"is Probing: it is there, and its probes have not decided yet whether it works. The next look at it is due in 12s."},
		{"probing in vain", client.Explanation{Proxy: client.Proxy{Phase: "Probing"}, Probes: []client.Probe{{Party: "dial", Message: "refused"}, {OK: true}}, LastPass: next},
			"is Probing: it is there, and its probes have not decided yet whether it works; the last one failed (dial: refused). The next look at it is due in 12s."},
		{"provisioning", client.Explanation{Proxy: client.Proxy{Phase: "Provisioning", Conditions: provisioned("Provisioning", "the image is 40 % there")}, LastPass: next},
			"is Provisioning: its instance is on its way (the image is 40 % there). The next look at it is due in 12s."},
		{"quota", client.Explanation{Proxy: client.Proxy{Phase: "Pending", Conditions: provisioned("QuotaExceeded", "no more addresses.")}, LastPass: next},
			`is Pending: it has no instance yet (no more addresses). The next attempt is due in 12s; "proxyfleet retry one" tries now.`},
		{"failed", client.Explanation{Proxy: client.Proxy{Namespace: "crawl", Phase: "Failed", Conditions: provisioned("UnknownProvider", "")},
			Backoff: noon.Add(40 * time.Minute), LastPass: next},
			`is Failed: it cannot be made (UnknownProvider). The next attempt is due in 40m; "proxyfleet retry one -n crawl" tries now.`},
		{"a Secret that is not there", client.Explanation{Proxy: client.Proxy{Phase: "Pending", Conditions: []client.Condition{
			{Type: "Resolved", Status: "False", Reason: "CredentialsError", Message: "no Secret default/login"}}}, LastPass: next},
			`is Pending: what it refers to cannot be used (no Secret default/login). The next attempt is due in 12s; "proxyfleet retry one" tries now.`},
		{"replacing", client.Explanation{Proxy: client.Proxy{Phase: "Replacing", Conditions: provisioned("Replacing", "")}},
			"is Replacing: its declaration wants another instance, and this one goes. The next look at it is due when something happens."},
		{"deleting", client.Explanation{Proxy: client.Proxy{Phase: "Ready", Deleting: true, Conditions: provisioned("Deleting", "")}, LastPass: next},
			"is Deleting: it is no longer declared, and its instance goes. The next look at it is due in 12s."},
		{"deleting in vain", client.Explanation{Proxy: client.Proxy{Phase: "Deleting", Deleting: true, Conditions: provisioned("PermanentError", "NotConfigured: host a")}, LastPass: next},
			`is Deleting: it is no longer declared, and its instance goes (NotConfigured: host a). The next look at it is due in 12s. "proxyfleet skip-cleanup one" lets go of it without deleting its instance.`},
		{"a phase of a later release", client.Explanation{Proxy: client.Proxy{Phase: "Sleeping"}}, "is Sleeping: nothing more is known. The next look at it is due when something happens."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.e.At, test.e.Proxy.Name = noon, "one"
			if test.e.Proxy.Namespace == "" {
				test.e.Proxy.Namespace = "default"
			}
			want := test.e.Proxy.Namespace + "/one " + test.want
			if diff := cmp.Diff(want, explanation{test.e}.verdict()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	got := calling(t, api(t), "explain", "one")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "default/one is Pending: ") || !strings.Contains(got.stdout, "Provider says   nothing:  [2Jred 31m\n") {
		t.Errorf("got %+v", got)
	}
	got = calling(t, api(t), "explain", "one", "-o", "json")
	var e client.Explanation
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil || e.Proxy.Name != "one" || e.Probes == nil {
		t.Errorf("as JSON: %+v: %v", got, err)
	}
	got = calling(t, api(t), "explain", "two")
	if want := "proxyfleet: default/two: proxy not found (404 unknown_proxy): \"proxyfleet get proxies --all-namespaces\" lists those that there are\n"; got.code != exitFailure || got.stderr != want {
		t.Errorf("of the unknown: %+v", got)
	}
}

// The fleet writes namespace/name wherever it names a proxy, and understands it.
func TestNamesWithTheirNamespace(t *testing.T) {
	for _, command := range [][]string{{"explain"}, {"get", "proxy"}, {"retry"}, {"skip-cleanup"}} {
		for _, args := range [][]string{{"default/one"}, {"default/one", "-n", "default"}, {"one", "-n", "default"}} {
			if got := calling(t, api(t), append(command, args...)...); got.code != 0 || !strings.Contains(got.stdout, "default/one") {
				t.Errorf("%v %v: %+v", command, args, got)
			}
		}
		got := calling(t, api(t), append(command, "default/one", "-n", "other")...)
		if want := "default/one is in namespace default, and --namespace says other"; got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%v with two namespaces: %+v", command, got)
		}
		if got := calling(t, api(t), append(command, "other/one")...); got.code != exitFailure || !strings.Contains(got.stderr, "other/one") {
			t.Errorf("%v of another namespace: %+v", command, got)
		}
	}
}

func TestRoughly(t *testing.T) {
	tests := map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", time.Minute: "1m", 185 * time.Second: "3m5s",
		47*time.Minute + 11*time.Second: "47m", 3*time.Hour + 5*time.Minute: "3h5m", 23*time.Hour + 59*time.Minute: "23h", 30 * time.Hour: "1d6h",
		1000 * time.Hour: "41d",
	}
	for d, want := range tests {
		if got := roughly(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
