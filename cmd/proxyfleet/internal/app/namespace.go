package app

import (
	"strings"

	"github.com/spf13/pflag"
)

// namespace is the flag that says in which namespace a name is.
type namespace struct {
	name string
	flag *pflag.Flag
}

func (n *namespace) addFlag(flags *pflag.FlagSet) {
	flags.StringVarP(&n.name, "namespace", "n", "default", "`NAMESPACE` of the proxy")
	n.flag = flags.Lookup("namespace")
}

// of returns namespace and name of a proxy. What it is called may hold both, as the fleet's own lines do.
func (n *namespace) of(called string) (string, string, error) {
	of, name, both := strings.Cut(called, "/")
	switch {
	case !both:
		return n.name, called, nil
	case n.flag.Changed && n.name != of:
		return "", "", misused("%s is in namespace %s, and --namespace says %s", called, of, n.name)
	}
	return of, name, nil
}
