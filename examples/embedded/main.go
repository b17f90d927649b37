// Command embedded fetches pages through proxies that it knows itself: the lease store is in the process, and there is no
// fleet and no API.
//
//	embedded -proxies URL,URL,… PAGE…
//
// Nobody probes these proxies. One that fails gets no leases for a minute, which is the least that can take the place of a
// health check.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

func main() {
	proxies := flag.String("proxies", "", "`URLs` of the proxies, with commas between them")
	flag.Parse()
	if err := run(context.Background(), strings.Split(*proxies, ","), flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, proxies, pages []string, out io.Writer) error {
	known := map[string]lease.Candidate{}
	var store *lease.Memory
	store, err := lease.NewMemory(lease.Config{
		Policy: lease.Spread{}, // one page after the other, each through the proxy that has rested longest
		Failed: func(key string) {
			away := known[key]
			away.Healthy = false
			store.Set(away)
			time.AfterFunc(time.Minute, func() { store.Set(known[key]) })
		},
	})
	if err != nil {
		return err
	}
	for i, text := range proxies {
		c, err := candidate(fmt.Sprintf("proxy-%d", i+1), text)
		if err != nil {
			return err
		}
		known[c.Key] = c
	}
	for _, c := range known {
		store.Set(c)
	}
	transport, err := leasehttp.New(leasehttp.Config{Store: store, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	for _, page := range pages {
		if err := fetch(ctx, client, page, out); err != nil {
			fmt.Fprintln(out, err)
		}
	}
	return nil
}

// candidate makes what the store wants to know of a proxy's URL.
func candidate(name, text string) (lease.Candidate, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return lease.Candidate{}, errors.New("a proxy is a URL such as http://user:password@192.0.2.7:3128") // it may hold a password: do not quote it
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return lease.Candidate{}, fmt.Errorf("the URL of the proxy on %s has no port", u.Hostname())
	}
	e := lease.Endpoint{Name: name, Scheme: u.Scheme, Host: u.Hostname(), Port: port}
	if u.User != nil {
		password, _ := u.User.Password()
		e.User, e.Password = secret.New(u.User.Username()), secret.New(password)
	}
	return lease.Candidate{Key: name, Endpoint: e, MaxLeases: 10, Healthy: true}, nil
}

func fetch(ctx context.Context, client *http.Client, page string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Fprintf(out, "%s %s through %s\n", resp.Status, page, leasehttp.Served(resp))
	_, err = io.Copy(out, resp.Body)
	return err
}
