// Package client speaks to the HTTP API of a fleet.
//
// A [Client] is a [lease.Store]: a crawler that leases from a store in its own process leases from a server just as well.
// It also shows what an operator asks of a running fleet.
package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

// Config is what a [Client] is made of.
type Config struct {
	// BaseURL is where the API is, such as http://127.0.0.1:8090. It may have a path, below which the API then is.
	// Required.
	BaseURL string
	// Token is what the server wants to be told. Defaults to none.
	Token secret.Text
	// HTTPClient sends the requests. Defaults to one of its own. Redirects are not followed, for the API has none, unless its
	// CheckRedirect says otherwise. A Timeout that it has applies beside those of the client.
	HTTPClient *http.Client
	// UserAgent tells the server who calls. Defaults to proxyfleet-client.
	UserAgent string
}

func (c Config) withDefaults() Config {
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.UserAgent = cmp.Or(c.UserAgent, "proxyfleet-client")
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{}
	}
	if c.HTTPClient.CheckRedirect == nil {
		own := *c.HTTPClient
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.HTTPClient = &own
	}
	return c
}

// validate returns what is wrong.
func (c Config) validate() error {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		// The text is not quoted: it may hold a password.
		return errors.New("client: BaseURL must be an http or https URL, such as http://127.0.0.1:8090")
	case u.User != nil:
		return errors.New("client: BaseURL must not hold a user or password: use Token")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("client: BaseURL must have no query and no fragment: %s", c.BaseURL)
	}
	return nil
}

// Client is the API of a fleet. Its methods may be called by many goroutines at once.
//
// Each call has a deadline of its own beside that of its context: 30 seconds, plus what a request for a lease may wait or a
// sweep may take. A call whose answer was lost with the connection is made again, at most twice; not so a backup, a sweep and
// what allows one. One that a server was not ready for is made again after the time that it named, within the deadline; a
// request for a lease only within its Wait. An error is an [*APIError] if the server answered with one, and has the error of
// package lease in its tree that it stands for.
type Client struct{ cfg Config }

var _ lease.Store = (*Client)(nil)

// New makes a client. It does not connect.
func New(c Config) (*Client, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Client{c.withDefaults()}, nil
}
