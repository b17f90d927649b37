// Command crawler crawls a web site through the proxies of a fleet, with nothing but net/http.
//
//	crawler [flags] URL
//
// It follows the links of each page that stay on the host, and prints a line for each page: status, URL, and the proxy that
// served it. A page that could not be had gets a line with the party that failed.
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
	"os/signal"
	"regexp"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease/leasehttp"
	"github.com/proxyfleet/fleet/secret"
)

func main() {
	fleet := flag.String("fleet", "http://127.0.0.1:8090", "`URL` of the fleet's API; its token is in PROXYFLEET_TOKEN")
	workers := flag.Int("workers", 8, "`number` of pages that are fetched at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *fleet, *workers, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fleet string, workers int, args []string, out io.Writer) error {
	if len(args) != 1 || workers < 1 {
		return errors.New("say where to begin: crawler [flags] URL")
	}
	start, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	leases, err := client.New(client.Config{BaseURL: fleet, Token: secret.New(os.Getenv("PROXYFLEET_TOKEN"))})
	if err != nil {
		return err
	}
	transport, err := leasehttp.New(leasehttp.Config{
		Store: leases,
		// What this site shows to those whom it takes for a robot. A crawler looks for the like on each of its sites.
		Classify: leasehttp.Signs{Texts: []string{"Are you human?"}}.Classify,
	})
	if err != nil {
		return err
	}
	c := &crawl{
		client: &http.Client{Transport: transport, Timeout: 5 * time.Minute},
		out:    out, seen: map[string]bool{}, slots: make(chan struct{}, workers),
	}
	c.enqueue(ctx, start)
	c.pages.Wait()
	return ctx.Err()
}

// crawl is what is known of a site so far.
type crawl struct {
	client *http.Client
	slots  chan struct{}
	pages  sync.WaitGroup // that are queued or being fetched

	mu   sync.Mutex
	out  io.Writer
	seen map[string]bool
}

// enqueue has a page fetched, once.
func (c *crawl) enqueue(ctx context.Context, page *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[page.String()] {
		return
	}
	c.seen[page.String()] = true
	c.pages.Go(func() {
		c.slots <- struct{}{}
		links := c.fetch(ctx, page)
		<-c.slots
		for _, link := range links {
			c.enqueue(ctx, link)
		}
	})
}

// fetch gets a page and returns its links.
func (c *crawl) fetch(ctx context.Context, page *url.URL) []*url.URL {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		c.print("invalid", page, err.Error())
		return nil
	}
	resp, err := c.client.Do(req)
	if err != nil {
		by := leasehttp.Client
		if failure, ok := errors.AsType[*leasehttp.Error](err); ok {
			by = failure.By
		}
		c.print(by, page, err.Error())
		return nil
	}
	defer resp.Body.Close()
	const longestPage = 10 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, longestPage))
	if err != nil {
		c.print("broken", page, err.Error())
		return nil
	}
	c.print(resp.StatusCode, page, leasehttp.Served(resp))
	return links(page, text)
}

func (c *crawl) print(what any, page *url.URL, more string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, what, page, more)
}

var href = regexp.MustCompile(`href="([^"#]+)"`)

// links returns the links of a page that stay on its host.
func links(page *url.URL, text []byte) (found []*url.URL) {
	for _, match := range href.FindAllSubmatch(text, -1) {
		if link, err := page.Parse(string(match[1])); err == nil && link.Host == page.Host {
			found = append(found, link)
		}
	}
	return found
}
