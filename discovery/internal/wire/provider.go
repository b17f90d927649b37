package wire

import "time"

// ProviderList is all providers that are configured, by name.
type ProviderList struct {
	// At is when this was true.
	At        time.Time  `json:"at"`
	Providers []Provider `json:"providers"`
	Count     int        `json:"count"`
}

// Provider is what the last check of a provider found.
type Provider struct {
	Name string `json:"name"`
	// CanCheck says whether this provider can be checked at all.
	CanCheck bool `json:"canCheck"`
	// Ready is True if all its targets are, False if one is not, and Unknown if it was not checked yet or cannot be.
	Ready string `json:"ready"`
	// CheckedAt is when the last check ended.
	CheckedAt time.Time `json:"checkedAt,omitzero"`
	Targets   []Target  `json:"targets"`
}

// Target is one place that a provider works with: a host, a project, an API server.
type Target struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Reason is a word and Message a sentence on why.
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Details map[string]string `json:"details,omitempty"`
	// Since is when Ready or Reason last changed.
	Since      time.Time `json:"since,omitzero"`
	CheckedAt  time.Time `json:"checkedAt,omitzero"`
	TookMillis int64     `json:"tookMillis"`
}
