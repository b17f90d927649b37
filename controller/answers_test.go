package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// What is no answer of the Kubernetes API proves nothing, though it says 200: neither that there are no proxies, whose instances
// would be orphans, nor that something was written.
func TestAnswersOfStrangers(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	p := d.declare(t, key("a"), external())
	s, _ := runStore(t, Config{REST: way.rest})
	for _, answer := range []string{`{}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`} {
		way.answers(func(w http.ResponseWriter, r *http.Request) bool {
			if watches(r) {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
			return true
		})
		if live, err := s.Live(t.Context()); err == nil {
			t.Errorf("Live after %s: %v, and no error", answer, live)
		}
		if got, err := s.UpdateStatus(t.Context(), p); err == nil {
			t.Errorf("UpdateStatus after %s: %+v, and no error", answer, got)
		}
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 || all[0].UID != p.UID {
			t.Errorf("List after %s: %v, %v", answer, all, err)
		}
	}
}

// What a status of a newer release says of an instance is not known here, so no instance counts as an orphan.
func TestLiveWithStatusOfNewerRelease(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	p := d.declare(t, key("a"), external())
	s, _ := runStore(t, Config{REST: cfg})
	p.Status.Format, p.Status.Instance = proxy.StatusFormat+1, proxy.Instance{Provider: "lab", ID: "another"}
	p, _ = must(t)(s.UpdateStatus(t.Context(), p))
	if live, err := s.Live(t.Context()); err == nil || !strings.Contains(err.Error(), p.Key.String()) {
		t.Errorf("Live: %v, %v; want an error that names it", live, err)
	}
}

// Where the cache hears nothing any more, a write that conflicts once does not do so for ever: the next one is based on what is.
func TestConflictsEndWithoutWatch(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	d.declare(t, key("a"), external())
	s, _ := runStore(t, Config{REST: way.rest})
	way.freeze()
	d.declare(t, key("a"), proxy.Declaration{Spec: external().Spec, Annotations: map[string]string{"somebody": "wrote"}})
	before := way.requests.Load()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conflicts := -1
	p, err := proxy.Update(ctx, s, key("a"), s.UpdateStatus, func(p *proxy.Proxy) error {
		conflicts++
		p.Status.LatencyMillis = 7
		return nil
	})
	if err != nil {
		t.Fatalf("after %d conflicts: %v", conflicts, err)
	}
	if p.Annotations["somebody"] != "wrote" || conflicts != 1 {
		t.Errorf("after %d conflicts: %+v", conflicts, p)
	}
	if n := way.requests.Load() - before; n > 3 {
		t.Errorf("it took %d requests", n)
	}
	if err := d.Delete(t.Context(), key("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateStatus(t.Context(), p); !errors.Is(err, proxy.ErrNotFound) {
		t.Errorf("a write to what is gone: %v, want ErrNotFound", err)
	}
}
