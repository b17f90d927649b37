package app

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/smallfile"
	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

// serverVariable says where the fleet is when no flag does.
const serverVariable = "PROXYFLEET_SERVER"

// connection is how a command reaches the fleet that runs.
type connection struct{ server, tokenFile, caFile string }

// addFlags gives a command, and those below it, the flags that say which fleet is meant.
func (c *connection) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.server, "server", cmp.Or(os.Getenv(serverVariable), "http://127.0.0.1:8090"), "`URL` of the fleet (env "+serverVariable+")")
	flags.StringVar(&c.tokenFile, "token-file", "", "`FILE` with the token of the fleet (default: the value of "+tokenVariable+")")
	flags.StringVar(&c.caFile, "ca-file", "", "`FILE` of certificates that are trusted instead of the system's")
}

// call calls the fleet, and explains what went wrong.
func (c *connection) call(do func(*client.Client) error) error {
	fleet, err := c.dial()
	if err != nil {
		return err
	}
	return c.explain(do(fleet))
}

func (c *connection) dial() (*client.Client, error) {
	token, err := readToken(c.tokenFile)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{BaseURL: c.server, Token: token, UserAgent: "proxyfleet"}
	if c.caFile != "" {
		if cfg.HTTPClient, err = trusting(c.caFile); err != nil {
			return nil, err
		}
	}
	fleet, err := client.New(cfg)
	if err != nil {
		return nil, misused("--server: %v", err)
	}
	return fleet, nil
}

// trusting returns an HTTP client that trusts the certificates of a file and no others.
func trusting(path string) (*http.Client, error) {
	pem, err := smallfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s holds no certificate in PEM", path)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
	}}, nil
}

// explain says what to do about an error.
func (c *connection) explain(err error) error {
	if none, ok := errors.AsType[*lease.NoMatch](err); ok {
		return errors.New(refusal(none))
	}
	if said, ok := errors.AsType[*client.APIError](err); ok {
		switch {
		case said.Status == http.StatusUnauthorized:
			return fmt.Errorf("%w: give it by --token-file or %s", err, tokenVariable)
		case said.Code == "unknown_proxy":
			return fmt.Errorf("%w: \"proxyfleet get proxies --all-namespaces\" lists those that there are", err)
		}
	}
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: is \"proxyfleet run\" running there? --server or %s names another place", err, serverVariable)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: --ca-file names the certificates to trust", err)
	}
	return err
}

// refusal says what stands in the way of a lease.
func refusal(none *lease.NoMatch) string {
	if none.Considered == 0 {
		return "no proxy matches the selector; \"proxyfleet get proxies\" shows those that there are"
	}
	said := fmt.Sprintf("no proxy is free: of %d that match, %d are not ready, %d at capacity, %d in cooldown and %d eligible",
		none.Considered, none.Unhealthy, none.AtCapacity, none.InCooldown, none.Eligible)
	if none.RetryAfter > 0 {
		said += "; try again in " + shortDuration(none.RetryAfter)
	}
	return said
}
