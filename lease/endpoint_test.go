package lease_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

func TestRevealURL(t *testing.T) {
	for _, row := range []struct {
		name           string
		host           string
		user, password string
		want           string
	}{
		{"no credentials", "proxy.test", "", "", "http://proxy.test:3128"},
		{"user alone", "proxy.test", "me", "", "http://me@proxy.test:3128"},
		{"password alone", "proxy.test", "", "pw", "http://:pw@proxy.test:3128"},
		{"every kind of character", "proxy.test", "a:b@c/d", "p%:@/?# ü", "http://a%3Ab%40c%2Fd:p%25%3A%40%2F%3F%23%20%C3%BC@proxy.test:3128"},
		{"IPv4", "192.0.2.1", "", "", "http://192.0.2.1:3128"},
		{"IPv6", "2001:db8::1", "", "", "http://[2001:db8::1]:3128"},
		{"IPv6 with a zone", "fe80::1%eth0", "", "", "http://[fe80::1%25eth0]:3128"},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := lease.Endpoint{Scheme: "http", Host: row.host, Port: 3128, User: secret.New(row.user), Password: secret.New(row.password)}
			got := e.RevealURL().String()
			if got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			back, err := url.Parse(got)
			if err != nil {
				t.Fatalf("the URL cannot be read: %v", err)
			}
			if password, _ := back.User.Password(); back.User.Username() != row.user || password != row.password {
				t.Errorf("credentials are read as %q and %q", back.User.Username(), password)
			}
			if back.Hostname() != row.host || back.Port() != "3128" {
				t.Errorf("address is read as %q and %q", back.Hostname(), back.Port())
			}
		})
	}
}

func TestCredentialsDoNotPrint(t *testing.T) {
	c := proxy("a", 1)
	c.Endpoint.User, c.Endpoint.Password = secret.New("planted-user"), secret.New("planted-password")
	g, err := newMemory(t, lease.Config{}, c).Acquire(t.Context(), lease.Request{})
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s", g, g, g, inJSON); strings.Contains(printed, "planted") {
		t.Errorf("a grant prints its credentials: %s", printed)
	}
	if got, want := g.Leases[0].Proxy.RevealURL().String(), "http://planted-user:planted-password@a.test:3128"; got != want {
		t.Errorf("the URL is %s, want %s", got, want)
	}
}
