package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

func TestTimeJSON(t *testing.T) {
	noon := proxy.At(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name, in string
		want     proxy.Time
		out      string // what it is written as
	}{
		{"UTC", `"2026-03-04T12:00:00Z"`, noon, `"2026-03-04T12:00:00Z"`},
		{"another zone", `"2026-03-04T13:00:00+01:00"`, noon, `"2026-03-04T12:00:00Z"`},
		{"finer than a second", `"2026-03-04T12:00:00.999999999Z"`, noon, `"2026-03-04T12:00:00Z"`},
		{"null", `null`, proxy.Time{}, `null`},
		{"before 1970, below the second", `"1969-12-31T23:59:58.5Z"`, proxy.At(time.Unix(-2, 0)), `"1969-12-31T23:59:58Z"`},
		{"Go's zero time", `"0001-01-01T00:00:00Z"`, proxy.Time{}, `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := proxy.At(time.Unix(1, 0))
			if err := json.Unmarshal([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if out, err := json.Marshal(got); err != nil || string(out) != c.out {
				t.Errorf("written as %s, %v; want %s", out, err, c.out)
			}
		})
	}
}

func TestTimeRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"a number":                 `1700000000`,
		"an object":                `{}`,
		"no zone":                  `"2026-03-04T12:00:00"`,
		"a date":                   `"2026-03-04"`,
		"a 30th of February":       `"2026-02-30T12:00:00Z"`,
		"words":                    `"yesterday"`,
		"a year of 5 digits":       `"9999-12-31T23:59:59-01:00"`,
		"a year before the zeroth": `"0000-01-01T00:00:00+01:00"`,
	} {
		t.Run(name, func(t *testing.T) {
			var got proxy.Time
			err := json.Unmarshal([]byte(in), &got)
			if err == nil || !strings.Contains(err.Error(), "2006-01-02T15:04:05Z") {
				t.Errorf("got %v, %v; want an error that shows how to write a time", got, err)
			}
		})
	}
}

func TestTimeStd(t *testing.T) {
	at := time.Date(2026, 3, 4, 13, 0, 0, 5, time.FixedZone("", 3600))
	if got, want := proxy.At(at).Std(), time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC); got != want {
		t.Errorf("Std() = %v, want %v", got, want)
	}
	if got := proxy.At(time.Time{}); !got.IsZero() || !got.Std().IsZero() || got.String() != "never" {
		t.Errorf("no time became %v", got)
	}
	if got := proxy.At(at).String(); got != "2026-03-04T12:00:00Z" {
		t.Errorf("String() = %s", got)
	}
}

func TestDurationJSON(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		out  string
	}{
		{`"30s"`, 30 * time.Second, `"30s"`},
		{`"90s"`, 90 * time.Second, `"1m30s"`},
		{`"1.5h"`, 90 * time.Minute, `"1h30m0s"`},
		{`"-1ms"`, -time.Millisecond, `"-1ms"`},
		{`"0"`, 0, `"0s"`},
		{`null`, 0, `"0s"`},
	} {
		t.Run(c.in, func(t *testing.T) {
			got := proxy.Duration(1)
			if err := json.Unmarshal([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if time.Duration(got) != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if out, err := json.Marshal(got); err != nil || string(out) != c.out {
				t.Errorf("written as %s, %v; want %s", out, err, c.out)
			}
		})
	}
}

func TestDurationRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"a number":      `30`,
		"no unit":       `"30"`,
		"nothing":       `""`,
		"a long day":    `"1d"`,
		"too long":      `"9999999h"`,
		"a list":        `["30s"]`,
		"two durations": `"30s 1m"`,
	} {
		t.Run(name, func(t *testing.T) {
			var got proxy.Duration
			if err := json.Unmarshal([]byte(in), &got); err == nil || !strings.Contains(err.Error(), `such as "30s"`) {
				t.Errorf("got %v, %v; want an error that shows how to write a duration", got, err)
			}
		})
	}
}

func FuzzTimeJSON(f *testing.F) {
	for _, s := range []string{`"2026-03-04T12:00:00.5+01:00"`, `null`, `"9999-12-31T23:59:59-23:59"`, `"0000-01-01T00:00:00Z"`, `1`, `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var once, twice proxy.Time
		if once.UnmarshalJSON(b) != nil {
			return
		}
		out, err := once.MarshalJSON()
		if err != nil {
			t.Fatalf("%s was read and cannot be written: %v", b, err)
		}
		if err := twice.UnmarshalJSON(out); err != nil || twice != once {
			t.Errorf("%s was written as %s and read as %v, %v", b, out, twice, err)
		}
	})
}

func FuzzDurationJSON(f *testing.F) {
	for _, s := range []string{`"30s"`, `"1h2m3.5s"`, `null`, `"-2562047h47m16.854775808s"`, `30`, `"1µs"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var once, twice proxy.Duration
		if once.UnmarshalJSON(b) != nil {
			return
		}
		out, err := once.MarshalJSON()
		if err != nil {
			t.Fatalf("%s was read and cannot be written: %v", b, err)
		}
		if err := twice.UnmarshalJSON(out); err != nil || twice != once {
			t.Errorf("%s was written as %s and read as %v, %v", b, out, twice, err)
		}
	})
}
