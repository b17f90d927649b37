package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// chatty is a provider that never says the same twice.
type chatty struct {
	provider.Provider
	mu     sync.Mutex
	answer func(n int) (message string, err error) // nil: as the provider; without an error it is provisioning
	gets   int
}

func (c *chatty) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	got, err := c.Provider.Get(ctx, ref)
	if c.answer == nil || err != nil {
		return got, err
	}
	got.State = provider.Provisioning
	got.Message, err = c.answer(c.gets)
	return got, err
}

// says has the provider answer otherwise from now on.
func (c *chatty) says(answer func(int) (string, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// take returns how often the provider was asked since it was last called.
func (c *chatty) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.gets
	c.gets = 0
	return n
}

// newChatty is a site whose provider is chatty.
func newChatty(t *testing.T) (*site, *chatty) {
	c := new(chatty)
	s := newSite(t, func(cfg *Config) {
		c.Provider = cfg.Providers["memory"]
		cfg.Providers["memory"] = c
	})
	return s.run(), c
}

// A text that differs each time, by a port or the ID of a request, is written down and is no reason to ask again at once.
func TestTextThatVariesOverridesNoWait(t *testing.T) {
	failing := func(class provider.Class, after time.Duration) func(int) (string, error) {
		return func(n int) (string, error) {
			return "", &provider.Error{Op: "get", Class: class, RetryAfter: after, Err: fmt.Errorf("read from port %d: reset", n)}
		}
	}
	for _, row := range []struct {
		name   string
		answer func(int) (string, error)
		most   int // calls in ten minutes
	}{
		{"transient", failing(provider.ErrTransient, 0), 12},
		{"transient, to be asked in an hour", failing(provider.ErrTransient, time.Hour), 1},
		{"quota", failing(provider.ErrQuotaExceeded, 0), 3},
		{"permanent", failing(provider.ErrPermanent, 0), 1},
		{"provisioning", func(n int) (string, error) { return fmt.Sprintf("%d %%", n), nil }, 10 * 60 / 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newChatty(t)
				s.declare("one", proxy.Spec{Provider: "memory"})
				s.untilReady("one", 3128)
				time.Sleep(10*time.Minute + time.Second) // the series of attempts is over
				c.says(row.answer)
				time.Sleep(time.Minute) // it has met the answer
				synctest.Wait()
				c.take()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := c.take(); n > row.most {
					t.Errorf("%d calls in ten minutes, want at most %d", n, row.most)
				}
				if n := strings.Count(s.log.String(), "level=WARN"); n > 1 {
					t.Errorf("%d warnings of one cause:\n%s", n, s.log)
				}
				s.ends()
			})
		})
	}
}

// What somebody else changes has a pass at once, whatever the last one is waiting for.
func TestChangesWake(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(s *site)
	}{
		{"an edit", func(s *site) {
			s.declare("one", proxy.Spec{Provider: "memory", Port: 8080, Credentials: withLogin.Credentials})
		}},
		{"a rotated Secret", func(s *site) { s.secrets.put("login", newLogin) }},
		{"an annotation", func(s *site) {
			_, err := proxy.Update(s.t.Context(), s.store, one, s.store.UpdateMeta, func(p *proxy.Proxy) error {
				p.Annotations = map[string]string{proxy.RetryAnnotation: "now"}
				return nil
			})
			if err != nil {
				s.t.Error(err)
			}
		}},
		{"a deletion", func(s *site) {
			if err := s.store.Delete(s.t.Context(), one); err != nil {
				s.t.Error(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newChatty(t)
				s.secrets.put("login", oldLogin)
				s.declare("one", proxy.Spec{Provider: "memory", Credentials: withLogin.Credentials})
				s.untilReady("one", 3128)
				time.Sleep(10*time.Minute + time.Second)
				c.says(func(int) (string, error) {
					return "", &provider.Error{Op: "get", Class: provider.ErrPermanent, Err: errors.New("no right")}
				})
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				before := s.lastPass(one).At
				time.Sleep(time.Minute)
				synctest.Wait()
				if s.lastPass(one).At != before {
					t.Fatal("it is not waiting")
				}
				row.change(s)
				time.Sleep(time.Second)
				synctest.Wait()
				if last := s.lastPass(one); last != nil && last.At == before { // of what is gone there is none
					t.Error("no pass within a second")
				}
				s.ends()
			})
		})
	}
}
