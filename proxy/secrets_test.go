package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/proxy/storetest"
	"github.com/proxyfleet/fleet/secret"
)

const planted = "hunter2"

func initRef(name, key string) proxy.Spec {
	return proxy.Spec{CloudInit: &proxy.CloudInit{SecretRef: &proxy.SecretKeyRef{Name: name, Key: key}}}
}

func loginRef(name, user, password string) proxy.Spec {
	return proxy.Spec{Credentials: &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: name, UsernameKey: user, PasswordKey: password}}}
}

// vault holds Secrets that bear both labels, one, or none.
func vault() *storetest.Secrets {
	s := storetest.NewSecrets()
	data := map[string]secret.Text{
		"username": secret.New("me"), "password": secret.New(planted), "user-data": secret.New("#cloud-config " + planted),
		"u": secret.New("other"), "p": secret.New("p:a@ss"), "empty": secret.New(""),
	}
	label := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = "true"
		}
		return m
	}
	s.Set("crawl", "both", proxy.Secret{Labels: label(proxy.CloudInitLabel, proxy.CredentialsLabel), Data: data})
	s.Set("crawl", "init", proxy.Secret{Labels: label(proxy.CloudInitLabel), Data: data})
	s.Set("crawl", "login", proxy.Secret{Labels: label(proxy.CredentialsLabel), Data: data})
	s.Set("crawl", "bare", proxy.Secret{Data: data})
	s.Set("crawl", "wrong", proxy.Secret{Labels: map[string]string{proxy.CloudInitLabel: "yes", proxy.CredentialsLabel: ""}, Data: data})
	s.Set("other", "elsewhere", proxy.Secret{Labels: label(proxy.CloudInitLabel, proxy.CredentialsLabel), Data: data})
	return s
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		name                          string
		spec                          proxy.Spec
		cloudInit, username, password string
	}{
		{"nothing", proxy.Spec{}, "", "", ""},
		{"inline", proxy.Spec{CloudInit: &proxy.CloudInit{Inline: "#!"}}, "#!", "", ""},
		{"cloud-init", initRef("init", "user-data"), "#cloud-config " + planted, "", ""},
		{"credentials", loginRef("login", "", ""), "", "me", planted},
		{"credentials under other keys", loginRef("both", "u", "p"), "", "other", "p:a@ss"},
		{"an empty value is a value", loginRef("login", "u", "empty"), "", "other", ""},
		{"both", proxy.Spec{CloudInit: initRef("both", "u").CloudInit, Credentials: loginRef("both", "", "").Credentials},
			"other", "me", planted},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := proxy.Resolve(t.Context(), vault(), "crawl", c.spec)
			if err != nil {
				t.Fatal(err)
			}
			if got := in.CloudInit.Reveal(); got != c.cloudInit {
				t.Errorf("cloud-init %q, want %q", got, c.cloudInit)
			}
			if got := in.Username.Reveal(); got != c.username {
				t.Errorf("username %q, want %q", got, c.username)
			}
			if got := in.Password.Reveal(); got != c.password {
				t.Errorf("password %q, want %q", got, c.password)
			}
		})
	}
}

func TestResolveFails(t *testing.T) {
	type words []string
	for _, c := range []struct {
		name    string
		secrets proxy.Secrets
		spec    proxy.Spec
		reason  string
		says    words
	}{
		{"no Secrets at all", nil, initRef("init", "user-data"), proxy.CloudInitError, words{"crawl/init", proxy.CloudInitLabel}},
		{"no such Secret", vault(), initRef("nope", "user-data"), proxy.CloudInitError, words{"crawl/nope", proxy.CloudInitLabel}},
		{"one of another namespace", vault(), initRef("elsewhere", "user-data"), proxy.CloudInitError, words{"crawl/elsewhere"}},
		{"no label", vault(), initRef("bare", "user-data"), proxy.CloudInitError, words{"crawl/bare", proxy.CloudInitLabel}},
		{"the label of the other kind", vault(), initRef("login", "user-data"), proxy.CloudInitError, words{proxy.CloudInitLabel}},
		{"a label that is not true", vault(), initRef("wrong", "user-data"), proxy.CloudInitError, words{proxy.CloudInitLabel}},
		{"no such key", vault(), initRef("init", "nope"), proxy.CloudInitError, words{"crawl/init", `"nope"`}},
		{"no such login", vault(), loginRef("nope", "", ""), proxy.CredentialsError, words{"crawl/nope", proxy.CredentialsLabel}},
		{"a login with no label", vault(), loginRef("bare", "", ""), proxy.CredentialsError, words{proxy.CredentialsLabel}},
		{"a login with the label of the other kind", vault(), loginRef("init", "", ""), proxy.CredentialsError, words{proxy.CredentialsLabel}},
		{"no such user", vault(), loginRef("login", "nope", ""), proxy.CredentialsError, words{"crawl/login", `"nope"`}},
		{"no such password", vault(), loginRef("login", "", "nope"), proxy.CredentialsError, words{"crawl/login", `"nope"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := proxy.Resolve(t.Context(), c.secrets, "crawl", c.spec)
			e, ok := errors.AsType[*proxy.InputError](err)
			if !ok || e.Reason != c.reason || !errors.Is(err, proxy.ErrSecretNotFound) {
				t.Fatalf("got %v; want an InputError of reason %s with ErrSecretNotFound in its tree", err, c.reason)
			}
			if in != (proxy.Inputs{}) {
				t.Error("inputs come with the error")
			}
			text := fmt.Sprintf("%v %+v %#v", err, err, err)
			for _, w := range c.says {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not name %s", err, w)
				}
			}
			if strings.Contains(text, planted) || strings.Contains(text, "#cloud-config") {
				t.Errorf("a value shows: %s", text)
			}
		})
	}
}

// failing Secrets cannot be read.
type failing struct{ err error }

func (f failing) Get(context.Context, string, string) (proxy.Secret, error) {
	return proxy.Secret{}, f.err
}
func (f failing) Watch(context.Context, func(string, string)) error { return f.err }

func TestResolveKeepsTheCause(t *testing.T) {
	cause := errors.New("permission denied")
	_, err := proxy.Resolve(t.Context(), failing{cause}, "crawl", initRef("init", "user-data"))
	if _, ok := errors.AsType[*proxy.InputError](err); !ok || !errors.Is(err, cause) || errors.Is(err, proxy.ErrSecretNotFound) {
		t.Errorf("got %v; want an InputError for %v, which does not say that there is no Secret", err, cause)
	}
}
