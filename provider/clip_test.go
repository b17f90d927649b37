package provider_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/proxyfleet/fleet/provider"
)

func TestClip(t *testing.T) {
	long := strings.Repeat("x", 1021)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"a sentence", "kein Platz für mehr", "kein Platz für mehr"},
		{"exactly as long as may be", long + "xyz", long + "xyz"},
		{"longer", long + "xyzz", long + "…"},
		{"longer, cut in a character", long[1:] + "ü" + strings.Repeat("y", 100), long[1:] + "…"},
		{"longer, cut behind a character", long[2:] + "ü" + strings.Repeat("y", 100), long[2:] + "ü…"},
		{"not UTF-8", "zone\xff-a", "zone?-a"},
		{"long and not UTF-8", strings.Repeat("\xffx", 4<<20), strings.Repeat("?x", 510) + "?…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := provider.Clip(c.text)
			if got != c.want {
				t.Errorf("got %d bytes: %q", len(got), got)
			}
			if len(got) > 1024 || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
			}
		})
	}
}
