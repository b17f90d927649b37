package controller

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

	// Somebody gives it away. The next fleet marks it before it makes anything, and then the earlier one has it no more.
	p = giveAway(t, ours, theirs, p)
	if p.Finalizer {
		t.Error("the other one takes the finalizer for its own, and will not mark the proxy")
	}
	p.Finalizer = true
	p, _ = must(t)(theirs.UpdateMeta(t.Context(), p))
	if o := theirs.recent.get(key("a")); !p.Finalizer || o.keeper() != "theirs" || !cmp.Equal(o.Finalizers, []string{proxy.FinalizerName}) {
		t.Errorf("its keeper is %q, its finalizers are %v", o.keeper(), o.Finalizers)
	}
	until(t, "the earlier one does not see it", func() bool {
		_, err := ours.Get(t.Context(), key("a"))
		return errors.Is(err, proxy.ErrNotFound)
	})

	// It is given back and deleted before it is marked: the finalizer goes all the same.
	giveAway(t, theirs, ours, p)
	if err := d.Delete(t.Context(), key("a")); err != nil {
		t.Fatal(err)
	}
	until(t, "the deletion is seen", func() bool {
		p, _ = must(t)(ours.Get(t.Context(), key("a")))
		return p.Deleting
	})
	if !p.Finalizer {
		t.Error("nobody takes the finalizer away")
	}
	p.Finalizer = false
	must(t)(ours.UpdateMeta(t.Context(), p))
	if live, err := theirs.Live(t.Context()); err != nil || len(live) > 0 {
		t.Errorf("after the deletion there are %v, %v", live, err)
	}
}

// giveAway takes the mark of one fleet off a proxy, and returns it as another one sees it then.
func giveAway(t *testing.T, from, to *Store, p *proxy.Proxy) *proxy.Proxy {
	t.Helper()
	delete(p.Annotations, FleetAnnotation)
	must(t)(from.UpdateMeta(t.Context(), p))
	var seen *proxy.Proxy
	until(t, "the next fleet sees it", func() bool {
		var err error
		seen, err = to.Get(t.Context(), p.Key)
		return err == nil
	})
	return seen
}
