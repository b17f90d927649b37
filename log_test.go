package fleet

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// said returns level and message of each line, but for debugging, that the log has got since it was asked last.
func (p *paper) said() (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		m := regexp.MustCompile(`level=(\w+) msg=("[^"]*"|\S+)`).FindStringSubmatch(line)
		if m[1] != "DEBUG" {
			lines = append(lines, m[1]+" "+strings.Trim(m[2], `"`))
		}
	}
	p.text.Reset()
	return lines
}

// TestLog: what an operator would act on is one line each, and a fleet whose state stays says nothing.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(c *Config) { c.MaxInstances = map[string]int{"memory": 1} }).run()
		then := func(what string, want ...string) {
			t.Helper()
			time.Sleep(10 * time.Minute)
			if diff := cmp.Diff(want, s.log.said(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			time.Sleep(3 * time.Hour)
			if lines := s.log.said(); lines != nil {
				t.Errorf("%s: and then, while nothing happens: %q", what, lines)
			}
		}
		then("no proxies")
		s.declare("one", proxy.Spec{Provider: "memory"})
		then("a proxy", "INFO instance created", "INFO health verdict")
		s.declare("one", proxy.Spec{Provider: "nowhere"})
		then("a typo", "WARN proxy is not as declared")
		s.declare("one", proxy.Spec{Provider: "memory"})
		then("the typo is taken back")
		s.declare("two", proxy.Spec{Provider: "memory"})
		then("one too many", "WARN proxy is not as declared")
		s.declare("two", proxy.Spec{Provider: "nowhere"})
		then("a provider that nobody knows", "WARN proxy is not as declared")
		s.declare("one", proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials})
		then("a Secret that there is not", "WARN reconcile failed")
		s.secrets.put("login", oldLogin)
		then("a replacement", "INFO reconcile works again", "INFO instance deleted", "INFO instance created", "INFO health verdict")
		for _, name := range []string{"one", "two"} {
			if err := s.store.Delete(t.Context(), proxy.Key{Namespace: "default", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		then("deletions", "INFO instance deleted")
	})
}

// TestLogOfCreate: what was made is told from what was met, and what is on its way from both.
func TestLogOfCreate(t *testing.T) {
	made := func(change func(*provider.Instance)) func(context.Context, provider.Request) (provider.Instance, error) {
		return func(_ context.Context, r provider.Request) (provider.Instance, error) {
			in := provider.Instance{Incarnation: "i-1", Marks: r.Marks, State: provider.Provisioning, Created: time.Now()}
			change(&in)
			return in, nil
		}
	}
	tests := []struct {
		name   string
		create func(context.Context, provider.Request) (provider.Instance, error)
		want   []string
	}{
		{"made", made(func(*provider.Instance) {}), []string{"INFO instance created"}},
		{"made by a cloud whose clock is behind", made(func(in *provider.Instance) { in.Created = t0.Add(-3 * time.Second) }), []string{"INFO instance created"}},
		{"made nobody knows when", made(func(in *provider.Instance) { in.Created = time.Time{} }), []string{"INFO instance created"}},
		{"met: it is old", made(func(in *provider.Instance) { in.Created = t0.Add(-time.Minute) }), []string{"INFO instance met"}},
		{"met: it is from other inputs", made(func(in *provider.Instance) { in.Marks.Hash = "v1-00" }), []string{"INFO instance met", "INFO instance deleted"}},
		{"on its way", made(func(in *provider.Instance) { in.Incarnation = "" }), nil},
		{"failed", func(context.Context, provider.Request) (provider.Instance, error) {
			return provider.Instance{}, &provider.Error{Op: "create", Class: provider.ErrPermanent, Err: errors.New("no such image")}
		}, []string{"WARN create failed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, log := newWorld(t, declared()), &paper{}
				w.reconciler.Logger = slog.New(slog.NewTextHandler(log, nil))
				w.cloud.create = test.create
				if _, err := w.reconcile(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, log.said()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
