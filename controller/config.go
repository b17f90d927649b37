package controller

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/proxyfleet/fleet/proxy"
)

// FleetAnnotation is the annotation of a Proxy object by which a fleet says that it keeps the proxy. It comes with the finalizer,
// before anything is made: what two fleets keep would be made by each and deleted as a stray by the other. Who removes it gives
// the proxy to whichever fleet is next, which writes its own before it does anything.
const FleetAnnotation = "crawl.example.com/fleet"

// Config says which cluster a [Store] is in.
type Config struct {
	// REST is how the API server is reached. Without QPS there, at most 500 requests are sent per second, and 1000 at once:
	// what client-go does by itself would take half an hour to write down 10,000 proxies. Required.
	REST *rest.Config
	// Namespace is the only one whose proxies and Secrets are there. Defaults to all.
	Namespace string
	// Fleet is the identity of the fleet that the proxies are for. Those that another one keeps, as their annotation
	// [FleetAnnotation] says, are not there for this one. Defaults to none: all proxies are there.
	Fleet string
	// Timeout bounds each request, except for watches: those the API server ends, and a connection that died is found out.
	// Defaults to 30s.
	Timeout time.Duration
	// Logger hears when the API server does not answer as it should, and when it does again. Defaults to one that discards.
	Logger *slog.Logger
}

func (c Config) validate() error {
	var problems []error
	if c.REST == nil {
		problems = append(problems, errors.New("controller: REST is required"))
	}
	if c.Namespace != "" {
		if err := proxy.ValidateKey(proxy.Key{Namespace: c.Namespace, Name: "any"}); err != nil {
			problems = append(problems, fmt.Errorf("controller: Namespace must be the name of one, not %q", c.Namespace))
		}
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("controller: Timeout must be positive, not %v", c.Timeout))
	}
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.REST = rest.CopyConfig(c.REST)
	if c.REST.QPS == 0 && c.REST.RateLimiter == nil {
		c.REST.QPS, c.REST.Burst = 500, 1000
	}
	return c
}
