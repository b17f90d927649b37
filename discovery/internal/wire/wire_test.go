package wire_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

func TestSeconds(t *testing.T) {
	tests := map[time.Duration]int64{
		0: 0, 1: 1, -1: -1, time.Second: 1, -time.Second: -1,
		time.Second + 1: 2, -time.Second - 1: -2, 90 * time.Minute: 5400,
	}
	for d, want := range tests {
		if got := wire.Seconds(d); got != want {
			t.Errorf("%v is %d seconds, want %d", d, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	const longest = math.MaxInt64 / time.Second * time.Second
	tests := map[int64]time.Duration{
		0: 0, 1: time.Second, -1: -time.Second, 5400: 90 * time.Minute,
		math.MaxInt64: longest, math.MinInt64: -longest, math.MaxInt64/int64(time.Second) + 1: longest,
	}
	for s, want := range tests {
		if got := wire.Duration(s); got != want {
			t.Errorf("%d seconds are %v, want %v", s, got, want)
		}
	}
}

func TestSelector(t *testing.T) {
	tests := []struct {
		text string
		want wire.Selector // nil is an error
	}{
		{`{}`, wire.Selector{}},
		{`{"region":"eu","tier":""}`, wire.Selector{"region": "eu", "tier": ""}},
		{`{"region":null}`, nil},
		{`{"region":{"in":"eu"}}`, nil},
		{`{"region":["eu"]}`, nil},
		{`["region"]`, nil},
		{`"region=eu"`, nil},
		{`7`, nil},
	}
	for _, test := range tests {
		var got wire.Selector
		err := json.Unmarshal([]byte(test.text), &got)
		if (err == nil) != (test.want != nil) {
			t.Errorf("%s: error %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
	}
}
