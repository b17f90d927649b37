package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"

	"github.com/proxyfleet/fleet/lease"
)

// A crawler acquires a lease, sends a request through its proxy, reports what came back and releases the lease.
func Example() {
	server := pretendProxy()
	defer server.Close()

	store, err := lease.NewMemory(lease.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	store.Set(lease.Candidate{
		Key:       "default/one",
		Endpoint:  endpointOf(server),
		MaxLeases: 10,
		Healthy:   true,
	})

	crawl := func(url, target string) error {
		ctx := context.Background()
		grant, err := store.Acquire(ctx, lease.Request{Target: target})
		if err != nil {
			return err
		}
		l := grant.Leases[0]
		defer func() { _ = store.Release(ctx, l.ID) }()

		transport := &http.Transport{Proxy: http.ProxyURL(l.Proxy.RevealURL())}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			return errors.Join(err, store.Report(ctx, l.ID, lease.Report{Outcome: lease.Failed}))
		}
		defer func() { _ = response.Body.Close() }()
		outcome := lease.OK
		if response.StatusCode == http.StatusForbidden {
			outcome = lease.Banned
		}
		fmt.Printf("%s through %s: %s\n", target, l.Proxy.Name, outcome)
		return store.Report(ctx, l.ID, lease.Report{Outcome: outcome})
	}

	for _, target := range []string{"news.test", "shop.test", "shop.test", "news.test"} {
		err := crawl("http://"+target+"/", target)
		if refusal, ok := errors.AsType[*lease.NoMatch](err); ok {
			fmt.Printf("%s: %d of %d proxies cool down\n", target, refusal.InCooldown, refusal.Considered)
		} else if err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// news.test through one: ok
	// shop.test through one: banned
	// shop.test: 1 of 1 proxies cool down
	// news.test through one: ok
}

// cheapest offers the proxy that costs least, and among those that cost the same the one with the fewest leases.
type cheapest struct{}

func (cheapest) Rank(s lease.Standing) lease.Rank {
	cents, err := strconv.ParseUint(s.Attributes["cents-per-gb"], 10, 64)
	if err != nil {
		cents = 1 << 32 // whoever does not say comes last
	}
	return lease.Rank{A: cents, B: uint64(s.Active)}
}

// A policy of one's own is an ordinary value: here the cheapest proxy is used up before the next one is touched.
func ExamplePolicy() {
	store, err := lease.NewMemory(lease.Config{Policy: cheapest{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, cents := range map[string]string{"home": "900", "datacentre": "40", "gift": ""} {
		store.Set(lease.Candidate{
			Key:        "default/" + name,
			Endpoint:   lease.Endpoint{Namespace: "default", Name: name, Scheme: "http", Host: name + ".test", Port: 3128},
			Attributes: map[string]string{"cents-per-gb": cents},
			MaxLeases:  2,
			Healthy:    true,
		})
	}
	for range 5 {
		grant, err := store.Acquire(context.Background(), lease.Request{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(grant.Leases[0].Proxy.Name)
	}

	// Output:
	// datacentre
	// datacentre
	// home
	// home
	// gift
}

// pretendProxy answers for every site itself, and has been banned by the shop.
func pretendProxy() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "shop.test" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
}

func endpointOf(server *httptest.Server) lease.Endpoint {
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return lease.Endpoint{Namespace: "default", Name: "one", Scheme: "http", Host: at.Addr().String(), Port: int(at.Port())}
}
