package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/tracing"
	"github.com/proxyfleet/fleet/controller"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// openCluster makes a replica of a fleet in a Kubernetes cluster. It may be called once in a process, for client-go has one
// log in a process, which is led to that of the replica.
func openCluster(ctx context.Context, o runOptions, types map[string]ProviderType, log *slog.Logger) (_ *cluster, err error) {
	a, err := readAccess(o)
	if err != nil {
		return nil, err
	}
	conf, err := o.loadConfiguration(types)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(log)
	where, err := o.cluster.locate()
	if err != nil {
		return nil, err
	}
	c := &cluster{options: o, configuration: conf, types: types}
	if c.identity, err = o.cluster.identity(ctx, conf, types, where); err != nil {
		return nil, err
	}
	if c.front, err = openFront(ctx, o, a, conf, log); err != nil {
		return nil, err
	}
	if err := errors.Join(c.follow(where), c.open()); err != nil {
		return nil, errors.Join(err, c.discard())
	}
	return c, nil
}

// loadConfiguration reads the documents of a fleet in a cluster, and returns all that is wrong with them, down to the
// configuration of the providers. There need be none.
func (o *runOptions) loadConfiguration(types map[string]ProviderType) (*manifest.Configuration, error) {
	set, err := manifest.Load(o.sources())
	if err != nil {
		return nil, err
	}
	var foreign []string
	for _, k := range slices.SortedFunc(maps.Keys(set.Proxies), proxy.Key.Compare) {
		foreign = append(foreign, fmt.Sprintf("Proxy %v", k))
	}
	for _, k := range slices.SortedFunc(maps.Keys(set.Secrets), proxy.Key.Compare) {
		foreign = append(foreign, fmt.Sprintf("Secret %v", k))
	}
	if n := len(foreign); n > 0 {
		return nil, fmt.Errorf("with --kubernetes, -f holds a FleetConfiguration and nothing else, but there is %s and %d more: give it to kubectl apply -f",
			foreign[0], n-1)
	}
	c := configuration(set)
	// These are to be looked at only, and what the identity is may be for the cluster to say.
	_, err = openProviders(c, types, provider.Environment{Fleet: cmp.Or(o.cluster.fleetID, c.FleetID, notKnown)})
	return c, err
}

// location is a cluster, and where in it this process is.
type location struct {
	rest      *rest.Config
	namespace string
}

// namespaceFile says in which namespace a pod is.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// locate finds the cluster: the one that is named, or that this process runs in, or that kubectl would speak to.
func (o *clusterOptions) locate() (location, error) {
	if o.kubeconfig == "" {
		if inside, err := rest.InClusterConfig(); err == nil {
			namespace, err := os.ReadFile(namespaceFile)
			if err != nil {
				return location{}, fmt.Errorf("--kubernetes: which namespace this pod is in: %w", err)
			}
			return location{inside, strings.TrimSpace(string(namespace))}, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	outside := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := outside.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return location{}, errors.New("--kubernetes: no cluster was found: this process is not in one, and neither --kubeconfig nor KUBECONFIG names a file that says where one is")
	}
	if err != nil {
		return location{}, fmt.Errorf("--kubernetes: no cluster was found: %w", err)
	}
	namespace, _, err := outside.Namespace()
	return location{config, namespace}, err
}

// identityTimeout bounds the look at the namespace from which an identity is made.
const identityTimeout = 30 * time.Second

// identity returns what the instances of the fleet are found again by. Where all of them are in the cluster itself, the UID of
// the election's namespace is as good as what somebody chooses: it is lost no earlier than they are.
func (o *clusterOptions) identity(ctx context.Context, c *manifest.Configuration, types map[string]ProviderType, where location) (string, error) {
	if o.fleetID != "" && c.FleetID != "" && o.fleetID != c.FleetID {
		return "", fmt.Errorf("--fleet-id is %s, and the FleetConfiguration says fleetID: %s: say it once", o.fleetID, c.FleetID)
	}
	if id := cmp.Or(o.fleetID, c.FleetID); id != "" {
		return id, nil
	}
	for _, p := range c.Providers {
		if t := types[p.Type]; t.Outlives && !t.InCluster {
			return "", fmt.Errorf("--fleet-id or a fleetID in the FleetConfiguration is required: instances of provider %q outlive the cluster and are found again by it; "+
				"choose one that no other fleet there has, and never change it", p.Name)
		}
	}
	client, err := kubernetes.NewForConfig(where.rest)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	name := cmp.Or(o.electionSpace, where.namespace)
	namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("no --fleet-id is given, and namespace %s, from which one would be made, cannot be read: %w", name, err)
	}
	space, err := uuid.Parse(string(namespace.UID))
	if err != nil {
		return "", fmt.Errorf("no --fleet-id is given, and none can be made: the UID of namespace %s: %w", name, err)
	}
	return uuid.NewSHA1(space, []byte(o.electionID)).String(), nil
}

// follow makes what speaks to the cluster.
func (c *cluster) follow(where location) (err error) {
	where.rest.Wrap(func(rt http.RoundTripper) http.RoundTripper { return tracing.UnderParent(rt, c.spans) })
	where.rest.UserAgent = "proxyfleet/" + version()
	o := c.options.cluster
	if c.objects, err = controller.New(controller.Config{REST: where.rest, Namespace: o.namespace, Fleet: c.identity, Logger: c.log}); err != nil {
		return err
	}
	c.checks = unseen{}
	if o.namespace == "" {
		c.checks, err = controller.NewHealthWriter(controller.HealthConfig{REST: where.rest, Types: c.checked(), Fleet: c.identity,
			Logger: c.log})
	}
	if err != nil || !o.elect {
		c.elector = alone{}
		return err
	}
	_, address, _ := strings.Cut(c.server.URL(), "://")
	c.elector, err = controller.NewElector(controller.ElectorConfig{REST: where.rest, Namespace: cmp.Or(o.electionSpace, where.namespace),
		Name: o.electionID, Address: o.address(address), Logger: c.log})
	return err
}

// checked are the types of the providers that are checked, by their names.
func (c *cluster) checked() map[string]string {
	types := map[string]string{}
	if c.options.checkInterval > 0 {
		for _, p := range c.configuration.Providers {
			types[p.Name] = p.Type
		}
	}
	return types
}
