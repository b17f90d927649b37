package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// goes is what the first pass over a record that is being deleted makes of its status.
func goes(reason, message string) func(*proxy.Status) {
	return func(s *proxy.Status) { becomes(s, proxy.Deleting, proxy.False, reason, message) }
}

func TestDelete(t *testing.T) {
	denied := failure("get", provider.ErrPermanent)
	busy := failure("get", provider.ErrTransient)
	deniedToo := failure("delete", provider.ErrPermanent)
	busyToo := failure("delete", provider.ErrTransient)
	quota := failure("delete", provider.ErrQuotaExceeded)
	later := failure("delete", provider.ErrTransient)
	later.RetryAfter = 90 * time.Second
	createFailed := failure("create", provider.ErrPermanent)
	createFailed.CreateFailed = true
	unknown := `no provider "cloud" is configured; configure it, or edit spec.provider`
	runRows(t, []row{
		{
			name:   "never attempted: it goes without a call",
			record: declared(deleting),
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "proven gone before: without a call",
			record: failed(10*time.Minute, time.Hour, ReasonPermanentError, proven, deleting),
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "gone, settled",
			record: ready(5*time.Minute, deleting),
			calls:  []string{"get cloud/a", "finalizer false"},
			after:  time.Second,
		},
		{
			name:   "gone, unsettled: a create may be under way",
			record: planned(5*time.Minute-time.Second, deleting),
			calls:  []string{"get cloud/a", "status Deleting Deleting"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "the create is known to have failed, unsettled",
			record: planned(time.Minute, deleting),
			given:  getFails(createFailed),
			calls:  []string{"get cloud/a", "status Deleting Deleting"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "the create is known to have failed, settled",
			record: planned(5*time.Minute, deleting),
			given:  getFails(createFailed),
			calls:  []string{"get cloud/a", "finalizer false"},
			after:  time.Second,
		},
		{
			name:   "there: the incarnation that was seen is deleted, after a write",
			record: ready(time.Hour, deleting),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-1"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "a lease could still be granted: left alone until none can",
			record: ready(time.Hour, deleting),
			given:  all(has(there(provider.Running, "i-1")), func(w *world) { w.reconciler.Leases = offering{} }),
			calls:  []string{"status Deleting Deleting"},
			change: goes(ReasonDeleting, ""),
			after:  time.Second,
		},
		{
			name:   "open leases are not waited for: their crawlers are told that it is gone",
			record: ready(time.Hour, deleting),
			given:  all(has(there(provider.Running, "i-1")), func(w *world) { w.reconciler.Leases = leases(2) }),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-1"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "still there: deleted again, after a write that compares",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1"},
			after:  5 * time.Second,
		},
		{
			name:   "there, from other inputs and never seen: deleted as well",
			record: planned(time.Second, deleting),
			given:  has(there(provider.Provisioning, "i-9", otherPort)),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-9"},
			change: func(s *proxy.Status) {
				s.Instance.Incarnation = "i-9"
				goes(ReasonDeleting, "")(s)
			},
			after: 5 * time.Second,
		},
		{
			name:   "another incarnation than before: what the status said of that one goes",
			record: ready(time.Hour, deleting),
			given:  has(there(provider.Running, "i-2")),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-2"},
			change: func(s *proxy.Status) {
				left(s)
				s.Instance.Incarnation = "i-2"
				goes(ReasonDeleting, "")(s)
			},
			after: 5 * time.Second,
		},
		{
			name:   "terminating: waited for",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  has(there(provider.Terminating, "i-1")),
			calls:  []string{"get cloud/a"},
			after:  5 * time.Second,
		},
		{
			name:   "get fails: the queue's backoff",
			record: made(time.Hour, deleting),
			given:  getFails(busy),
			calls:  []string{"get cloud/a", "status Deleting ProviderError"},
			change: goes(ReasonProviderError, "get: no luck"),
			err:    busy,
		},
		{
			name:   "get is denied: delete is still tried, and proves nothing",
			record: made(time.Hour, deleting),
			given:  getFails(denied),
			calls:  []string{"get cloud/a", "status Deleting PermanentError", "delete cloud/a i-1"},
			change: goes(ReasonPermanentError, "get: no luck"),
			err:    denied,
		},
		{
			name:   "get is denied of what was never seen: whatever has the ID is deleted",
			record: planned(time.Second, deleting),
			given:  getFails(denied),
			calls:  []string{"get cloud/a", "status Deleting PermanentError", "delete cloud/a any"},
			change: goes(ReasonPermanentError, "get: no luck"),
			err:    denied,
		},
		{
			name:   "both are denied: tried again, visibly",
			record: made(time.Hour, deleting),
			given:  all(getFails(denied), deleteFails(deniedToo)),
			calls:  []string{"get cloud/a", "status Deleting PermanentError", "delete cloud/a i-1", "status Deleting PermanentError"},
			change: goes(ReasonPermanentError, "delete: no luck"),
			err:    deniedToo,
		},
		{
			name:   "delete is denied: never latched",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  all(has(there(provider.Running, "i-1")), deleteFails(deniedToo)),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1", "status Deleting PermanentError"},
			change: goes(ReasonPermanentError, "delete: no luck"),
			err:    deniedToo,
		},
		{
			name: "delete was denied: tried again",
			record: made(time.Hour, deleting, func(p *proxy.Proxy) {
				is(&p.Status, t0, proxy.Provisioned, proxy.False, ReasonPermanentError, "delete: no luck")
			}),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-1"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "delete fails: the queue's backoff",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  all(has(there(provider.Running, "i-1")), deleteFails(busyToo)),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1", "status Deleting ProviderError"},
			change: goes(ReasonProviderError, "delete: no luck"),
			err:    busyToo,
		},
		{
			name:   "a quota for deletes",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  all(has(there(provider.Running, "i-1")), deleteFails(quota)),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1", "status Deleting QuotaExceeded"},
			change: goes(ReasonQuotaExceeded, "delete: no luck"),
			err:    quota,
		},
		{
			name:   "a retry-after is honoured",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  all(has(there(provider.Running, "i-1")), deleteFails(later)),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1", "status Deleting ProviderError"},
			change: goes(ReasonProviderError, "delete: no luck"),
			after:  90 * time.Second,
		},
		{
			name:   "asked is the provider that has it, whatever the spec says",
			record: ready(time.Hour, otherProvider, deleting),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "status Deleting Deleting", "delete cloud/a i-1"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "nobody knows the provider: it stays, visibly",
			record: ready(time.Hour, deleting),
			given:  func(w *world) { delete(w.reconciler.Providers, "cloud") },
			calls:  []string{"status Deleting UnknownProvider"},
			change: goes(ReasonUnknownProvider, unknown),
			after:  time.Minute,
		},
		{
			name:   "nobody knows the provider, and the cleanup is skipped",
			record: ready(time.Hour, deleting, annotated(proxy.SkipCleanupAnnotation, "true")),
			given:  func(w *world) { delete(w.reconciler.Providers, "cloud") },
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "the cleanup is skipped: no call",
			record: ready(time.Hour, deleting, annotated(proxy.SkipCleanupAnnotation, "true")),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "the annotation has another value",
			record: made(time.Hour, deleting, onItsWayOut, annotated(proxy.SkipCleanupAnnotation, "yes")),
			given:  has(there(provider.Running, "i-1")),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1"},
			after:  5 * time.Second,
		},
		{
			name:   "references do not matter any more",
			record: made(time.Hour, deleting, onItsWayOut),
			given:  all(unresolved, has(there(provider.Running, "i-1"))),
			calls:  []string{"get cloud/a", "compare", "delete cloud/a i-1"},
			after:  5 * time.Second,
		},
		{
			name:   "a permanent failure does not keep it",
			record: failed(time.Minute, time.Hour, ReasonPermanentError, deleting),
			calls:  []string{"get cloud/a", "status Deleting Deleting"},
			change: goes(ReasonDeleting, ""),
			after:  5 * time.Second,
		},
		{
			name:   "an External one has nothing to clean up",
			record: declared(external, deleting),
			calls:  []string{"finalizer false"},
			after:  time.Second,
		},
		{
			name:   "no finalizer of ours: none of our concern",
			record: declared(unfinalized, deleting),
			calls:  []string{"status Deleting"}, // and with this write, the store lets it go
		},
	})
}

// TestSkipCleanupIsOnlyForDeletions: the annotation alone deletes nothing and lets go of nothing.
func TestSkipCleanupIsOnlyForDeletions(t *testing.T) {
	runRows(t, []row{{
		name:   "not deleted",
		record: ready(time.Minute, annotated(proxy.SkipCleanupAnnotation, "true")),
		given:  has(there(provider.Running, "i-1")),
		calls:  []string{"get cloud/a"},
		after:  time.Minute,
	}})
}

// TestDeletion follows a record from its deletion until it is gone.
func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready(time.Hour))
		if err := w.store.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		states := []provider.Instance{there(provider.Running, "i-1"), there(provider.Terminating, "i-1")}
		for _, state := range states {
			has(state)(w)
			res, err := w.reconcile()
			if err != nil || res.After != 5*time.Second {
				t.Fatalf("%s: %v, %v", state.State, res, err)
			}
			time.Sleep(res.After)
		}
		w.cloud.get = nil // not found
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Get(t.Context(), one); !errors.Is(err, proxy.ErrNotFound) {
			t.Errorf("the record is still there: %v", err)
		}
		if res, err := w.reconcile(); err != nil || res != (Result{Gone: true}) {
			t.Errorf("and then %v, %v", res, err)
		}
	})
}
