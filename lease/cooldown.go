package lease

import (
	"slices"
	"time"
)

// cooldown is what the store remembers about a pair of a proxy and a target since the ban. Until a moment the pair is
// cooling; after it the pair is half open, and from then on it has a trial or waits for one, until it is forgotten.
type cooldown struct {
	proxy  *member
	target string    // empty: the proxy as a whole
	until  time.Time // end of the window
	trial  *held     // the lease that is trying the half-open pair
	bans   []string  // the IDs of the leases that have started a window: each does so once

	slot   int
	forget time.Time // when to forget it for want of a trial
}

func (c *cooldown) due() time.Time { return c.forget }
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

// start begins a window for a ban that the lease with an ID reports. It returns false if the report changes nothing, because the pair
// cools already or the lease has started a window of it before.
func (c *cooldown) start(by string, now time.Time, window time.Duration) bool {
	if now.Before(c.until) || slices.Contains(c.bans, by) {
		return false
	}
	c.until = now.Add(window)
	c.forget = c.until.Add(window)
	c.trial = nil
	c.bans = append(c.bans, by)
	return true
}
