package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
)

// ErrRestricted is what [New] returns when the records are not all there are, and nobody has said that this is meant.
var ErrRestricted = errors.New("gc: the store shows only some of the records, and instances of the others would count as orphans")

// Config is what a [Sweeper] is made of.
type Config struct {
	// Fleet is the identity of the installation: only instances with this mark are ever deleted. Required.
	Fleet string
	// Providers are swept, all of them, by their names. Defaults to none.
	Providers map[string]provider.Provider
	// Live returns what the record of each UID holds, complete and no older than the call, or an error: what it leaves out
	// may be deleted, so a cache cannot answer it. A record that is being deleted is among them until it is gone. It is
	// called concurrently, once for each provider after its list and once before each deletion, and ends by its context.
	// Required.
	Live func(context.Context) (map[string]Held, error)
	// Interval is the time from one sweep of Run to the next. Defaults to 10m.
	Interval time.Duration
	// MinAge is how old an instance must be to be deleted. Defaults to 10m.
	MinAge time.Duration
	// Restricted says that Live knows only some of the records, such as those of one namespace. New then refuses with
	// [ErrRestricted]. Defaults to false.
	Restricted bool
	// AllowRestricted says that no instance with the mark of this fleet belongs to a record that Live does not know, although
	// it is Restricted. Defaults to false.
	AllowRestricted bool
	// Logger gets a line for each deletion, and for what could not be swept or is held back. Defaults to none.
	Logger *slog.Logger
	// TracerProvider makes a span of each sweep. Defaults to one that makes none.
	TracerProvider trace.TracerProvider
	// Recorder hears of each sweep. Defaults to none.
	Recorder Recorder
}

// Held is what the record of a UID holds.
type Held struct {
	// Key is namespace/name.
	Key string
	// External: the record wants no instance. What its status still names is the reconciler's to remove; all else is a stray.
	External bool
	// Deleting: the record and all that belongs to it are the reconciler's to remove.
	Deleting bool
	// Provider, ID and Incarnation are those of the instance in the status. Without an ID nothing was made yet, or the last
	// one is proven gone; without an Incarnation it was not seen yet.
	Provider, ID, Incarnation string
}

// Recorder hears of sweeps. It is called concurrently.
type Recorder interface {
	// Swept says that a provider's part of a sweep ended: ok, unreadable, braked or records_unreadable. One that its caller
	// gave up before it knew what to delete is not told.
	Swept(provider, result string, took time.Duration)
	// Collected says that a deletion was sent: of an orphan or a stray, with result ok or error.
	Collected(provider, kind, result string)
	// Held says how many instances the brake holds back after a sweep; 0: none. It is not called when there was nothing to
	// judge by.
	Held(provider string, instances int)
}

// ignore is the recorder of those who have none.
type ignore struct{}

func (ignore) Swept(string, string, time.Duration) {}
func (ignore) Collected(string, string, string)    {}
func (ignore) Held(string, int)                    {}

func (c Config) withDefaults() Config {
	if c.Interval == 0 {
		c.Interval = 10 * time.Minute
	}
	if c.MinAge == 0 {
		c.MinAge = 10 * time.Minute
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

// validate returns all problems at once.
func (c Config) validate() error {
	var problems []error
	if c.Fleet == "" {
		problems = append(problems, errors.New("gc: Fleet is required"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if c.Providers[name] == nil {
			problems = append(problems, fmt.Errorf("gc: Providers[%q] is nil", name))
		}
	}
	if c.Live == nil {
		problems = append(problems, errors.New("gc: Live is required"))
	}
	if c.Interval < 0 {
		problems = append(problems, fmt.Errorf("gc: Interval must be positive, not %v", c.Interval))
	}
	if c.MinAge < 0 {
		problems = append(problems, fmt.Errorf("gc: MinAge must be positive, not %v", c.MinAge))
	}
	if c.Restricted && !c.AllowRestricted {
		problems = append(problems, ErrRestricted)
	}
	return errors.Join(problems...)
}
