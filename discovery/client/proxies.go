package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// pageSize is how many proxies are asked for at once.
const pageSize = 200

// backupTimeout bounds a backup as a whole. The server gives up a reader that stalls much earlier.
const backupTimeout = time.Hour

// Proxy is a proxy as the API shows it: state and attributes, and no credentials.
type Proxy = wire.Proxy

// Condition is one aspect of a [Proxy].
type Condition = wire.Condition

// Filter says which proxies to list. The zero value is all of them.
type Filter struct {
	// Namespace is where they are. Defaults to all namespaces.
	Namespace string
	// Attributes are those that a proxy must have, each with that very value.
	Attributes map[string]string
	// Healthy is true for those that can be leased and false for the others. Defaults to both.
	Healthy *bool
}

func (f Filter) query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if f.Namespace != "" {
		q.Set("namespace", f.Namespace)
	}
	for k, v := range f.Attributes {
		q.Set("attr."+k, v)
	}
	if f.Healthy != nil {
		q.Set("healthy", strconv.FormatBool(*f.Healthy))
	}
	return q
}

// ListProxies returns the proxies that match, ordered by namespace and name, asking for as many pages as there are.
func (c *Client) ListProxies(ctx context.Context, f Filter) ([]Proxy, error) {
	var all []Proxy
	for query := f.query(); ; {
		var page wire.ProxyList
		if err := c.do(ctx, call{method: http.MethodGet, path: "/v1/proxies", query: query, into: &page}); err != nil {
			return nil, err
		}
		all = append(all, page.Proxies...)
		switch {
		case page.Continue == "":
			return all, nil
		case page.Continue == query.Get("continue") || len(page.Proxies) == 0:
			return nil, errors.New("the list of proxies does not come to an end")
		}
		query.Set("continue", page.Continue)
	}
}

// GetProxy returns one proxy. The code of its [APIError] is unknown_proxy if there is none.
func (c *Client) GetProxy(ctx context.Context, namespace, name string) (Proxy, error) {
	return c.proxy(ctx, http.MethodGet, namespace, name, "")
}

// SkipCleanup lets the fleet forget a proxy that is being deleted, or will be, without deleting its instance.
func (c *Client) SkipCleanup(ctx context.Context, namespace, name string) (Proxy, error) {
	return c.proxy(ctx, http.MethodPost, namespace, name, "/skip-cleanup")
}

// Retry asks for an attempt at a proxy at once, whatever failed before.
func (c *Client) Retry(ctx context.Context, namespace, name string) (Proxy, error) {
	return c.proxy(ctx, http.MethodPost, namespace, name, "/retry")
}

func (c *Client) proxy(ctx context.Context, method, namespace, name, action string) (Proxy, error) {
	path, err := proxyPath(namespace, name)
	if err != nil {
		return Proxy{}, err
	}
	var p Proxy
	err = c.do(ctx, call{method: method, path: path + action, into: &p})
	return p, err
}

func proxyPath(namespace, name string) (string, error) {
	if namespace == "" || name == "" {
		return "", errors.New("a proxy has a namespace and a name")
	}
	return "/v1/proxies/" + segment(namespace) + "/" + segment(name), nil
}

// Backup writes a consistent copy of the fleet's state to w. It is asked for once, and takes at most an hour. After an
// error, what was written is of no use.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	resp, err := c.send(ctx, call{method: http.MethodGet, path: "/v1/backup"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return apiError(resp, body)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("the backup broke off: %w", err)
	}
	return nil
}
