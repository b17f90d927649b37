package boltlog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/boltlog"
)

// A crawler that crashes finds its lease again.
func Example() {
	folder, err := os.MkdirTemp("", "leases")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "crawler.leases.db")
	ctx := context.Background()

	kept, store := open(path)
	grant, err := store.Acquire(ctx, lease.Request{Target: "example.com"})
	if err != nil {
		log.Fatal(err)
	}
	kept.Close()

	kept, store = open(path) // as the next process does
	defer kept.Close()
	renewed, err := store.Renew(ctx, grant.Leases[0].ID, 0)
	fmt.Println(renewed.Proxy.Name, store.Active("default/berlin"), err)
	// Output: berlin 1 <nil>
}

// open opens a store, and tells it of all proxies before anybody leases.
func open(path string) (*boltlog.Log, *lease.Memory) {
	kept, err := boltlog.Open(boltlog.Config{Path: path})
	if err != nil {
		log.Fatal(err)
	}
	store, err := lease.NewMemory(lease.Config{Log: kept})
	if err != nil {
		log.Fatal(err)
	}
	store.Set(lease.Candidate{Key: "default/berlin", MaxLeases: 10, Healthy: true,
		Endpoint: lease.Endpoint{Namespace: "default", Name: "berlin", Scheme: "http", Host: "192.0.2.7", Port: 3128}})
	return kept, store
}
