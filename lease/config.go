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
	// CooldownWindow is how long a proxy is kept from a target after a ban, and how long a lease that has ended still
	// takes a report. Ended leases are remembered for so long, each in a few hundred bytes. Defaults to 10 minutes.
	CooldownWindow time.Duration
	// Policy is the order in which proxies are offered. Defaults to fewest open leases, then latency, then key.
	Policy Policy
	// Failed is called with the key of a proxy when a report says [Failed] of it, at most once per 5 seconds and proxy,
	// by the goroutine that reports and without any lock. Defaults to nothing.
	Failed func(key string)
	// Recorder is told of every grant, refusal and end. Defaults to nobody.
	Recorder Recorder
}

func (c Config) withDefaults() Config {
	c.MaxTTL = cmp.Or(c.MaxTTL, time.Hour)
	c.DefaultTTL = cmp.Or(c.DefaultTTL, min(5*time.Minute, c.MaxTTL))
	c.CooldownWindow = cmp.Or(c.CooldownWindow, 10*time.Minute)
	if c.Policy == nil {
		c.Policy = fewestActive{}
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
