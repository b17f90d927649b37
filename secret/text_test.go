package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/secret"
)

func TestNothingPrints(t *testing.T) {
	const plain, inHex = "hunter2", "68756e74657232"
	type holder struct {
		Shown  secret.Text
		hidden secret.Text
	}
	h := holder{secret.New(plain), secret.New(plain)}
	for name, print := range map[string]func(*bytes.Buffer){
		"fmt":       func(b *bytes.Buffer) { fmt.Fprintf(b, "%v %+v %#v %v", h, h, h, &h) },
		"fmt field": func(b *bytes.Buffer) { fmt.Fprintf(b, "%s %q %x %X %v", h.Shown, h.Shown, h.Shown, h.Shown, h.hidden) },
		"error":     func(b *bytes.Buffer) { fmt.Fprint(b, fmt.Errorf("login with %v failed", h.Shown)) },
		"json":      func(b *bytes.Buffer) { _ = json.NewEncoder(b).Encode(h) },
		"map key":   func(b *bytes.Buffer) { _ = json.NewEncoder(b).Encode(map[secret.Text]int{h.Shown: 1}) },
		"slog text": func(b *bytes.Buffer) { slog.New(slog.NewTextHandler(b, nil)).Info("x", "p", h.Shown, "h", h, "hp", &h) },
		"slog json": func(b *bytes.Buffer) { slog.New(slog.NewJSONHandler(b, nil)).Info("x", "p", h.Shown, "h", h, "hp", &h) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			print(&b)
			if s := strings.ToLower(b.String()); strings.Contains(s, plain) || strings.Contains(s, inHex) {
				t.Errorf("the secret shows: %s", s)
			}
			if b.Len() == 0 {
				t.Error("nothing was printed, so nothing was tested")
			}
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name   string
		text   secret.Text
		reveal string
		zero   bool
	}{
		{"zero value", secret.Text{}, "", true},
		{"empty", secret.New(""), "", true},
		{"any character", secret.New("p:a@ss/wörd\n"), "p:a@ss/wörd\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.text.Reveal(); got != c.reveal {
				t.Errorf("Reveal() = %q, want %q", got, c.reveal)
			}
			if got := c.text.IsZero(); got != c.zero {
				t.Errorf("IsZero() = %v, want %v", got, c.zero)
			}
			if !c.text.Equal(secret.New(c.reveal)) || c.text.Equal(secret.New(c.reveal+"x")) {
				t.Error("Equal does not compare the text")
			}
		})
	}
}
