package lease

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config is what a [Memory] can be told. The zero value is a good one.
type Config struct {
	// DefaultTTL is how long a lease lasts whose request does not say. Defaults to 5 minutes, or to MaxTTL where that is
	// shorter.
	DefaultTTL time.Duration
	// MaxTTL is the longest TTL that a request or a renewal may ask for. Defaults to 1 hour.
	MaxTTL time.Duration
	// CooldownWindow is how long a proxy is kept from a target after a first ban, and how long a lease that has ended still
	// takes a report. Ended leases are remembered for so long, each in less than two hundred bytes. Defaults to 10 minutes.
	CooldownWindow time.Duration
	// CooldownFactor is how many times longer than the one before a window is, where bans follow each other without a
	// success. 1 makes all windows equal. Defaults to 2.
	CooldownFactor float64
	// MaxCooldown is the longest window. Defaults to 6 hours, or to CooldownWindow where that is longer.
	MaxCooldown time.Duration
	// Policy is the order in which proxies are offered. Defaults to [FewestActive].
	Policy Policy
	// Failed is called with the key of a proxy when a report says [Failed] of it, at most once per 5 seconds and proxy,
	// by the goroutine that reports and without any lock. Defaults to nothing.
	Failed func(key string)
	// Recorder is told of every grant, refusal, wait and end. Defaults to nobody.
	Recorder Recorder
	// Log remembers leases, sessions and cooldowns when the process ends. Its owner closes it, when the store is used no more.
	// What it remembers is of proxies that the store has to be told of again: set them all before the first request, for a
	// proxy that was not set yet is one that is gone. Defaults to none.
	Log Log
}

func (c Config) withDefaults() Config {
	c.MaxTTL = cmp.Or(c.MaxTTL, time.Hour)
	c.DefaultTTL = cmp.Or(c.DefaultTTL, min(5*time.Minute, c.MaxTTL))
	c.CooldownWindow = cmp.Or(c.CooldownWindow, 10*time.Minute)
	c.CooldownFactor = cmp.Or(c.CooldownFactor, 2)
	c.MaxCooldown = cmp.Or(c.MaxCooldown, max(6*time.Hour, c.CooldownWindow))
	if c.Policy == nil {
		c.Policy = FewestActive{}
	}
	if c.Failed == nil {
		c.Failed = func(string) {}
	}
	if c.Recorder == nil {
		c.Recorder = ignore{}
	}
	return c
}

// validate returns all problems of a configuration whose defaults are filled in.
func (c Config) validate() error {
	var problems []error
	negative := func(name string, d time.Duration) {
		if d < 0 {
			problems = append(problems, fmt.Errorf("lease: %s is negative: %v", name, d))
		}
	}
	negative("MaxTTL", c.MaxTTL)
	negative("DefaultTTL", c.DefaultTTL)
	negative("CooldownWindow", c.CooldownWindow)
	if !(c.CooldownFactor >= 1 && c.CooldownFactor <= 1000) { // NaN is neither
		problems = append(problems, fmt.Errorf("lease: CooldownFactor must be 1 to 1000, not %v", c.CooldownFactor))
	}
	if c.MaxCooldown < c.CooldownWindow {
		problems = append(problems, fmt.Errorf("lease: MaxCooldown %v is below CooldownWindow %v", c.MaxCooldown, c.CooldownWindow))
	}
	if c.MaxTTL >= 0 && c.DefaultTTL > c.MaxTTL {
		problems = append(problems, fmt.Errorf("lease: DefaultTTL %v is above MaxTTL %v", c.DefaultTTL, c.MaxTTL))
	}
	return errors.Join(problems...)
}

// ttl returns the TTL to use where d is asked for and 0 means otherwise.
func (c Config) ttl(d, otherwise time.Duration) (time.Duration, error) {
	if d < 0 || d > c.MaxTTL {
		return 0, fmt.Errorf("%w: %v, maximum %v", ErrTTL, d, c.MaxTTL)
	}
	return cmp.Or(d, otherwise), nil
}

// window returns how long a window is that follows another one, or none.
func (c Config) window(last time.Duration) time.Duration {
	if last == 0 {
		return c.CooldownWindow
	}
	return time.Duration(min(float64(last)*c.CooldownFactor, float64(c.MaxCooldown)))
}
