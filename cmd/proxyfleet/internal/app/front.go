package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/tracing"
	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/metrics"
)

// front is what a process shows to others, whatever fleet stands behind it: the address of its API, that of its metrics, and
// its spans.
type front struct {
	log     *slog.Logger
	access  access
	spans   *tracing.Tracing
	flush   time.Duration // how long the last spans may take to leave
	figures *metrics.Process
	server  *serving.Server
	scrapes *serving.Server // nil: nobody may scrape
	ending  chan struct{}   // closed when the process is to end
}

// openFront takes the addresses.
func openFront(ctx context.Context, o runOptions, a access, c *manifest.Configuration, log *slog.Logger) (_ *front, err error) {
	f := &front{log: log, access: a, flush: o.shutdownTimeout / 4, ending: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.discard())
		}
	}()
	if f.spans, err = tracing.Open(ctx, version(), log); err != nil {
		return nil, err
	}
	names := make([]string, len(c.Providers))
	for i, p := range c.Providers {
		names[i] = p.Name
	}
	if f.figures, err = metrics.NewProcess(metrics.Config{Version: version(), Providers: names, Logger: log}); err != nil {
		return nil, err
	}
	f.server, err = serving.Listen(serving.Config{Address: o.listen, CertFile: o.certFile, KeyFile: o.keyFile,
		Drain: o.shutdownTimeout / 2, Logger: log})
	if err == nil && o.metricsListen != "" {
		f.scrapes, err = serving.Listen(serving.Config{Address: o.metricsListen, MaxConnections: maxScrapers, Brief: true, Logger: log})
	}
	return f, err
}

// maxScrapers is how many connections for metrics are open at once, so that the API's have room. The kubelet's probes are among
// them, so none is kept: those that somebody leaves idle would have a replica killed that works.
const maxScrapers = 64

// api is what the API of each fleet is made of.
func (f *front) api() discovery.Config {
	return discovery.Config{
		Ending:         f.ending,
		Token:          f.access.token,
		AnyHost:        f.access.everybody,
		Logger:         f.log,
		TracerProvider: f.spans,
		Recorder:       f.figures,
	}
}

// announce says what somebody who reads the log of a start looks for.
func (f *front) announce(args ...any) {
	if f.access.token.IsZero() {
		f.log.Warn("the API has no token: whoever reaches it may lease proxies and change the fleet", "url", f.server.URL())
	}
	if f.scrapes != nil {
		f.log.Info("serving metrics", "url", f.scrapes.URL()+"/metrics")
	}
	f.log.Info("serving", append([]any{"url", f.server.URL()}, args...)...)
}

// serve has the API served and the parts run until ctx ends or one of them does. Then requests end first, and the parts after
// them, for requests need them.
func (f *front) serve(ctx context.Context, api http.Handler, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { close(f.ending) })
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	if f.scrapes != nil {
		parts = append(parts, func(ctx context.Context) error { return f.scrapes.Run(ctx, f.scraped(api)) })
	}
	failures := make([]error, len(parts))
	var running sync.WaitGroup
	for i, run := range parts {
		running.Go(func() {
			failures[i] = run(keeping)
			stop()
		})
	}
	serverErr := f.server.Run(ctx, api)
	release()
	running.Wait()
	return errors.Join(append([]error{serverErr}, failures...)...)
}

// scraped is what a server for scrapes answers. It has no token: metrics and health hold no secrets.
func (f *front) scraped(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", f.figures.Handler())
	mux.Handle("GET /healthz", api)
	mux.Handle("GET /readyz", api)
	return mux
}

// sendSpans sends those that nobody has got yet, to whom it may concern.
func (f *front) sendSpans() {
	ctx, cancel := context.WithTimeout(context.Background(), f.flush)
	defer cancel()
	if err := f.spans.Close(ctx); err != nil {
		f.log.Warn("the last spans are lost", "err", err)
	}
}

// discard lets go of a front that does not serve.
func (f *front) discard() (err error) {
	if f.server != nil {
		err = f.server.Close()
	}
	if f.scrapes != nil {
		err = errors.Join(err, f.scrapes.Close())
	}
	if f.spans != nil {
		f.sendSpans()
	}
	return err
}
