package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Config configures one provider of a fleet.
type Config struct {
	// Name is what proxies call it by: 1 to 63 letters, digits, '-', '_' and '.', the first and last of them no sign.
	// Required.
	Name string `json:"name"`
	// Type says which constructor makes it. Required.
	Type string `json:"type"`
	// MaxInstances is how many instances the fleet may have here at once. Defaults to 0, which is no limit.
	MaxInstances int `json:"maxInstances,omitempty"`
	// Config is what the type asks for, and its constructor decodes with [DecodeConfig]. Defaults to nothing.
	Config json.RawMessage `json:"config,omitempty"`
}

// Environment is what a provider gets from the fleet that it works for.
type Environment struct {
	// Name is that of the provider in its [Config].
	Name string
	// Fleet is the identity of the fleet: the mark that its instances bear.
	Fleet string
	// StateDir is a directory of this provider's own, where it may keep files. It need not exist yet. Defaults to "", which
	// is none: a provider that needs one refuses to open.
	StateDir string
	// Logger gets what operators should know. Defaults to one that discards.
	Logger *slog.Logger
	// TracerProvider makes the spans of what a provider does behind a call. Defaults to one that makes none.
	TracerProvider trace.TracerProvider
}

func (e Environment) withDefaults() Environment {
	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}
	if e.TracerProvider == nil {
		e.TracerProvider = noop.NewTracerProvider()
	}
	return e
}

// of returns the environment of one provider of a fleet, from that of all.
func (e Environment) of(name string) Environment {
	e.Name = name
	e.Logger = e.Logger.With("provider", name)
	if e.StateDir != "" {
		e.StateDir = filepath.Join(e.StateDir, name)
	}
	return e
}

// Constructor makes a provider from what its [Config] holds. It starts no goroutine and goes to no network, so that a
// configuration can be checked by opening it; what has to work in the background is for [Runner].
type Constructor func(env Environment, config json.RawMessage) (Provider, error)

// Open makes the providers of a fleet by their names, from constructors by type. Each gets the environment with its own
// name, a logger that says it, and a directory of that name within StateDir. Open returns all that is wrong at once, each
// problem with the provider that has it.
func Open(configs []Config, constructors map[string]Constructor, env Environment) (map[string]Provider, error) {
	env = env.withDefaults()
	providers := make(map[string]Provider, len(configs))
	var problems []error
	for i, c := range configs {
		p, err := open(c, constructors, env)
		if _, twice := providers[c.Name]; twice {
			err = errors.Join(err, errors.New("name: another provider has it already"))
		}
		if err != nil {
			problems = append(problems, newProblem(i, c, err))
		}
		providers[c.Name] = p
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return providers, nil
}

func open(c Config, constructors map[string]Constructor, env Environment) (Provider, error) {
	if err := c.validate(constructors); err != nil {
		return nil, err
	}
	return constructors[c.Type](env.of(c.Name), c.Config)
}

// problem is what is wrong with one provider of the configuration. Each line of it says with which.
type problem struct {
	of  string
	err error
}

// newProblem names the provider by its name or else by its place.
func newProblem(i int, c Config, err error) error {
	if c.Name == "" {
		return problem{fmt.Sprintf("providers[%d]: ", i), err}
	}
	return problem{fmt.Sprintf("provider %q: ", c.Name), err}
}

func (p problem) Error() string { return p.of + strings.ReplaceAll(p.err.Error(), "\n", "\n"+p.of) }

func (p problem) Unwrap() error { return p.err }

func (c Config) validate(constructors map[string]Constructor) error {
	var problems []error
	if err := validateName(c.Name); err != nil {
		problems = append(problems, err)
	}
	if _, ok := constructors[c.Type]; !ok {
		known := slices.Sorted(maps.Keys(constructors))
		problems = append(problems, fmt.Errorf("type: %q is not known; the types are %s", c.Type, strings.Join(known, ", ")))
	}
	if c.MaxInstances < 0 {
		problems = append(problems, fmt.Errorf("maxInstances: %d is negative; 0 is no limit", c.MaxInstances))
	}
	return errors.Join(problems...)
}

// validateName keeps names to what a label value may be, which is also safe as the name of a directory.
func validateName(name string) error {
	const most = 63
	if len(name) > most || !labelValue.MatchString(name) {
		return fmt.Errorf("name: want 1 to %d letters, digits, '-', '_' and '.', the first and last of them no sign", most)
	}
	return nil
}
