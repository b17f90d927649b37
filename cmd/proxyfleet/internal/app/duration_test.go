package app

import (
	"log/slog"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestDurationThatMayBeOff(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "30s": 30 * time.Second, "": time.Minute} {
		var got time.Duration
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		orOff(flags, &got, "every", time.Minute, "")
		var args []string
		if text != "" {
			args = []string{"--every", text}
		}
		if err := flags.Parse(args); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1s", "soon", "5"} {
		var got time.Duration
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		orOff(flags, &got, "every", time.Minute, "")
		if err := flags.Parse([]string{"--every", text}); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// Whatever is said of checks when they are off, the fleet starts.
func TestChecksThatAreOff(t *testing.T) {
	o := newOptions(t)
	o.checkInterval, o.checkTimeout = 0, time.Hour
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	s, err := openStandalone(t.Context(), o, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.discard(); err != nil {
		t.Error(err)
	}
}
