package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// A crawler leases a proxy from a fleet, reports that the target has banned it, and learns that there is no other.
func Example() {
	server := httptest.NewServer(fleet())
	defer server.Close()
	ctx := context.Background()

	fleet, err := client.New(client.Config{BaseURL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	grant, err := fleet.Acquire(ctx, lease.Request{Selector: map[string]string{"region": "eu"}, Target: "example.com"})
	if err != nil {
		log.Fatal(err)
	}
	leased := grant.Leases[0]
	// The crawler sends its requests with this transport.
	transport := &http.Transport{Proxy: http.ProxyURL(leased.Proxy.RevealURL())}
	defer transport.CloseIdleConnections()
	fmt.Println("leased", leased.Proxy.Name)

	if err := fleet.Report(ctx, leased.ID, lease.Report{Outcome: lease.Banned}); err != nil {
		log.Fatal(err)
	}
	if err := fleet.Release(ctx, leased.ID); err != nil {
		log.Fatal(err)
	}
	_, err = fleet.Acquire(ctx, lease.Request{Target: "example.com"})
	if none, ok := errors.AsType[*lease.NoMatch](err); ok {
		fmt.Println("of", none.Considered, "proxies", none.InCooldown, "in cooldown")
	}
	// Output:
	// leased berlin
	// of 1 proxies 1 in cooldown
}

// fleet serves the API of a fleet of one proxy.
func fleet() http.Handler {
	leases, err := lease.NewMemory(lease.Config{})
	if err != nil {
		log.Fatal(err)
	}
	leases.Set(lease.Candidate{
		Key:        "default/berlin",
		Endpoint:   lease.Endpoint{Namespace: "default", Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 3128},
		Attributes: map[string]string{"region": "eu"},
		MaxLeases:  10,
		Healthy:    true,
	})
	handler, err := discovery.New(discovery.Config{Proxies: proxy.NewMemory(proxy.MemoryConfig{}), Leases: leases})
	if err != nil {
		log.Fatal(err)
	}
	return handler
}
