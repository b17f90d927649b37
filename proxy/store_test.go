package proxy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// conflicting writes conflict a number of times.
func conflicting(m *proxy.Memory, times int) (write func(context.Context, *proxy.Proxy) (*proxy.Proxy, error), at *[]time.Duration) {
	start := time.Now()
	at = new([]time.Duration)
	return func(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
		*at = append(*at, time.Since(start))
		if len(*at) <= times {
			return nil, proxy.ErrConflict
		}
		return m.UpdateStatus(ctx, p)
	}, at
}

func oneRecord(t *testing.T) (*proxy.Memory, proxy.Key) {
	t.Helper()
	m, k := proxy.NewMemory(proxy.MemoryConfig{}), proxy.Key{Namespace: "crawl", Name: "a"}
	if _, err := m.Put(t.Context(), k, proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "test"); err != nil {
		t.Fatal(err)
	}
	return m, k
}

func TestUpdateRetriesConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := oneRecord(t)
		write, at := conflicting(m, 9)
		p, err := proxy.Update(t.Context(), m, k, write, func(p *proxy.Proxy) error {
			p.Status.LatencyMillis++
			return nil
		})
		if err != nil || p.Status.LatencyMillis != 1 {
			t.Fatalf("Update: %+v, %v", p, err)
		}
		waits := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}
		for i, want := range waits {
			if got := (*at)[i+1] - (*at)[i]; got != want*time.Millisecond {
				t.Errorf("wait %d is %v, want %v", i+1, got, want*time.Millisecond)
			}
		}
		if len(*at) != len(waits)+1 {
			t.Errorf("%d attempts, want %d", len(*at), len(waits)+1)
		}
	})
}

func TestUpdateSeesEachNewState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := oneRecord(t)
		raced := false
		p, err := proxy.Update(t.Context(), m, k, m.UpdateStatus, func(p *proxy.Proxy) error {
			if !raced {
				raced = true
				q := p.Clone()
				q.Status.LatencyMillis = 41
				if _, err := m.UpdateStatus(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			p.Status.LatencyMillis++
			return nil
		})
		if err != nil || p.Status.LatencyMillis != 42 {
			t.Errorf("Update: %+v, %v; want the other writer's 41 and one", p, err)
		}
	})
}

func TestUpdateEnds(t *testing.T) {
	refusal, failure := errors.New("no"), errors.New("disk full")
	fail := func(context.Context, *proxy.Proxy) (*proxy.Proxy, error) { return nil, failure }
	keep := func(*proxy.Proxy) error { return nil }
	for _, c := range []struct {
		name   string
		key    proxy.Key
		write  func(context.Context, *proxy.Proxy) (*proxy.Proxy, error)
		change func(*proxy.Proxy) error
		want   error
	}{
		{"no record", proxy.Key{Namespace: "crawl", Name: "b"}, fail, keep, proxy.ErrNotFound},
		{"change refuses", proxy.Key{Namespace: "crawl", Name: "a"}, fail, func(*proxy.Proxy) error { return refusal }, refusal},
		{"the store fails", proxy.Key{Namespace: "crawl", Name: "a"}, fail, keep, failure},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := oneRecord(t)
			if p, err := proxy.Update(t.Context(), m, c.key, c.write, c.change); !errors.Is(err, c.want) || p != nil {
				t.Errorf("Update: %v, %v; want error %v", p, err, c.want)
			}
		})
	}
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := oneRecord(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		write, _ := conflicting(m, 1000)
		_, err := proxy.Update(ctx, m, k, write, func(*proxy.Proxy) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, proxy.ErrConflict) {
			t.Errorf("got %v; want the end of the context and the last conflict", err)
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("it ended after %v, want 5s", got)
		}
	})
}
