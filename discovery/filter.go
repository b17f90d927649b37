package discovery

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyfleet/fleet/proxy"
)

// How many proxies a page holds.
const (
	defaultLimit = 500
	maxLimit     = 1000
)

// attrPrefix stands before the name of an attribute in a query.
const attrPrefix = "attr."

// filter says which proxies a list shows.
type filter struct {
	namespace  string // "" is all
	attributes map[string]string
	healthy    *bool
	after      proxy.Key // the last of the page before
	limit      int
}

// readFilter reads the query of a list. A parameter that is there but empty is refused: more often than not it is a shell
// variable that was not set, and must not match everything.
func readFilter(r *http.Request) (filter, error) {
	query, err := readQuery(r, func(name string) bool {
		return strings.HasPrefix(name, attrPrefix) && name != attrPrefix ||
			slices.Contains([]string{"continue", "healthy", "limit", "namespace"}, name)
	})
	if err != nil {
		return filter{}, err
	}
	f := filter{limit: defaultLimit, attributes: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if attribute, ok := strings.CutPrefix(name, attrPrefix); ok {
			f.attributes[attribute] = query[name]
		} else if err := f.set(name, query[name]); err != nil {
			return filter{}, err
		}
	}
	return f, nil
}

func (f *filter) set(name, value string) error {
	var err error
	switch name {
	case "namespace":
		if value == "" {
			return invalid("namespace must not be empty; leave it out for all namespaces")
		}
		f.namespace = value
	case "healthy":
		if value != "true" && value != "false" {
			return invalid("healthy must be true or false, not %q", value)
		}
		f.healthy = new(value == "true")
	case "limit":
		if f.limit, err = strconv.Atoi(value); err != nil || f.limit < 1 || f.limit > maxLimit {
			return invalid("limit must be a whole number from 1 to %d, not %q", maxLimit, value)
		}
	case "continue":
		if f.after, err = readContinue(value); err != nil {
			return err
		}
	}
	return nil
}

// matches says whether the filter wants a proxy.
func (f *filter) matches(p *proxy.Proxy) bool {
	if f.namespace != "" && p.Namespace != f.namespace {
		return false
	}
	if f.healthy != nil && *f.healthy != leasable(p) {
		return false
	}
	for k, want := range f.attributes {
		if got, ok := p.Spec.Attributes[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// leasable says whether a proxy is one that leases are granted of, unless its probes have failed just now.
func leasable(p *proxy.Proxy) bool { return p.Status.Phase == proxy.Ready && !p.Deleting }

// page takes from the proxies that match those that belong on this page, and says how to ask for the next one.
func (f *filter) page(matching []*proxy.Proxy) (page []*proxy.Proxy, next string) {
	first, found := slices.BinarySearchFunc(matching, f.after, func(p *proxy.Proxy, k proxy.Key) int { return p.Key.Compare(k) })
	if found {
		first++
	}
	rest := matching[first:]
	if len(rest) <= f.limit {
		return rest, ""
	}
	page = rest[:f.limit]
	return page, writeContinue(page[len(page)-1].Key)
}

// writeContinue makes the token that asks for what comes after a key. It names the last proxy that was shown, not a
// position, so that no proxy is shown twice or passed over when others come and go meanwhile.
func writeContinue(k proxy.Key) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.String()))
}

func readContinue(token string) (proxy.Key, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	namespace, name, _ := strings.Cut(string(text), "/")
	k := proxy.Key{Namespace: namespace, Name: name}
	if err != nil || proxy.ValidateKey(k) != nil {
		return proxy.Key{}, invalid("continue must be what an earlier list returned as continue")
	}
	return k, nil
}
