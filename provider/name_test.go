package provider_test

import (
	"regexp"
	"testing"

	"github.com/proxyfleet/fleet/provider"
)

// Instances bear these names for as long as they live: another algorithm would lose them all.
func TestNameStays(t *testing.T) {
	for _, c := range []struct{ fleet, uid, want string }{
		{"lab", "0b5ce0b1-6a0b-5b0e-9d0c-000000000001", "proxy-njfwgyaaoumxdlqm"},
		{"", "", "proxy-ny2axhh7wn5jrhff"},
	} {
		if got := provider.Name(c.fleet, c.uid); got != c.want {
			t.Errorf("Name(%q, %q) = %q, want %q", c.fleet, c.uid, got, c.want)
		}
	}
}

func TestNamesDiffer(t *testing.T) {
	form := regexp.MustCompile(`^proxy-[a-z2-7]{16}$`)
	seen := map[string]string{}
	for _, fleet := range []string{"a", "ab", "lab", "other"} {
		for _, uid := range []string{"b", "c", "bc", "uid-1", "uid-2"} {
			name := provider.Name(fleet, uid)
			if !form.MatchString(name) {
				t.Errorf("Name(%q, %q) = %q, want proxy- and 16 of [a-z2-7]", fleet, uid, name)
			}
			if who, twice := seen[name]; twice {
				t.Errorf("%s and %s/%s have the name %s", who, fleet, uid, name)
			}
			seen[name] = fleet + "/" + uid
		}
	}
}
