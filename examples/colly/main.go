// Command colly crawls a web site through the proxies of a fleet with [gocolly/colly].
//
//	colly [flags] URL
//
// It follows the links of each page that stay on the host, and prints a line for each page: status, URL, and the proxy that
// served it. A page that could not be had gets a line with the party that failed.
//
// [gocolly/colly]: https://github.com/gocolly/colly
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/gocolly/colly/v2"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

func main() {
	fleet := flag.String("fleet", "http://127.0.0.1:8090", "`URL` of the fleet's API; its token is in PROXYFLEET_TOKEN")
	workers := flag.Int("workers", 8, "`number` of pages that are fetched at once")
	flag.Parse()
	if err := run(*fleet, *workers, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "colly:", err)
		os.Exit(1)
	}
}

func run(fleet string, workers int, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("say where to begin: colly [flags] URL")
	}
	start, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	transport, err := newTransport(fleet)
	if err != nil {
		return err
	}
	c := colly.NewCollector(colly.AllowedDomains(start.Hostname()), colly.Async())
	c.WithTransport(served{transport})
	c.SetRequestTimeout(5 * time.Minute) // of all attempts at a page together, and of waiting for proxies
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: workers}); err != nil {
		return err
	}
	var mu sync.Mutex
	print := func(what any, page *url.URL, more string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, what, page, more)
	}
	c.OnHTML("a[href]", func(e *colly.HTMLElement) {
		_ = e.Request.Visit(e.Attr("href")) // an error says that the page was visited, or is elsewhere
	})
	c.OnResponse(func(r *colly.Response) {
		print(r.StatusCode, r.Request.URL, r.Headers.Get(servedBy))
	})
	c.OnError(func(r *colly.Response, err error) {
		if failure, ok := errors.AsType[*leasehttp.Error](err); ok {
			print(failure.By, r.Request.URL, err.Error())
			return
		}
		print(r.StatusCode, r.Request.URL, err.Error())
	})
	if err := c.Visit(start.String()); err != nil {
		return err
	}
	c.Wait()
	return nil
}

// newTransport leases from a fleet, and is all that colly needs of it.
func newTransport(fleet string) (http.RoundTripper, error) {
	leases, err := client.New(client.Config{BaseURL: fleet, Token: secret.New(os.Getenv("PROXYFLEET_TOKEN"))})
	if err != nil {
		return nil, err
	}
	return leasehttp.New(leasehttp.Config{
		Store: leases,
		// What this site shows to those whom it takes for a robot. A crawler looks for the like on each of its sites.
		Classify: leasehttp.Signs{Texts: []string{"Are you human?"}}.Classify,
	})
}

// served puts the name of the proxy where colly's callbacks see it: they get the header of a response and nothing else.
type served struct{ http.RoundTripper }

const servedBy = "X-Served-By-Proxy"

func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Header.Set(servedBy, leasehttp.Served(resp))
	}
	return resp, err
}
