// Command proxyfleet keeps a fleet of forward proxies for web crawlers: it makes the proxies that YAML documents or the objects
// of a Kubernetes cluster declare, probes each through itself, and leases the healthy ones over HTTP. It is also the client of
// a running fleet. "proxyfleet help" says how.
package main

import (
	"os"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/app"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/kvm"
	"github.com/proxyfleet/fleet/provider/kvm2"
	"github.com/proxyfleet/fleet/provider/local"
	"github.com/proxyfleet/fleet/provider/pod"
)

func main() {
	os.Exit(app.Main(os.Args[1:], types(), os.Stdout, os.Stderr))
}

// types are the providers that a configuration may name.
func types() map[string]app.ProviderType {
	return map[string]app.ProviderType{
		"gcp":   {New: gcp.New, Outlives: true},
		"kvm":   {New: kvm.New, Outlives: true},
		"kvm2":  {New: kvm2.New, Outlives: true},
		"local": {New: local.New, Outlives: false}, // its instances are listeners of this process
		"pod":   {New: pod.New, Outlives: true, InCluster: true},
	}
}
