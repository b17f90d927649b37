package app

import "github.com/spf13/pflag"

// addSelector adds the flag that says which attributes a proxy must have.
func addSelector(flags *pflag.FlagSet, to *map[string]string) {
	flags.StringToStringVarP(to, "selector", "l", nil, "`KEY=VALUE` that a proxy must have as an attribute; may be repeated")
	flags.Lookup("selector").DefValue = "" // the help would print []
}
