package controller

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
)

// Two fleets that see the same proxies, by mistake: each proxy is kept by one of them, and the other one makes nothing for it,
// leases it to nobody and takes nothing of it for an orphan.
func TestTwoFleets(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	way, d := newLink(t, cfg), people(t, cfg)
	d.declare(t, key("a"), external())
	log := &lines{}
	ours, _ := runStore(t, Config{REST: cfg, Fleet: "ours"})
	theirs, _ := runStore(t, Config{REST: way.rest, Fleet: "theirs", Logger: slog.New(slog.NewTextHandler(log, nil))})
	way.freeze()
	p, _ := must(t)(ours.Get(t.Context(), key("a")))
	late, _ := must(t)(theirs.Get(t.Context(), key("a")))
	p.Finalizer = true
	p, _ = must(t)(ours.UpdateMeta(t.Context(), p))
	shows(t, ours, p)

	late.Finalizer = true
	if _, err := theirs.UpdateMeta(t.Context(), late); !errors.Is(err, proxy.ErrConflict) {
		t.Errorf("both fleets keep it: %v", err)
	}
	gone(t, theirs, key("a"))
	if live, err := theirs.Live(t.Context()); err != nil || live[p.UID].Key != key("a") {
		t.Errorf("Live: %v, %v", live, err)
	}
	way.thaw()
	until(t, "it is said who keeps it", func() bool { return strings.Contains(log.String(), "keeper=ours") })
	p.Status.LatencyMillis = 1
	p, _ = must(t)(ours.UpdateStatus(t.Context(), p))
	until(t, "the other one has heard of that", func() bool {
		o := theirs.recent.get(key("a"))
		return o != nil && o.ResourceVersion == p.Version
	})
	if n := strings.Count(log.String(), "another fleet"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log)
	}

	// Somebody gives it away.
	delete(p.Annotations, FleetAnnotation)
	must(t)(ours.UpdateMeta(t.Context(), p))
	until(t, "the other one sees it", func() bool {
		_, err := theirs.Get(t.Context(), key("a"))
		return err == nil
	})
}
