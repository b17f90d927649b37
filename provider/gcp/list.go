package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/provider"
)

// pageSize is the most that the API returns at once.
const pageSize = 500

// read returns the instances of this fleet that can be seen. With an error they are not all.
func (p *machines) read(ctx context.Context, op string) ([]provider.Instance, error) {
	var all []provider.Instance
	var unreached []string
	filter := fmt.Sprintf("labels.%s = %q", fleetLabel, p.fleet)
	for token := ""; ; {
		page, err := p.client.instancesPage(ctx, filter, pageSize, token)
		if err != nil {
			return all, failure(ctx, op, err)
		}
		unreached = append(unreached, lacking(page)...)
		for scope, part := range page.GetItems() {
			zone := strings.TrimPrefix(scope, "zones/")
			for _, vm := range part.GetInstances() {
				if in := p.settings.instance(zone, vm); in.Marks.Fleet == p.fleet {
					all = append(all, in)
				}
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(unreached) > 0 {
		slices.Sort(unreached)
		return all, &provider.Error{Op: op, Class: provider.ErrTransient, Reason: zoneUnreachable,
			Err: fmt.Errorf("the list lacks %s", strings.Join(slices.Compact(unreached), ", "))}
	}
	return all, nil
}

// lacking returns what a page says that it lacks. Whatever warning is not known counts as a part that is missing.
func lacking(page *computepb.InstanceAggregatedList) []string {
	const empty = "NO_RESULTS_ON_PAGE"
	missing := slices.Clone(page.GetUnreachables())
	if code := page.GetWarning().GetCode(); code != "" && code != empty {
		missing = append(missing, "something ("+code+")")
	}
	for scope, part := range page.GetItems() {
		if code := part.GetWarning().GetCode(); code != "" && code != empty {
			missing = append(missing, scope)
		}
	}
	return missing
}

// List returns all instances of this fleet, in all zones of the project.
func (p *machines) List(ctx context.Context) ([]provider.Instance, error) {
	const op = "list"
	if err := provider.Interrupted(ctx, op); err != nil {
		return nil, err
	}
	all, err := p.read(ctx, op)
	if err != nil {
		return nil, err
	}
	return all, nil
}
