package metrics

// The values of the label provider that are no provider's. No name of one has parentheses.
const (
	noProvider      = "(none)"    // External proxies, and what else has none
	unknownProvider = "(unknown)" // a spec names a provider that is not configured
)

// providers are the names of the configured ones.
type providers map[string]bool

func newProviders(names []string) providers {
	known := providers{}
	for _, name := range names {
		known[name] = true
	}
	return known
}

// label is the value of the label provider. Specs are written by many hands, so what they name is no label by itself.
func (p providers) label(name string) string {
	switch {
	case name == "":
		return noProvider
	case p[name]:
		return name
	}
	return unknownProvider
}

// labels are those that reconciling meets.
func (p providers) labels() []string {
	labels := []string{noProvider}
	for name := range p {
		labels = append(labels, name)
	}
	return labels
}
