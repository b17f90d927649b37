package health_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/secret"
)

// An engine is fed with targets and tells when there is something new about one. This one probes by a function of its
// own.
func ExampleEngine() {
	engine, err := health.New(health.Config{
		Prober: health.ProberFunc(func(_ context.Context, t health.Target) health.Result {
			if t.Port != 3128 {
				return health.Result{Party: health.PartyDial, Message: "nobody listens there"}
			}
			return health.Result{OK: true, Latency: 30 * time.Millisecond}
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- engine.Run(ctx) }()

	target := health.Target{
		Key: "default/paris", Incarnation: "7c1f",
		Scheme: "http", Host: "192.0.2.7", Port: 3128,
		URL: "https://www.gstatic.com/generate_204", ExpectedStatus: []int{204},
		Interval: 30 * time.Second, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3,
	}
	if err := engine.Set(target); err != nil {
		fmt.Println(err)
	}
	key := <-engine.Events()
	if known, ok := engine.Snapshot(key, "7c1f"); ok {
		fmt.Println(key, "is", known.Verdict, "at", known.Reported.Latency)
	}

	cancel()
	<-done
	// Output: default/paris is healthy at 30ms
}

// The prober tells a wrong password from an expected answer that does not come.
func ExampleHTTPProber() {
	// A proxy that answers itself what it is asked for, if the user is the right one.
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if _, password, _ := user.BasicAuth(); password != "sesame" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer proxy.Close()
	address, _ := url.Parse(proxy.URL)
	port, _ := strconv.Atoi(address.Port())

	target := health.Target{
		Key:    "default/paris",
		Scheme: "http", Host: address.Hostname(), Port: port, User: secret.New("crawler"),
		URL: "http://target.example/", ExpectedStatus: []int{204},
		Interval: 30 * time.Second, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3,
	}
	for _, password := range []string{"sesame", "guess"} {
		target.Password = secret.New(password)
		result := health.HTTPProber{}.Probe(context.Background(), target)
		fmt.Printf("OK: %v, status: %d, party: %q\n", result.OK, result.StatusCode, result.Party)
		if !result.OK {
			fmt.Println(result.Message)
		}
	}
	// Output:
	// OK: true, status: 204, party: ""
	// OK: false, status: 407, party: "proxy_auth"
	// the proxy refused the credentials with 407
}
