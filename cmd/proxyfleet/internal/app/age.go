package app

import (
	"fmt"
	"time"
)

// ago says how long before now something was, and "-" of what never was.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return roughly(now.Sub(t)) + " ago"
}

// until says how long after now something is due.
func until(now, t time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return "in " + roughly(t.Sub(now))
}

// stamp returns a moment as logs and the API have it, and "-" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// roughly returns a duration as people say it: in its largest unit, and one more where that unit is only a few.
func roughly(d time.Duration) string {
	d = max(d, 0)
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	}
	return units(d, day, "d", time.Hour, "h")
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; d < 10*large && rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}
