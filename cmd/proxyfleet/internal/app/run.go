package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/logging"
	"github.com/proxyfleet/fleet/lease"
)

// runOptions are what the flags of run say.
type runOptions struct {
	documents
	cluster       clusterOptions
	leases        string
	documentsPoll time.Duration
	allowDelete   int

	listen            string
	tokenFile         string
	insecureNoToken   bool
	certFile, keyFile string
	shutdownTimeout   time.Duration

	logFormat     logging.Format
	logLevel      slog.Level
	metricsListen string
	traceProbes   bool

	lease         lease.Config
	policy        policy
	healthWorkers int
	intervals     fleet.Intervals

	checkInterval, checkTimeout time.Duration
	gcInterval, gcMinAge        time.Duration
}

func newRun(types map[string]ProviderType) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run -f FILE...",
		Short: "Run the fleet that documents declare",
		Long: `run keeps a fleet as YAML documents declare it, and serves its HTTP API, until it is interrupted.

The documents are those that kubectl apply takes, of the kinds Proxy and Secret, and one FleetConfiguration.
They are applied at the start and whenever a file changes; an edit that is broken changes nothing. What the
fleet knows is kept in a state file, and who has leased what in another one beside it, so that it goes on after
a crash as if nothing had been.

With --kubernetes, what is declared are the Proxy objects and Secrets of a cluster, and what the fleet knows is in
their status. Several replicas may run: one of them leads and keeps the fleet, and all of them answer. Leases are in
the leader's memory, and lost with it. "proxyfleet crds" prints the definitions that the cluster needs.

The first interrupt or SIGTERM lets requests end and then the fleet; the second one ends it at once. Instances
that outlive the process run on.`,
		Example: `  # A fleet for this machine alone; its state is in fleet.db.
  proxyfleet run -f fleet.yaml

  # A fleet for others. The token is what they have to know.
  proxyfleet run -f fleet.yaml --listen :8090 --token-file token --tls-cert-file cert.pem --tls-key-file key.pem

  # One of several replicas in a Kubernetes cluster. The file holds its FleetConfiguration.
  proxyfleet run --kubernetes -f fleet.yaml --listen :8090 --advertise-address "$POD_IP" --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.cluster.refuseForeign(cmd.Flags().Changed); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), types, logging.New(cmd.ErrOrStderr(), o.logFormat, o.logLevel))
		},
	}
	cmd.Flags().SortFlags = false
	o.addFlags(cmd.Flags())
	return cmd
}

// run opens a fleet and keeps it until ctx ends.
func (o *runOptions) run(ctx context.Context, types map[string]ProviderType, log *slog.Logger) error {
	keep, err := o.open(ctx, types, log)
	switch {
	case errors.Is(err, context.Canceled):
		log.Info("ended before the fleet was open", "err", err)
		return nil
	case err != nil:
		return err
	}
	said := context.AfterFunc(ctx, func() { log.Info("ending", "timeout", o.shutdownTimeout.String()) })
	defer said()
	return within(ctx, o.shutdownTimeout, keep)
}

// open opens the fleet that the flags name, and returns what keeps it.
func (o *runOptions) open(ctx context.Context, types map[string]ProviderType, log *slog.Logger) (keep func(context.Context) error, err error) {
	if o.cluster.kubernetes {
		c, err := openCluster(ctx, *o, types, log)
		if err != nil {
			return nil, err
		}
		return c.run, nil
	}
	s, err := openStandalone(ctx, *o, types, log)
	if err != nil {
		return nil, err
	}
	return s.run, nil
}

func (o *runOptions) addFlags(flags *pflag.FlagSet) {
	o.documents.addFlags(flags)
	file := flags.Lookup("file")
	file.Usage = strings.Replace(file.Usage, "(required)", "(required without --kubernetes)", 1)
	flags.StringVar(&o.leases, "leases", "", "`FILE` of leases and cooldowns (default: the state file's name with the extension .leases.db)")
	flags.IntVar(&o.allowDelete, "allow-delete", 0, "`N` proxies may vanish from the documents at the start (default: 3, or a fifth of them)")
	positive(flags, &o.documentsPoll, "documents-poll", time.Second, "polling interval of the files; a change is applied when two find the same")
	o.cluster.addFlags(flags)

	flags.StringVar(&o.listen, "listen", "127.0.0.1:8090", "`ADDRESS` of the HTTP API; port 0 takes a free one")
	flags.StringVar(&o.tokenFile, "token-file", "", "`FILE` with the token that callers must know (default: the value of PROXYFLEET_TOKEN)")
	flags.BoolVar(&o.insecureNoToken, "insecure-no-token", false, "let other machines in without a token")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "`FILE` with the TLS certificate of the API, read again when it changes (default: no TLS)")
	flags.StringVar(&o.keyFile, "tls-key-file", "", "`FILE` with the key of that certificate")
	positive(flags, &o.shutdownTimeout, "shutdown-timeout", 30*time.Second, "how long an orderly end may take; requests have half of it")

	o.logFormat = logging.Auto
	flags.TextVar(&o.logFormat, "log-format", o.logFormat, "`FORMAT` of the log: text or json; auto is text at a terminal, else json")
	flags.TextVar(&o.logLevel, "log-level", o.logLevel, "least `LEVEL` that is logged: debug, info, warn or error")
	flags.StringVar(&o.metricsListen, "metrics-listen", "", "`ADDRESS` of /metrics, /healthz and /readyz, without a token (default: off)")
	flags.BoolVar(&o.traceProbes, "trace-health-probes", false, "make a span of each probe, where OTEL_* variables ask for spans")

	positive(flags, &o.lease.DefaultTTL, "lease-ttl", 5*time.Minute, "how long a lease lasts whose request does not say")
	positive(flags, &o.lease.MaxTTL, "max-lease-ttl", time.Hour, "longest TTL that may be asked for")
	positive(flags, &o.lease.CooldownWindow, "cooldown-window", 10*time.Minute, "how long a proxy rests from a target after a first ban")
	flags.Float64Var(&o.lease.CooldownFactor, "cooldown-factor", 2, "each further ban in a row makes the rest `N` times longer; 1 keeps it as it is")
	positive(flags, &o.lease.MaxCooldown, "max-cooldown", 6*time.Hour, "longest rest after bans in a row")
	o.policy = fewestActive
	flags.TextVar(&o.policy, "lease-policy", o.policy, "`POLICY` by which proxies are offered: fewest-active, spread, fastest or random")
	flags.IntVar(&o.healthWorkers, "health-workers", 8, "`N` probes may run at once")
	o.addIntervals(flags)
	o.addNets(flags)
}

// addNets adds the flags of what watches over providers from outside of the passes.
func (o *runOptions) addNets(flags *pflag.FlagSet) {
	orOff(flags, &o.checkInterval, "provider-check-interval", time.Minute, "time from one check of all providers to the next, at least 10s; 0 is off")
	positive(flags, &o.checkTimeout, "provider-check-timeout", 0, "how long a check may take (default: 15s, or the interval if that is shorter)")
	positive(flags, &o.gcInterval, "gc-interval", 10*time.Minute, "time from one search for instances that no proxy holds to the next")
	positive(flags, &o.gcMinAge, "gc-min-age", 10*time.Minute, "how old such an instance must be to be deleted")
}

func (o *runOptions) addIntervals(flags *pflag.FlagSet) {
	i, d := &o.intervals, fleet.Intervals{}.WithDefaults()
	positive(flags, &i.ProvisioningPoll, "provisioning-poll", d.ProvisioningPoll, "polling interval of an instance that is on its way")
	positive(flags, &i.DeletionPoll, "deletion-poll", d.DeletionPoll, "polling interval of an instance that goes")
	positive(flags, &i.DriftPoll, "drift-poll", d.DriftPoll, "polling interval of an instance that runs")
	positive(flags, &i.Requeue, "requeue-interval", d.Requeue, "delay before the next automatic step")
	positive(flags, &i.Call, "call-timeout", d.Call, "timeout of each call of a provider")
	positive(flags, &i.FirstRetry, "first-retry", d.FirstRetry, "time until the second attempt; it doubles with each one")
	positive(flags, &i.LastRetry, "last-retry", d.LastRetry, "longest time between two attempts")
	positive(flags, &i.QuotaRetry, "quota-retry", d.QuotaRetry, "time until the next attempt after one that met a quota")
	positive(flags, &i.PermanentRetry, "permanent-retry", d.PermanentRetry, "time until the next attempt after one that failed for good")
	positive(flags, &i.Stable, "stable-after", d.Stable, "time after which an instance that still runs counts as a success")
	positive(flags, &i.Drain, "drain-timeout", d.Drain, "how long a proxy that is to be replaced waits for its open leases")
}

// leastCheckInterval is that of the monitor.
const leastCheckInterval = 10 * time.Second

// validate refuses flags that do not go together.
func (o *runOptions) validate() error {
	if err := o.validateSource(); err != nil {
		return err
	}
	switch {
	case (o.certFile == "") != (o.keyFile == ""):
		return misused("--tls-cert-file and --tls-key-file go together")
	case o.logLevel < slog.LevelDebug:
		return misused("--log-level must be debug, info, warn or error: below debug, libraries would log what they send, passwords included")
	case o.allowDelete < 0:
		return misused("--allow-delete must not be negative")
	case o.healthWorkers < 1:
		return misused("--health-workers must be at least 1")
	case o.checkInterval > 0 && o.checkInterval < leastCheckInterval:
		return misused("--provider-check-interval must be at least %s, or 0 for off", shortDuration(leastCheckInterval))
	case o.checkInterval > 0 && o.checkTimeout > o.checkInterval:
		return misused("--provider-check-timeout %s is above --provider-check-interval %s", shortDuration(o.checkTimeout), shortDuration(o.checkInterval))
	case o.intervals.FirstRetry > o.intervals.LastRetry:
		return misused("--first-retry %s is above --last-retry %s", shortDuration(o.intervals.FirstRetry), shortDuration(o.intervals.LastRetry))
	}
	return o.validateLeases()
}

// validateSource refuses flags that do not say where what is declared comes from, and where what is known goes.
func (o *runOptions) validateSource() error {
	if o.cluster.kubernetes {
		return o.cluster.validate(o.listen)
	}
	if err := o.documents.validate(); err != nil {
		return err
	}
	if o.leasesPath() == o.statePath() {
		return misused("--leases and --state must be two files")
	}
	return nil
}

func (o *runOptions) validateLeases() error {
	switch {
	case o.lease.MaxCooldown < o.lease.CooldownWindow:
		return misused("--max-cooldown %s is below --cooldown-window %s", shortDuration(o.lease.MaxCooldown), shortDuration(o.lease.CooldownWindow))
	case !(o.lease.CooldownFactor >= 1 && o.lease.CooldownFactor <= 1000): // NaN is neither
		return misused("--cooldown-factor must be 1 to 1000, not %v", o.lease.CooldownFactor)
	case o.lease.DefaultTTL > o.lease.MaxTTL:
		return misused("--lease-ttl %s is above --max-lease-ttl %s", shortDuration(o.lease.DefaultTTL), shortDuration(o.lease.MaxTTL))
	}
	return nil
}

// leasesPath is the file that the fleet keeps its leases in.
func (o *runOptions) leasesPath() string {
	return cmp.Or(o.leases, withoutExtension(o.statePath())+".leases.db")
}

// within runs something until ctx ends, and then waits no longer than the timeout. What has not ended by then is given up: a
// state file is one that a crash cannot harm.
func within(ctx context.Context, timeout time.Duration, run func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout):
		return fmt.Errorf("could not end within %v (--shutdown-timeout), and gave up what was under way", timeout)
	}
}
