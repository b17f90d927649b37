package discovery_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// A program of one's own serves the API over stores in memory. A crawler then leases a proxy with plain HTTP and JSON.
func ExampleNew() {
	leases, err := lease.NewMemory(lease.Config{})
	if err != nil {
		log.Fatal(err)
	}
	leases.Set(lease.Candidate{
		Key: "default/berlin",
		Endpoint: lease.Endpoint{
			Namespace: "default", Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 3128,
			User: secret.New("crawler"), Password: secret.New("s3cr:t"),
		},
		Attributes: map[string]string{"region": "eu"},
		MaxLeases:  10,
		Healthy:    true,
	})
	handler, err := discovery.New(discovery.Config{
		Proxies:      proxy.NewMemory(proxy.MemoryConfig{}),
		Leases:       leases,
		ActiveLeases: leases.Counts,
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	resp, err := http.Post(server.URL+"/v1/leases", "application/json",
		strings.NewReader(`{"selector": {"region": "eu"}, "target": "example.com", "ttlSeconds": 60}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var granted struct {
		Proxy struct {
			URL  string
			Name string
		}
		TTLSeconds int
	}
	if err := json.NewDecoder(resp.Body).Decode(&granted); err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Status)
	fmt.Println(granted.Proxy.Name, granted.Proxy.URL, granted.TTLSeconds)
	// Output:
	// 201 Created
	// berlin http://crawler:s3cr%3At@192.0.2.7:3128 60
}
