// Package fleet keeps a fleet of forward proxies for web crawlers.
//
// Somebody declares proxies in a [proxy.Store]; the [Fleet] makes them exist through providers, probes each through itself,
// and hands the healthy ones to crawlers as leases. Its heart is the [Reconciler], a state machine that holds no state of
// its own: it may be killed between any two steps, and another goes on from what the store and the providers know.
//
// [New] takes one [Config], and [Fleet.Run] runs everything until its context ends:
//
//	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "crawl"})
//	f, err := fleet.New(fleet.Config{Fleet: "crawl", Store: store, Providers: providers})
//	...
//	go f.Run(ctx)
//	grant, err := f.Leases().Acquire(ctx, lease.Request{Target: "example.com"})
//
// Every contract stands in a package of its own and can be fulfilled by others: stores in package proxy, providers in
// package provider, probers in package health, policies in package lease.
package fleet
