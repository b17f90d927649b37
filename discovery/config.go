package discovery

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// Config is what a handler is made of. Its functions are called by many goroutines at once.
type Config struct {
	// Proxies are what the API shows, and where skip-cleanup and retry leave their annotations. Required.
	Proxies proxy.Store
	// Leases are what the API hands out. Required, unless another replica leads.
	Leases lease.Store
	// ActiveLeases returns the number of open leases of each proxy that has any, by namespace/name. Defaults to none, or, if
	// another replica leads, to not known: the API and the pages then leave the numbers out.
	ActiveLeases func() map[string]int
	// Leader returns the URL of the API of the replica that leads, such as https://192.0.2.7:8090, or "" while nobody is known
	// to lead. The handler is then that of a replica which does not. It answers for the proxies, and has the leader answer what
	// only that one knows: all below /v1/leases and /v1/gc, /v1/providers, and explanations, for which it needs nothing itself.
	// Pages are the leader's too, while it answers. A request that was forwarded is not forwarded again. Defaults to none: this
	// process leads.
	Leader func() string
	// Transport carries what is forwarded, with the caller's token: it must make sure that it speaks to a replica, and not
	// wait for long until it has a connection. Required with Leader.
	Transport http.RoundTripper
	// Ready returns why the process cannot serve yet, or nil. No lease is granted, renewed or reported on before: a process
	// that does not know its proxies would say that there are none, and that those of open leases are gone. Everybody can
	// read the answer of /readyz, so it holds no secrets. Defaults to always ready.
	Ready func(context.Context) error
	// Backup writes a consistent copy of the fleet's state. It may return what [NotOffered] does. Defaults to none: /v1/backup
	// then answers 501.
	Backup func(io.Writer) error
	// Providers returns what the checks of each provider found the last time. Defaults to none: /v1/providers then answers 501.
	Providers func() []monitor.Result
	// Explain tells why a proxy is as it is, within a few seconds; the error of one that there is not is proxy.ErrNotFound.
	// Defaults to none: explain then answers 501.
	Explain func(context.Context, proxy.Key) (Explanation, error)
	// Sweeper plans and makes sweeps. Defaults to none: all below /v1/gc then answers 501.
	Sweeper Sweeper
	// Ending is closed when the process is about to end: what would take minutes is then answered with 503. Defaults to never.
	Ending <-chan struct{}
	// Name is what the status page calls the fleet. Defaults to none.
	Name string
	// Cooldowns returns how many cooldowns there are, for the status page. Defaults to none: the page does not speak of them.
	Cooldowns func() int
	// Held returns how many instances the brake of the sweeper held back the last time, by provider, for the status page.
	// Defaults to none.
	Held func() map[string]int
	// Token is what callers must know. Defaults to none: everybody who reaches the handler may do everything, except that
	// a request which changes something, a backup and a plan must be addressed to a loopback host, so that no web page
	// which a browser on this machine shows can send it.
	Token secret.Text
	// AnyHost serves everybody who reaches the handler even without a token, whatever host they address. It is for a network
	// whose every member may do everything. Defaults to false.
	AnyHost bool
	// Logger gets a line for each request at Debug, and failures of the server at Error. Defaults to none.
	Logger *slog.Logger
	// TracerProvider makes a span for each request but those of /healthz and /readyz. Defaults to none.
	TracerProvider trace.TracerProvider
	// Recorder hears of every request. Defaults to none.
	Recorder Recorder
}

func (c Config) withDefaults() Config {
	if c.ActiveLeases == nil && c.Leader == nil {
		c.ActiveLeases = func() map[string]int { return nil }
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	if c.Recorder == nil {
		c.Recorder = ignore{}
	}
	return c
}

// validate returns all problems.
func (c Config) validate() error {
	var problems []error
	if c.Proxies == nil {
		problems = append(problems, errors.New("discovery: Proxies is required"))
	}
	if c.Leases == nil && c.Leader == nil {
		problems = append(problems, errors.New("discovery: Leases is required"))
	}
	if c.Transport == nil && c.Leader != nil {
		problems = append(problems, errors.New("discovery: Transport is required with Leader"))
	}
	return errors.Join(problems...)
}
