package discovery

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/proxy"
)

// urgency is the order in which somebody wants to hear of proxies in these phases.
var urgency = [...]proxy.Phase{
	proxy.Failed, proxy.Unhealthy, proxy.Deleting, proxy.Replacing, proxy.Provisioning, proxy.Probing, proxy.Pending, proxy.Ready,
}

// fleetPage is the fleet at a glance.
type fleetPage struct {
	frame
	Headline string
	// Lede is why the process does not serve, or not all, if so.
	Lede      string
	Tallies   []tally
	Figures   []figure
	Providers []providerRow
	List      proxyTable
}

// tally is how many proxies are in a phase, and the link to them.
type tally struct {
	Phase   string
	Tone    string
	Count   string
	Href    string
	Current bool
	// Left and Width are its part of the bar, in percent.
	Left, Width string
}

// figure is a number with a name.
type figure struct{ Name, Value, Unit string }

func (a *api) fleetPage(w http.ResponseWriter, r *http.Request) error {
	q, err := readFleetQuery(r)
	if err != nil {
		return err
	}
	page, err := inTurn(a.lists, w, r, func() ([]byte, error) { return a.fleetNow(r, q) })
	if err != nil {
		return err
	}
	a.pages.send(w, http.StatusOK, page)
	return nil
}

// fleetNow returns the page of the fleet.
func (a *api) fleetNow(r *http.Request, q fleetQuery) ([]byte, error) {
	all, err := a.Proxies.List(r.Context())
	if err != nil {
		return nil, err
	}
	shown := mostUrgent(all, a.active())
	view := &fleetPage{
		frame:     frame{Root: way(r), Refresh: 5},
		Tallies:   q.tallies(shown),
		Figures:   a.figures(shown),
		Providers: a.providerTable(shown),
		List:      q.table(shown),
	}
	ready := countPhase(shown, proxy.Ready)
	view.Headline = headline(ready, len(shown))
	view.Title = fmt.Sprintf("%s/%s ready", grouped(ready), grouped(len(shown)))
	if a.Leader != nil {
		view.Lede = "The replica that leads does not answer: leases and checks are not shown."
	}
	if err := a.Ready(r.Context()); err != nil {
		view.Headline, view.Title, view.Lede = "Not ready", "Not ready", clip(err.Error(), 300)
	}
	return a.pages.render("fleet.html", view)
}

// mostUrgent returns what the API shows of proxies, the most urgent first.
func mostUrgent(all []*proxy.Proxy, active map[string]int) []wire.Proxy {
	shown := make([]wire.Proxy, len(all))
	for i, p := range all {
		shown[i] = show(p, active)
		shown[i].Phase = phaseOf(p)
	}
	slices.SortStableFunc(shown, func(a, b wire.Proxy) int { return cmp.Compare(rank(a.Phase), rank(b.Phase)) })
	return shown
}

// phaseOf is the phase of a proxy as people see it: one that is on its way out shows as that, whatever its status still says.
func phaseOf(p *proxy.Proxy) string {
	if p.Deleting {
		return string(proxy.Deleting)
	}
	return clip(string(cmp.Or(p.Status.Phase, proxy.Pending)), maxWord)
}

// rank is the place of a phase in the order of urgency. One that this release does not know is looked at first.
func rank(phase string) int { return slices.Index(urgency[:], proxy.Phase(phase)) }

func countPhase(shown []wire.Proxy, phase proxy.Phase) int {
	n := 0
	for _, p := range shown {
		if p.Phase == string(phase) {
			n++
		}
	}
	return n
}

func headline(ready, total int) string {
	switch {
	case total == 0:
		return "No proxies yet"
	case total == 1 && ready == 1:
		return "The proxy is ready"
	case total == 1:
		return "The proxy is not ready"
	case ready == total:
		return "All " + grouped(total) + " proxies are ready"
	case ready == 1:
		return "1 of " + grouped(total) + " proxies is ready"
	case ready == 0:
		return "None of " + grouped(total) + " proxies is ready"
	}
	return grouped(ready) + " of " + grouped(total) + " proxies are ready"
}

// tone says how a phase is marked: by colour, and by shape for those who do not see it.
func tone(phase string) string {
	switch proxy.Phase(phase) {
	case proxy.Ready:
		return "good"
	case proxy.Unhealthy, proxy.Failed:
		return "bad"
	case proxy.Deleting:
		return "idle"
	}
	return "busy"
}

// figures are what the fleet does at the moment.
func (a *api) figures(shown []wire.Proxy) []figure {
	var open, room int
	var latencies []int64
	for _, p := range shown {
		if p.ActiveLeases != nil {
			open += *p.ActiveLeases
		}
		if p.Phase != string(proxy.Ready) {
			continue
		}
		room += int(p.MaxLeases)
		if p.LatencyMillis > 0 {
			latencies = append(latencies, p.LatencyMillis)
		}
	}
	slices.Sort(latencies)
	var figures []figure
	if a.ActiveLeases != nil {
		figures = append(figures, figure{"Open leases", grouped(open), "of " + grouped(room)})
	}
	if n := len(latencies); n > 0 {
		value, unit, _ := strings.Cut(millis(latencies[n/2]), " ")
		figures = append(figures, figure{"Median latency", value, unit})
	}
	if a.Cooldowns != nil {
		figures = append(figures, figure{Name: "Cooldowns", Value: grouped(a.Cooldowns())})
	}
	return figures
}

// tallies count the proxies of each phase that has any, the best news first.
func (q fleetQuery) tallies(shown []wire.Proxy) []tally {
	var all []tally
	var parts []float64
	for i := len(urgency) - 1; i >= 0; i-- {
		phase := urgency[i]
		n := countPhase(shown, phase)
		if n == 0 && q.phase != string(phase) {
			continue
		}
		all = append(all, tally{
			Phase: string(phase), Tone: tone(string(phase)), Count: grouped(n),
			Href: fleetQuery{phase: string(phase), text: q.text}.href(), Current: q.phase == string(phase),
		})
		parts = append(parts, float64(n))
	}
	layOut(all, parts)
	return all
}

// layOut gives each tally its part of the bar. One of 10,000 can still be seen.
func layOut(all []tally, parts []float64) {
	var sum float64
	for _, n := range parts {
		sum += n
	}
	var whole float64
	for i, n := range parts {
		if n > 0 {
			parts[i] = max(n, sum/150)
		}
		whole += parts[i]
	}
	left := 0.0
	for i, n := range parts {
		all[i].Left, all[i].Width = percent(left), percent(n/max(whole, 1))
		left += n / max(whole, 1)
	}
}

func percent(part float64) string { return strconv.FormatFloat(part*100, 'f', 2, 64) + "%" }
