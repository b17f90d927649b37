package leasehttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
)

// A client sends each request through a leased proxy. The shop has banned one of the two, so it gets the other.
func Example() {
	store, err := lease.NewMemory(lease.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"berlin", "paris"} {
		server := pretendProxy(name)
		defer server.Close()
		at, _ := url.Parse(server.URL)
		port, _ := strconv.Atoi(at.Port())
		endpoint := lease.Endpoint{Namespace: "default", Name: name, Scheme: "http", Host: at.Hostname(), Port: port}
		store.Set(lease.Candidate{Key: "default/" + name, Endpoint: endpoint, MaxLeases: 10, Healthy: true})
	}

	transport, err := leasehttp.New(leasehttp.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	for _, page := range []string{"http://www.news.test/", "http://shop.test/", "http://img.shop.test/", "ftp://shop.test/"} {
		resp, err := client.Get(page)
		if failure, ok := errors.AsType[*leasehttp.Error](err); ok {
			fmt.Printf("%s: the %s failed\n", page, failure.By)
			continue
		} else if err != nil {
			fmt.Println(err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%s through %s: %s %s\n", page, leasehttp.Served(resp), resp.Status, text)
	}

	// Output:
	// http://www.news.test/ through default/berlin: 200 OK welcome
	// http://shop.test/ through default/paris: 200 OK welcome
	// http://img.shop.test/ through default/paris: 200 OK welcome
	// ftp://shop.test/: the client failed
}

// pretendProxy answers for every site itself, and has been banned by the shop if it is in Berlin.
func pretendProxy(name string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name == "berlin" && r.Host == "shop.test" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, "welcome")
	}))
}
