package health_test

import (
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/health"
)

func TestValidate(t *testing.T) {
	if err := target(key).Validate(); err != nil {
		t.Fatalf("the valid target: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*health.Target)
		want   string // how the one problem begins; empty if it is valid
	}{
		"key":                   {func(t *health.Target) { t.Key = "" }, "Key"},
		"incarnation":           {func(t *health.Target) { t.Incarnation = "" }, ""},
		"no scheme":             {func(t *health.Target) { t.Scheme = "" }, "Scheme"},
		"scheme":                {func(t *health.Target) { t.Scheme = "socks4" }, "Scheme"},
		"host":                  {func(t *health.Target) { t.Host = "" }, "Host"},
		"no port":               {func(t *health.Target) { t.Port = 0 }, "Port"},
		"high port":             {func(t *health.Target) { t.Port = 70000 }, "Port"},
		"no URL":                {func(t *health.Target) { t.URL = "" }, "URL"},
		"relative URL":          {func(t *health.Target) { t.URL = "/ok" }, "URL"},
		"scheme of the URL":     {func(t *health.Target) { t.URL = "ftp://a.test" }, "URL"},
		"URL without host":      {func(t *health.Target) { t.URL = "http://:80/" }, "URL"},
		"URL with a bad port":   {func(t *health.Target) { t.URL = "http://a.test:70000" }, "URL"},
		"URL with credentials":  {func(t *health.Target) { t.URL = "http://u:hunter2@a.test" }, "URL"},
		"URL with a line break": {func(t *health.Target) { t.URL = "http://a.test/\r\nHost: hunter2" }, "URL"},
		"URL with a password":   {func(t *health.Target) { t.URL = "http://u:hunter2#@a.test" }, "URL"},
		"URL beyond ASCII":      {func(t *health.Target) { t.URL = "http://bücher.test" }, "URL"},
		"URL with a long host":  {func(t *health.Target) { t.URL = "http://" + strings.Repeat("a", 254) }, "URL"},
		"URL with an address":   {func(t *health.Target) { t.URL = "http://[2001:db8::1]:8080/x?y" }, ""},
		"expected status":       {func(t *health.Target) { t.ExpectedStatus = nil }, "ExpectedStatus"},
		"interval":              {func(t *health.Target) { t.Interval = 0 }, "Interval"},
		"timeout":               {func(t *health.Target) { t.Timeout = -1 }, "Timeout"},
		"success threshold":     {func(t *health.Target) { t.SuccessThreshold = 0 }, "SuccessThreshold"},
		"failure threshold":     {func(t *health.Target) { t.FailureThreshold = 0 }, "FailureThreshold"},
		"seed":                  {func(t *health.Target) { t.Seed = "fine" }, "Seed"},
		"seed latency":          {func(t *health.Target) { t.SeedLatency = -1 }, "SeedLatency"},
	} {
		t.Run(name, func(t *testing.T) {
			one := target(key)
			c.change(&one)
			err := one.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want+": ") || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want one problem of %s", err, c.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the password shows: %v", err)
			}
		})
	}
	if err := (health.Target{}).Validate(); strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("not all problems at once: %v", err)
	}
}
