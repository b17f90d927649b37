package app

import "github.com/spf13/pflag"

// namespace is the flag that says in which namespace a name is.
type namespace struct{ name string }

func (n *namespace) addFlag(flags *pflag.FlagSet) {
	flags.StringVarP(&n.name, "namespace", "n", "default", "`NAMESPACE` of the proxy")
}
