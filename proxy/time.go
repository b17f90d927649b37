package proxy

import (
	"encoding/json"
	"fmt"
	"time"
)

// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`

// Time is an instant to the second, the precision that every store keeps. The zero value is no time; the first second of
// 1970 cannot be told from it. It is written as RFC 3339 in UTC.
type Time struct{ unix int64 }

// At returns t to the second below.
func At(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.Unix()}
}

// Std returns the instant as a time.Time in UTC; the zero value as the zero time.
func (t Time) Std() time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(t.unix, 0).UTC()
}

// IsZero says whether t is no time.
func (t Time) IsZero() bool { return t.unix == 0 }

// Equal says whether t and u are the same second.
func (t Time) Equal(u Time) bool { return t == u }

// String returns t as RFC 3339, or "never".
func (t Time) String() string {
	if t.IsZero() {
		return "never"
	}
	return t.Std().Format(time.RFC3339)
}

// MarshalJSON writes RFC 3339, or null for no time.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.Std().Format(time.RFC3339))
}

// UnmarshalJSON reads RFC 3339 or null, and drops what is finer than a second. The year in UTC must have four digits, or
// it could not be written again.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = Time{}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a time must be a string such as \"2006-01-02T15:04:05Z\": %w", err)
	}
	std, err := time.Parse(time.RFC3339, s)
	if year := std.UTC().Year(); err != nil || year < 0 || year > 9999 {
		return fmt.Errorf("a time must be written like \"2006-01-02T15:04:05Z\", not %q", s)
	}
	*t = At(std)
	return nil
}

// +kubebuilder:validation:Type=string

// Duration is a length of time, written as Go writes it: "30s", "1m30s".
type Duration time.Duration

// String returns d as Go writes it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes a string such as "30s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string such as "30s"; null is a duration that was left out.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = 0
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration must be a string with a unit, such as \"30s\", not %s", b)
	}
	std, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("a duration must be a number with a unit, such as \"30s\", not %q", s)
	}
	*d = Duration(std)
	return nil
}
