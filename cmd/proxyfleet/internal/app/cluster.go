package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// cluster is a replica of a fleet whose proxies are objects of a Kubernetes cluster. Each replica follows the objects and
// answers for them. The one that leads has a crew that keeps the fleet, a new one for each term; what only the crew knows, the
// others have the leader answer.
type cluster struct {
	*front
	options       runOptions
	configuration *manifest.Configuration
	types         map[string]ProviderType
	identity      string // of the fleet
	objects       objects
	elector       elector
	checks        checks

	following http.Handler                 // the API of a replica that does not lead
	now       atomic.Pointer[http.Handler] // the API of this one at the moment
}

// objects are a store of records that are objects of a cluster.
type objects interface {
	proxy.Store
	// Run follows the cluster until ctx ends, once.
	Run(ctx context.Context) error
	// Ready says why the store cannot answer yet, or returns nil, and Synced waits until it can, or ctx ends.
	Ready() error
	Synced(ctx context.Context) error
	// Restricted says whether the store shows some of the proxies only.
	Restricted() bool
}

// elector is one that also knows of leaders of other processes.
type elector interface {
	fleet.Elector
	// Succeeds says, during a term, whether there was another leader before.
	Succeeds() bool
}

// checks are where the results of a leader's checks are kept for others to see.
type checks interface {
	monitor.Sink
	// Prune removes the results of providers that are checked no more.
	Prune(ctx context.Context) error
}

// unseen are the checks of a fleet that has no place to show them: the objects have no namespace, and are not for a fleet that has.
type unseen struct{}

func (unseen) Report(context.Context, monitor.Result) error { return nil }
func (unseen) Prune(context.Context) error                  { return nil }

// alone leads for as long as it takes part, and there is nobody else.
type alone struct{}

func (alone) Run(ctx context.Context, lead func(context.Context) error) error { return lead(ctx) }
func (alone) Leader() (address string, self bool)                             { return "", true }
func (alone) Succeeds() bool                                                  { return false }

// open makes the API of a replica that does not lead. It is what callers see until a term begins.
func (c *cluster) open() (err error) {
	api := c.api()
	api.Leader, api.Transport = c.leader, c.server.Peers()
	c.following, err = discovery.New(api)
	c.show(c.following)
	return err
}

// api is what the API of each replica is made of.
func (c *cluster) api() discovery.Config {
	api := c.front.api()
	api.Proxies, api.Name = c.objects, c.identity
	api.Ready = func(context.Context) error { return c.objects.Ready() }
	api.Backup = func(io.Writer) error { return discovery.NotOffered(noBackup) }
	return api
}

const noBackup = "the state of this fleet is in its cluster: back up the Proxy objects and the Secrets that they refer to, for example with kubectl get -o yaml"

// leader returns where the API of the leader is, or "" while there is none: this replica leads, and its term has not begun.
func (c *cluster) leader() string {
	address, self := c.elector.Leader()
	if self || address == "" {
		return ""
	}
	scheme, _, _ := strings.Cut(c.server.URL(), "://")
	return scheme + "://" + address
}

// show has callers see an API from now on.
func (c *cluster) show(api http.Handler) { c.now.Store(&api) }

// ServeHTTP answers as the replica does at the moment.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*c.now.Load()).ServeHTTP(w, r) }

// run serves and takes part in elections until ctx ends or a part fails.
func (c *cluster) run(ctx context.Context) error {
	c.announce("fleet", c.identity)
	err := c.serve(ctx, c, c.keep)
	c.sendSpans()
	return err
}

// keep follows the cluster, and leads when it is elected. A replica that does not know the proxies yet does not stand for
// election. What is followed is followed until the last term has ended.
func (c *cluster) keep(ctx context.Context) error {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.objects.Run(following) }()
	err := c.objects.Synced(ctx)
	switch {
	case err == nil:
		c.log.Info("the cluster's proxies are known")
		err = c.elector.Run(ctx, c.lead)
	case ctx.Err() != nil:
		err = nil
	}
	stop()
	return errors.Join(err, <-ended)
}

// lead keeps the fleet for a term.
func (c *cluster) lead(ctx context.Context) error {
	figures, err := c.figures.NewFleet()
	if err != nil {
		return err
	}
	defer figures.Forget()
	p := post{options: c.options, configuration: c.configuration, types: c.types, identity: c.identity, store: c.objects,
		restricted: c.objects.Restricted(), sink: c.checks, log: c.log, spans: c.spans, metrics: figures}
	t := &term{cluster: c, over: make(chan struct{})}
	if t.crew, err = newCrew(p); err != nil {
		return err
	}
	api := t.crew.show(c.api())
	api.Ending = t.over
	if t.api, err = discovery.New(api); err != nil {
		return err
	}
	return t.run(ctx)
}
