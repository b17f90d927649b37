package manifest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/proxy"
)

const fleetYAML = `
apiVersion: crawl.example.com/v1alpha1
kind: FleetConfiguration
fleetID: home
providers:
- {name: local, type: local, config: {addresses: [127.0.0.1]}}
---
apiVersion: v1
kind: Secret
metadata:
  name: squid
  labels: {crawl.example.com/credentials: "true"}
stringData: {username: crawler, password: correct horse}
---
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: proxy-1}
spec:
  provider: local
  credentials: {secretRef: {name: squid}}
`

func writeExample(text string) (path string, remove func()) {
	dir, err := os.MkdirTemp("", "manifest")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	return path, func() { _ = os.RemoveAll(dir) }
}

func ExampleLoad() {
	path, remove := writeExample(fleetYAML)
	defer remove()
	set, err := manifest.Load(manifest.Sources{Files: []string{path}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("fleet", set.Configuration.FleetID)
	for _, p := range set.Configuration.Providers {
		fmt.Println("provider", p.Name, string(p.Config))
	}
	for key, d := range set.Proxies {
		fmt.Println("proxy", key, "of", d.Spec.Provider)
	}
	for key, s := range set.Secrets {
		fmt.Println("secret", key, s.Data["password"])
	}
	// Output:
	// fleet home
	// provider local {"addresses":["127.0.0.1"]}
	// proxy default/proxy-1 of local
	// secret default/squid REDACTED
}

func ExampleApplier() {
	path, remove := writeExample(fleetYAML)
	defer remove()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	sources := manifest.Sources{Files: []string{path}}
	set, err := manifest.Load(sources)
	if err != nil {
		log.Fatal(err)
	}
	secrets := manifest.NewSecrets()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: set.Configuration.FleetID, Secrets: secrets})
	applier, err := manifest.NewApplier(manifest.ApplierConfig{Sources: sources, Store: store, Secrets: secrets})
	if err != nil {
		log.Fatal(err)
	}
	if err := applier.Apply(ctx, set); err != nil {
		log.Fatal(err)
	}
	go applier.Run(ctx) // follows the file until ctx ends

	p, err := store.Get(ctx, proxy.Key{Namespace: "default", Name: "proxy-1"})
	if err != nil {
		log.Fatal(err)
	}
	in, err := store.Inputs(ctx, p)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Key, in.Username.Reveal(), in.Password)
	// Output: default/proxy-1 crawler REDACTED
}
