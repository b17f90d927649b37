package discovery

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/proxy"
)

// The bounds of the table of proxies, however many there are.
const (
	tableRows = 100
	maxSearch = 256 // bytes of the text that is looked for
)

// proxyTable is one page of the proxies that were asked for.
type proxyTable struct {
	Phase, Text    string // what was asked for
	Everything     string // link to all
	Rows           []proxyRow
	Range          string // which these are
	Previous, Next string // links
}

// proxyRow is a proxy in the table.
type proxyRow struct {
	Namespace, Name, Href string
	Phase, Tone           string
	Provider, Address     string
	Latency, Leases       string
	Why                   why
}

// why is what keeps a proxy from being Ready, or else what is to be said of one that is.
type why struct {
	Reason, Message string
	Since           moment
}

// fleetQuery is what somebody wants to see.
type fleetQuery struct {
	phase string // "" is all
	text  string
	page  int // from 1
}

// readFleetQuery reads the query of the page. A form sends fields that are empty, so these are as good as left out.
func readFleetQuery(r *http.Request) (fleetQuery, error) {
	query, err := readQuery(r, func(name string) bool { return slices.Contains([]string{"page", "phase", "q"}, name) })
	if err != nil {
		return fleetQuery{}, err
	}
	q := fleetQuery{text: strings.TrimSpace(query["q"]), page: 1}
	if len(q.text) > maxSearch {
		return fleetQuery{}, invalid("q must be at most %d bytes", maxSearch)
	}
	if phase := query["phase"]; phase != "" {
		i := slices.IndexFunc(urgency[:], func(p proxy.Phase) bool { return strings.EqualFold(string(p), phase) })
		if i < 0 {
			return fleetQuery{}, invalid("there is no phase %q", clip(phase, 50))
		}
		q.phase = string(urgency[i])
	}
	if page := query["page"]; page != "" {
		if q.page, err = strconv.Atoi(page); err != nil || q.page < 1 {
			return fleetQuery{}, invalid("page must be a whole number from 1, not %q", clip(page, 50))
		}
	}
	return q, nil
}

// href is the link to what a query asks for.
func (q fleetQuery) href() string {
	values := url.Values{}
	if q.phase != "" {
		values.Set("phase", q.phase)
	}
	if q.text != "" {
		values.Set("q", q.text)
	}
	if q.page > 1 {
		values.Set("page", strconv.Itoa(q.page))
	}
	if len(values) == 0 {
		return "./#proxies"
	}
	return "./?" + values.Encode() + "#proxies"
}

// table is the page of the proxies that the query asks for. One behind the last is the last: proxies go.
func (q fleetQuery) table(shown []wire.Proxy) proxyTable {
	matching := slices.Collect(func(yield func(wire.Proxy) bool) {
		words := strings.Fields(strings.ToLower(q.text))
		for _, p := range shown {
			if (q.phase == "" || q.phase == p.Phase) && containsAll(p, words) && !yield(p) {
				return
			}
		}
	})
	pages := max(1, (len(matching)+tableRows-1)/tableRows)
	page := min(q.page, pages)
	first, last := (page-1)*tableRows, min(page*tableRows, len(matching))
	t := proxyTable{Phase: q.phase, Text: q.text, Everything: fleetQuery{}.href(), Range: rangeOf(first, last, len(matching))}
	for _, p := range matching[first:last] {
		t.Rows = append(t.Rows, rowOf(p))
	}
	if page > 1 {
		t.Previous = fleetQuery{q.phase, q.text, page - 1}.href()
	}
	if page < pages {
		t.Next = fleetQuery{q.phase, q.text, page + 1}.href()
	}
	return t
}

func rangeOf(first, last, count int) string {
	switch {
	case count == 1:
		return "1 proxy"
	case last-first == count:
		return grouped(count) + " proxies"
	}
	return fmt.Sprintf("%s–%s of %s proxies", grouped(first+1), grouped(last), grouped(count))
}

// containsAll says whether each of some words is in what is known of a proxy.
func containsAll(p wire.Proxy, words []string) bool {
	if len(words) == 0 {
		return true
	}
	w := whyOf(p)
	known := []string{p.Namespace + "/" + p.Name, p.Phase, p.Mode, p.Provider, p.DeclaredProvider, p.InstanceID, address(p), w.Reason, w.Message}
	for k, v := range p.Attributes {
		known = append(known, k+"="+v)
	}
	text := strings.ToLower(strings.Join(known, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

func rowOf(p wire.Proxy) proxyRow {
	return proxyRow{
		Namespace: p.Namespace, Name: p.Name, Href: "./proxies/" + url.PathEscape(p.Namespace) + "/" + url.PathEscape(p.Name),
		Phase: p.Phase, Tone: tone(p.Phase),
		Provider: providerOf(p), Address: address(p),
		Latency: millis(p.LatencyMillis), Leases: fmt.Sprintf("%s/%d", cmp.Or(openLeases(p), "–"), p.MaxLeases),
		Why: whyOf(p),
	}
}

// openLeases is how many leases of a proxy are open, or "" where this replica does not know.
func openLeases(p wire.Proxy) string {
	if p.ActiveLeases == nil {
		return ""
	}
	return grouped(*p.ActiveLeases)
}

// providerOf is who has the instance of a proxy; an External one has none.
func providerOf(p wire.Proxy) string { return clip(cmp.Or(p.Provider, p.Mode), 63) }

func address(p wire.Proxy) string {
	if p.Host == "" {
		return ""
	}
	return net.JoinHostPort(clip(p.Host, 253), strconv.Itoa(int(p.Port)))
}

// whyOf finds the condition that says most. References come before what is made of them, and that before its health.
func whyOf(p wire.Proxy) why {
	for _, aspect := range [...]proxy.ConditionType{proxy.Resolved, proxy.Provisioned, proxy.Healthy} {
		for _, c := range p.Conditions {
			if c.Type != string(aspect) || c.Status == string(proxy.True) && c.Message == "" {
				continue
			}
			w := why{Reason: clip(c.Reason, 63), Message: clip(c.Message, 300)}
			if c.Status != string(proxy.True) {
				w.Since = at(c.LastTransitionTime)
			}
			return w
		}
	}
	return why{}
}
