package discovery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
)

func TestListProviders(t *testing.T) {
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	ready := monitor.Target{
		TargetStatus: provider.TargetStatus{Target: "hosts/a", Ready: true, Details: map[string]string{"pool": "default"}},
		Since:        moment.Add(-time.Hour), Checked: moment, Took: 12 * time.Millisecond,
	}
	down := monitor.Target{
		TargetStatus: provider.TargetStatus{Target: "hosts/b", Reason: "Timeout", Message: "no answer"},
		Since:        moment, Checked: moment, Took: 15 * time.Second,
	}
	const (
		readyJSON = `{"name":"hosts/a","ready":true,"details":{"pool":"default"},` +
			`"since":"2026-01-02T02:04:05.678Z","checkedAt":"2026-01-02T03:04:05.678Z","tookMillis":12}`
		downJSON = `{"name":"hosts/b","ready":false,"reason":"Timeout","message":"no answer",` +
			`"since":"2026-01-02T03:04:05.678Z","checkedAt":"2026-01-02T03:04:05.678Z","tookMillis":15000}`
	)
	tests := []struct {
		name    string
		results []monitor.Result
		want    string
	}{
		{"none", nil, `{"at":"2000-01-01T00:00:00Z","providers":[],"count":0}`},
		{
			"of each kind",
			[]monitor.Result{
				{Provider: "first", CanCheck: true},
				{Provider: "half", CanCheck: true, Targets: []monitor.Target{ready, down}, Checked: moment},
				{Provider: "quiet"},
				{Provider: "whole", CanCheck: true, Targets: []monitor.Target{ready}, Checked: moment},
			},
			`{"at":"2000-01-01T00:00:00Z","providers":[` +
				`{"name":"first","canCheck":true,"ready":"Unknown","targets":[]},` +
				`{"name":"half","canCheck":true,"ready":"False","checkedAt":"2026-01-02T03:04:05.678Z","targets":[` + readyJSON + `,` + downJSON + `]},` +
				`{"name":"quiet","canCheck":false,"ready":"Unknown","targets":[]},` +
				`{"name":"whole","canCheck":true,"ready":"True","checkedAt":"2026-01-02T03:04:05.678Z","targets":[` + readyJSON + `]}],"count":4}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(t)
				c.Providers = func() []monitor.Result { return test.results }
				got := serve(t, handler(t, c), request(t, "GET /v1/providers", ""))
				if diff := cmp.Diff(test.want, plain(t, got.Body.String())); got.Code != 200 || diff != "" {
					t.Errorf("status %d (-want +got):\n%s", got.Code, diff)
				}
			})
		})
	}
}
