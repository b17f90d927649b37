package lease

import (
	"slices"
	"time"
)

// cooldown is what the store remembers about a pair of a proxy and a target since a ban. The pair is first cooling, until
// its window is over; then half open, for one lease that tries it; and open once that lease has ended without a verdict.
// It is forgotten when a lease succeeds, or when a further window of the same length has passed without another ban.
type cooldown struct {
	proxy  *member
	target string // empty: the proxy as a whole
	window time.Duration
	steps  int       // how many windows there were in a row, this one included
	until  time.Time // end of the window
	trial  *held     // the lease that is trying the half-open pair
	opened bool      // a trial has ended without a verdict
	bans   []string  // the IDs of the leases that have started a window: each does so once

	change time.Time // when it changes by itself
	slot   int
}

func (c *cooldown) due() time.Time { return c.change }
func (c *cooldown) place() *int    { return &c.slot }

// blockedUntil returns until when no lease may be granted, as far as that is known. The zero time, which every other is
// after, stands for a pair that may be granted.
func (c *cooldown) blockedUntil(now time.Time) time.Time {
	switch {
	case now.Before(c.until):
		return c.until
	case c.trial != nil:
		return c.trial.expires
	}
	return time.Time{}
}

// wantsTrial says whether the next lease is to try the pair.
func (c *cooldown) wantsTrial() bool { return !c.opened && c.trial == nil }

// start begins a window for a ban that the lease with an ID reports. It returns false if the report changes nothing,
// because the pair cools already or the lease has started a window of it before.
func (c *cooldown) start(by string, now time.Time, config Config) bool {
	if now.Before(c.until) || slices.Contains(c.bans, by) {
		return false
	}
	c.window = config.window(c.window)
	c.steps++
	c.until = now.Add(c.window)
	c.change = c.until
	c.trial, c.opened = nil, false
	c.bans = append(c.bans, by)
	return true
}

// rest notes that the pair is left alone from a moment on: it is forgotten unless something happens within a window.
func (c *cooldown) rest(from time.Time) { c.change = from.Add(c.window) }
