package provider_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
)

// opened keeps what constructors were called with.
type opened struct {
	env    provider.Environment
	config json.RawMessage
}

func constructors(calls *[]opened) map[string]provider.Constructor {
	return map[string]provider.Constructor{
		"good": func(env provider.Environment, config json.RawMessage) (provider.Provider, error) {
			*calls = append(*calls, opened{env, config})
			return plain{}, nil
		},
		"bad": func(provider.Environment, json.RawMessage) (provider.Provider, error) {
			return nil, errors.New("config.host: is required")
		},
	}
}

func TestOpen(t *testing.T) {
	var calls []opened
	var log strings.Builder
	configs := []provider.Config{
		{Name: "one", Type: "good", Config: json.RawMessage(`{"a":1}`)},
		{Name: "Two.b_c-3", Type: "good", MaxInstances: 3},
	}
	env := provider.Environment{Fleet: "lab", StateDir: "/state", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	providers, err := provider.Open(configs, constructors(&calls), env)
	if err != nil {
		t.Fatal(err)
	}
	if len(providers) != 2 || providers["one"] == nil || providers["Two.b_c-3"] == nil {
		t.Errorf("Open returned %v, want a provider for each of two names", providers)
	}
	for i, want := range configs {
		got := calls[i]
		if got.env.Name != want.Name || got.env.Fleet != "lab" || got.env.StateDir != filepath.Join("/state", want.Name) {
			t.Errorf("the environment of %s is %+v", want.Name, got.env)
		}
		if got.env.TracerProvider == nil {
			t.Errorf("%s was given no TracerProvider", want.Name)
		}
		if string(got.config) != string(want.Config) {
			t.Errorf("the config of %s is %s, want %s", want.Name, got.config, want.Config)
		}
		got.env.Logger.Info("hello")
		if !strings.Contains(log.String(), "provider="+want.Name) {
			t.Errorf("the logger of %s does not say its name: %s", want.Name, log.String())
		}
	}
}

func TestOpenWithoutStateDir(t *testing.T) {
	var calls []opened
	if _, err := provider.Open([]provider.Config{{Name: "one", Type: "good"}}, constructors(&calls), provider.Environment{}); err != nil {
		t.Fatal(err)
	}
	if env := calls[0].env; env.StateDir != "" || env.Logger == nil {
		t.Errorf("the environment is %+v, want no StateDir and a logger", env)
	}
}

func TestOpenRefuses(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		name    string
		configs []provider.Config
		want    []string
	}{
		{"no name", []provider.Config{{Name: "one", Type: "good"}, {Type: "good"}}, []string{"providers[1]: name: want 1 to 63"}},
		{"long name", []provider.Config{{Name: long, Type: "good"}}, []string{`provider "` + long + `": name:`}},
		{"path as name", []provider.Config{{Name: "..", Type: "good"}}, []string{`provider "..": name:`}},
		{"slash in name", []provider.Config{{Name: "a/b", Type: "good"}}, []string{`provider "a/b": name:`}},
		{"line after name", []provider.Config{{Name: "a\n", Type: "good"}}, []string{`provider "a\n": name:`}},
		{"unknown type", []provider.Config{{Name: "one", Type: "gut"}}, []string{`provider "one": type: "gut" is not known; the types are bad, good`}},
		{"negative maximum", []provider.Config{{Name: "one", Type: "good", MaxInstances: -1}}, []string{`provider "one": maxInstances: -1 is negative`}},
		{"constructor", []provider.Config{{Name: "one", Type: "bad"}}, []string{`provider "one": config.host: is required`}},
		{"same name", []provider.Config{{Name: "one", Type: "good"}, {Name: "one", Type: "good"}}, []string{`provider "one": name: another provider has it`}},
		{
			"all at once",
			[]provider.Config{{Name: "one", Type: "bad"}, {Name: "one", Type: "no", MaxInstances: -2}, {Name: "-", Type: "good"}},
			[]string{`provider "one": config.host`, `provider "one": type: "no"`, `provider "one": maxInstances: -2 is negative`, `provider "one": name: another provider has it`, `provider "-": name:`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls []opened
			providers, err := provider.Open(c.configs, constructors(&calls), provider.Environment{})
			if err == nil || providers != nil {
				t.Fatalf("Open returned %v and %v, want an error alone", providers, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestConfigJSON(t *testing.T) {
	const text = `{"name":"one","type":"local","maxInstances":2,"config":{"addresses":["127.0.0.2"]}}`
	var c provider.Config
	if err := provider.DecodeConfig(json.RawMessage(text), &c); err != nil {
		t.Fatal(err)
	}
	want := provider.Config{Name: "one", Type: "local", MaxInstances: 2, Config: json.RawMessage(`{"addresses":["127.0.0.2"]}`)}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	back, err := json.Marshal(c)
	if err != nil || string(back) != text {
		t.Errorf("Marshal = %s, %v, want %s", back, err, text)
	}
}

func TestOpenDoesNotChangeItsArguments(t *testing.T) {
	var calls []opened
	configs := []provider.Config{{Name: "one", Type: "good"}}
	before := slices.Clone(configs)
	if _, err := provider.Open(configs, constructors(&calls), provider.Environment{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, configs); diff != "" {
		t.Errorf("configs (-before +after):\n%s", diff)
	}
}
