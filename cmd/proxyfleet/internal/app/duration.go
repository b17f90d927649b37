package app

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// duration is a flag whose value is a positive duration.
type duration time.Duration

var _ pflag.Value = (*duration)(nil)

// positive adds a flag for a positive duration.
func positive(flags *pflag.FlagSet, to *time.Duration, name string, otherwise time.Duration, usage string) {
	*to = otherwise
	flags.Var((*duration)(to), name, usage)
}

// Set reads a duration.
func (d *duration) Set(text string) error {
	value, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return errors.New("must be a duration such as 30s, 5m or 1h30m")
	case value <= 0:
		return errors.New("must be positive")
	}
	*d = duration(value)
	return nil
}

// String returns the duration as people write it, and nothing for none.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return shortDuration(time.Duration(*d))
}

// Type is what the help calls the value.
func (d *duration) Type() string { return "duration" }

// switchable is a flag whose value is a positive duration, or 0 for off.
type switchable struct{ *duration }

// orOff adds a flag for a positive duration that may also be 0.
func orOff(flags *pflag.FlagSet, to *time.Duration, name string, otherwise time.Duration, usage string) {
	*to = otherwise
	flags.Var(switchable{(*duration)(to)}, name, usage)
}

// Set reads a duration that may be 0.
func (s switchable) Set(text string) error {
	if value, err := time.ParseDuration(text); err == nil && value == 0 {
		*s.duration = 0
		return nil
	}
	return s.duration.Set(text)
}
