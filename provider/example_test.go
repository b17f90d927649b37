package provider_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
)

// A program names the types of providers that it knows, and opens those that its configuration asks for.
func ExampleOpen() {
	type config struct {
		Region string `json:"region"`
	}
	constructors := map[string]provider.Constructor{
		"cloud": func(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
			var c config
			if err := provider.DecodeConfig(raw, &c); err != nil {
				return nil, err
			}
			fmt.Printf("%s is a cloud in region %s\n", env.Name, c.Region)
			return new(providertest.Memory).Open(env.Fleet), nil
		},
	}
	env := provider.Environment{Fleet: "lab"}

	_, err := provider.Open([]provider.Config{
		{Name: "east", Type: "cloud", Config: json.RawMessage(`{"region": "east-1"}`)},
	}, constructors, env)
	fmt.Println(err)

	_, err = provider.Open([]provider.Config{
		{Name: "west", Type: "cloud", Config: json.RawMessage(`{"regio": "west-1"}`)},
		{Name: "north", Type: "clod"},
	}, constructors, env)
	fmt.Println(err)
	// Output:
	// east is a cloud in region east-1
	// <nil>
	// provider "west": config.regio: there is no such field; the fields are region
	// provider "north": type: "clod" is not known; the types are cloud
}

// The class of an error says what to do next.
func ExampleClassOf() {
	p := new(providertest.Memory).Open("lab")
	_, err := p.Get(context.Background(), provider.Ref{ID: "memory/proxy-abc", UID: "0b5ce0b1"})
	fmt.Println(provider.ClassOf(err) == provider.ErrNotFound)
	// Output: true
}

// Decorators hide no ability: As looks through them.
func ExampleAs() {
	p := provider.WithRecorder(runner{}, "cloud", discard{})
	if r, ok := provider.As[provider.Runner](p); ok {
		fmt.Println(r.Run(context.Background()))
	}
	// Output: <nil>
}
