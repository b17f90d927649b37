// Package examplecloud is the provider of the example cloud, written from the contract as a stranger would write it. It is the
// tutorial for authors of providers: read it from top to bottom beside package provider, and README.md on how to test it.
package examplecloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// Config is what the fleet's configuration says about this provider. All fields are required.
type Config struct {
	URL   string   `json:"url"`
	Zones []string `json:"zones"`
}

// Provider makes instances at the example cloud. It keeps nothing: whatever it has to know it asks the cloud.
type Provider struct {
	fleet string
	Config
	client *http.Client
}

var (
	_ provider.Constructor = New
	_ provider.Delayer     = (*Provider)(nil)
)

// New is the [provider.Constructor]. It says all that is wrong with the configuration, and calls nobody yet.
func New(env provider.Environment, config json.RawMessage) (provider.Provider, error) {
	p := &Provider{fleet: env.Fleet, client: &http.Client{Timeout: 30 * time.Second}} // Most contexts end sooner.
	if err := provider.DecodeConfig(config, &p.Config); err != nil {
		return nil, err
	}
	var problems []error
	if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		problems = append(problems, errors.New("url: want one like http://127.0.0.1:9080"))
	}
	if len(p.Zones) == 0 || slices.ContainsFunc(p.Zones, func(zone string) bool { return !word.MatchString(zone) }) {
		problems = append(problems, errors.New("zones: want at least one, of letters, digits, '-', '_' and '.'"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	p.URL = strings.TrimSuffix(p.URL, "/") + "/v1/"
	return p, nil
}

// Delays are short, for the cloud is on this machine. Settle is Call, plus the cloud's lag, plus a margin for the
// network.
func (p *Provider) Delays() provider.Delays {
	return provider.Delays{Call: 2 * time.Second, Settle: 5 * time.Second}
}

// Plan checks all that can be checked without the cloud, so that a bad edit harms nothing that runs. The ID is the path in
// the API: where the instance is, and its name there.
func (p *Provider) Plan(r provider.Request) (string, error) {
	zone, err := p.plan("plan", r)
	if err != nil {
		return "", err
	}
	return collection(zone) + "/" + r.Name, nil
}

func (p *Provider) plan(op string, r provider.Request) (zone string, err error) {
	if zone = r.Placement.Zone; zone == "" && len(p.Zones) == 1 {
		zone = p.Zones[0] // Where there is one place, nobody needs to name it.
	}
	user, password := r.Credentials.Username.Reveal(), r.Credentials.Password.Reveal()
	switch {
	case zone == "":
		return "", provider.Missing(op, "placement.zone")
	case !slices.Contains(p.Zones, zone):
		return "", provider.Unsupported(op, "placement.zone")
	case r.Placement.MachineType != "":
		return "", provider.Unsupported(op, "placement.machineType")
	case r.Placement.Image != "":
		return "", provider.Unsupported(op, "placement.image")
	case r.Placement.DiskSizeGb != 0:
		return "", provider.Unsupported(op, "placement.diskSizeGb")
	case !r.CloudInit.IsZero():
		return "", provider.Unsupported(op, "cloudInit")
	case user+password != "" && (!word.MatchString(user) || !word.MatchString(password)):
		return "", provider.Unsupported(op, "credentials")
	}
	return zone, nil
}

func collection(zone string) string { return "zones/" + zone + "/instances" }

// word is what this cloud takes for zones and for the parts of credentials.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// planned is an ID as Plan returns it.
var planned = regexp.MustCompile(`^zones/([A-Za-z0-9._-]+)/instances/([A-Za-z0-9._-]+)$`)

// Create sends the marks in the call that makes the instance, and the token for the case that a transport repeats it. When
// the name is taken, it looks at whose it is. The fleet compares the hash.
func (p *Provider) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	const op = "create"
	zone, err := p.plan(op, r)
	if err != nil {
		return provider.Instance{}, err
	}
	in, err := p.one(ctx, op, http.MethodPost, collection(zone), map[string]any{
		"name": r.Name, "labels": labels(r.Marks), "requestID": r.Token,
		"username": r.Credentials.Username.Reveal(), "password": r.Credentials.Password.Reveal(),
	})
	if refusal, ok := errors.AsType[*refusal](err); !ok || refusal.code != "already_exists" {
		return in.instance(), err
	}
	in, err = p.one(ctx, op, http.MethodGet, collection(zone)+"/"+r.Name, nil)
	switch {
	case errors.Is(err, provider.ErrNotFound): // Its owner cannot be seen yet, or has just gone. Soon we know.
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrTransient, Err: errors.New("the name is taken")}
	case err == nil && !in.ours(p.fleet, r.Marks.UID):
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NameTaken}
	}
	return in.instance(), err
}

// Get asks for the instance, and when there is none, whether its creation is known to have failed.
func (p *Provider) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	const op = "get"
	in, err := p.find(ctx, op, ref)
	if !errors.Is(err, provider.ErrNotFound) {
		return in.instance(), err
	}
	place := planned.FindStringSubmatch(ref.ID)
	var answer struct{ Operations []operation }
	if err := p.call(ctx, op, http.MethodGet, "zones/"+place[1]+"/operations?name="+place[2], "", nil, &answer); err != nil {
		return provider.Instance{}, err
	}
	for _, o := range answer.Operations {
		if o.ours(p.fleet, ref.UID) { // The youngest that is ours decides.
			return provider.Instance{}, o.failure(err)
		}
	}
	return provider.Instance{}, err
}

// find returns the instance that a ref means. One that is not ours is not there, and one in a place that is no longer
// configured cannot be asked for: it may run, and must not be forgotten.
func (p *Provider) find(ctx context.Context, op string, ref provider.Ref) (instance, error) {
	place := planned.FindStringSubmatch(ref.ID)
	if place == nil || !slices.Contains(p.Zones, place[1]) {
		return instance{}, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NotConfigured, Err: errors.New(ref.ID)}
	}
	in, err := p.one(ctx, op, http.MethodGet, ref.ID, nil)
	if err == nil && !in.ours(p.fleet, ref.UID) {
		return instance{}, &provider.Error{Op: op, Class: provider.ErrNotFound}
	}
	return in, err
}

// Delete names the incarnation that it saw to the cloud, so that whatever happens in between, it hits that one or none.
func (p *Provider) Delete(ctx context.Context, ref provider.Ref) error {
	const op = "delete"
	in, err := p.find(ctx, op, ref)
	if err == nil && in.State != "STOPPING" && cmp.Or(ref.Incarnation, in.ID) == in.ID {
		err = p.call(ctx, op, http.MethodDelete, ref.ID, in.ID, nil, nil)
	}
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	return err
}

// List reads all pages of all zones. One that fails fails the list: half of one would look like all there is.
func (p *Provider) List(ctx context.Context) ([]provider.Instance, error) {
	var all []provider.Instance
	for _, zone := range p.Zones {
		query := url.Values{"label": {"proxyfleet-fleet=" + p.fleet}}
		for more := true; more; {
			var page struct {
				Instances     []instance
				NextPageToken string
			}
			if err := p.call(ctx, "list", http.MethodGet, collection(zone)+"?"+query.Encode(), "", nil, &page); err != nil {
				return nil, err
			}
			for _, in := range page.Instances {
				all = append(all, in.instance())
			}
			query.Set("pageToken", page.NextPageToken)
			more = page.NextPageToken != ""
		}
	}
	return all, nil
}
