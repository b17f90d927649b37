package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

func TestConfig(t *testing.T) {
	_, err := New(Config{Namespace: "Not_A_Name", Timeout: -1})
	for _, want := range []string{"REST is required", "Namespace must", "Timeout must"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

// A store of one namespace shows nothing of the others, says that it is restricted, and does not claim to know more.
func TestOneNamespace(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	refers := external()
	refers.Spec.Credentials = &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "login"}}
	ours := d.declare(t, key("a"), refers)
	theirs := d.declare(t, proxy.Key{Namespace: "other", Name: "a"}, refers)
	login := proxy.Secret{Labels: map[string]string{proxy.CredentialsLabel: "true"},
		Data: map[string]secret.Text{"username": secret.New("u"), "password": secret.New("p")}}
	for _, namespace := range []string{"crawl", "other"} {
		secretWriter{t, d.Store}.Set(namespace, "login", login)
	}
	s, _ := runStore(t, Config{REST: cfg, Namespace: "crawl"})
	if !s.Restricted() || d.Restricted() {
		t.Errorf("restricted: %v, and one of all namespaces: %v", s.Restricted(), d.Restricted())
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Key != ours.Key {
		t.Errorf("List: %v, %v", all, err)
	}
	live, err := s.Live(t.Context())
	if err != nil || len(live) != 1 || live[ours.UID].Key != ours.Key {
		t.Errorf("Live: %v, %v", live, err)
	}
	if _, err := s.Inputs(t.Context(), ours); err != nil {
		t.Errorf("Inputs: %v", err)
	}
	if _, err := s.Inputs(t.Context(), theirs); err == nil {
		t.Error("Inputs shows a Secret of another namespace")
	}
}

// Each request has its deadline, whatever the caller gave.
func TestRequestsHaveDeadlines(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	p := d.declare(t, key("a"), external())
	s := newStore(t, Config{REST: way.rest, Timeout: 100 * time.Millisecond})
	way.hang.Store(true)
	for name, do := range map[string]func(context.Context) error{
		"Live":         func(ctx context.Context) error { _, err := s.Live(ctx); return err },
		"UpdateMeta":   func(ctx context.Context) error { _, err := s.UpdateMeta(ctx, p); return err },
		"UpdateStatus": func(ctx context.Context) error { _, err := s.UpdateStatus(ctx, p); return err },
	} {
		if err := do(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want that its deadline passed", name, err)
		}
	}
}
