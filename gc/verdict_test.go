package gc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
)

// TestVerdicts says what happens to each kind of instance. The one that is judged is that of UID x at the provider here,
// unless a case changes it; a case without a record has none of that UID.
func TestVerdicts(t *testing.T) {
	type change = func(*provider.Instance)
	same := func(*provider.Instance) {}
	mine := gc.Held{Key: "default/x", Provider: "here", ID: "id-x", Incarnation: "inc-x"}
	held := func(f func(*gc.Held)) *gc.Held { h := mine; f(&h); return &h }
	for _, c := range []struct {
		name   string
		in     change
		record *gc.Held
		action gc.Action
		reason gc.Reason
		key    string
	}{
		{"nobody's", same, nil, gc.Delete, gc.Orphan, ""},
		{"nobody's, stopped", func(in *provider.Instance) { in.State = provider.Stopped }, nil, gc.Delete, gc.Orphan, ""},
		{"nobody's, on its way for an hour", func(in *provider.Instance) { in.State = provider.Provisioning }, nil, gc.Delete, gc.Orphan, ""},
		{"nobody's, going already", func(in *provider.Instance) { in.State = provider.Terminating }, nil, gc.Keep, gc.Terminating, ""},
		{"nobody's, of exactly the minimum age", func(in *provider.Instance) { in.Created = time.Now().Add(-10 * time.Minute) }, nil, gc.Delete, gc.Orphan, ""},
		{"nobody's, younger", func(in *provider.Instance) { in.Created = time.Now().Add(-10*time.Minute + 1) }, nil, gc.Keep, gc.TooYoung, ""},
		{"nobody's, from the future", func(in *provider.Instance) { in.Created = time.Now().Add(time.Hour) }, nil, gc.Keep, gc.TooYoung, ""},
		{"nobody's, of unknown age", func(in *provider.Instance) { in.Created = time.Time{} }, nil, gc.Keep, gc.UnknownAge, ""},
		{"nobody's, without an incarnation", func(in *provider.Instance) { in.Incarnation = "" }, nil, gc.Keep, gc.NoIncarnation, ""},
		{"of another fleet", func(in *provider.Instance) { in.Marks.Fleet = "theirs" }, nil, gc.Keep, gc.OtherFleet, ""},
		{"of no fleet", func(in *provider.Instance) { in.Marks = provider.Marks{} }, nil, gc.Keep, gc.OtherFleet, ""},
		{"without a UID", func(in *provider.Instance) { in.Marks.UID = "" }, nil, gc.Keep, gc.NoUID, ""},

		{"its record holds it", same, &mine, gc.Keep, gc.Live, "default/x"},
		{"its record holds it, of unknown age", func(in *provider.Instance) { in.Created = time.Time{} }, &mine, gc.Keep, gc.Live, "default/x"},
		{"its record is about to meet it", same, held(func(h *gc.Held) { h.Incarnation = "" }), gc.Keep, gc.Live, "default/x"},
		{"its record still knows the predecessor under the same ID", same,
			held(func(h *gc.Held) { h.Incarnation = "earlier" }), gc.Keep, gc.Live, "default/x"},
		{"its record holds it by another name for the same backend", same,
			held(func(h *gc.Held) { h.Provider = "alias" }), gc.Keep, gc.Live, "default/x"},
		{"its record is about to meet it by another name", same,
			held(func(h *gc.Held) { h.Provider, h.Incarnation = "alias", "" }), gc.Keep, gc.NoInstanceYet, "default/x"},

		{"its record holds one of another ID", same,
			held(func(h *gc.Held) { h.ID, h.Incarnation = "id-y", "inc-y" }), gc.Delete, gc.Stray, "default/x"},
		{"its record holds one of that ID elsewhere", same,
			held(func(h *gc.Held) { h.Provider, h.Incarnation = "elsewhere", "inc-y" }), gc.Delete, gc.Stray, "default/x"},
		{"stray, too young", func(in *provider.Instance) { in.Created = time.Now() },
			held(func(h *gc.Held) { h.ID, h.Incarnation = "id-y", "inc-y" }), gc.Keep, gc.TooYoung, "default/x"},
		{"stray without an incarnation", func(in *provider.Instance) { in.Incarnation = "" },
			held(func(h *gc.Held) { h.ID, h.Incarnation = "id-y", "inc-y" }), gc.Keep, gc.NoIncarnation, "default/x"},
		{"stray that goes", func(in *provider.Instance) { in.State = provider.Terminating },
			held(func(h *gc.Held) { h.ID, h.Incarnation = "id-y", "inc-y" }), gc.Keep, gc.Terminating, "default/x"},
		{"its record has another ID and no instance seen", same,
			held(func(h *gc.Held) { h.ID, h.Incarnation = "id-y", "" }), gc.Keep, gc.NoInstanceYet, "default/x"},
		{"its record has no instance", same, &gc.Held{Key: "default/x"}, gc.Keep, gc.NoInstanceYet, "default/x"},
		{"its record has no instance but what an endpoint left", same,
			&gc.Held{Key: "default/x", Incarnation: "endpoint"}, gc.Keep, gc.NoInstanceYet, "default/x"},

		{"its record is being deleted", same, held(func(h *gc.Held) { h.Deleting = true }), gc.Keep, gc.BeingDeleted, "default/x"},
		{"its record is being deleted and holds another", same,
			held(func(h *gc.Held) { h.Deleting, h.ID, h.Incarnation = true, "id-y", "inc-y" }), gc.Keep, gc.BeingDeleted, "default/x"},
		{"its record is being deleted and holds none", same, &gc.Held{Key: "default/x", Deleting: true}, gc.Keep, gc.BeingDeleted, "default/x"},
		{"its record is being deleted and External", same,
			&gc.Held{Key: "default/x", Deleting: true, External: true}, gc.Keep, gc.BeingDeleted, "default/x"},

		{"its record wants none", same, &gc.Held{Key: "default/x", External: true, Incarnation: "endpoint"}, gc.Delete, gc.Stray, "default/x"},
		{"its record wants none and retires it", same, held(func(h *gc.Held) { h.External = true }), gc.Keep, gc.Live, "default/x"},
		{"its record wants none and retires another", same,
			held(func(h *gc.Held) { h.External, h.ID, h.Incarnation = true, "id-y", "inc-y" }), gc.Delete, gc.Stray, "default/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := old("x")
				c.in(&in)
				b, r := &backend{}, &records{held: map[string]gc.Held{}}
				b.add(in)
				if c.record != nil {
					r.held["x"] = *c.record
				}
				s := sweeper(t, r, map[string]*backend{"here": b, "elsewhere": {}})
				plan, err := s.Plan(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				want := gc.Verdict{ID: in.ID, Incarnation: in.Incarnation, UID: in.Marks.UID, Key: c.key, Created: in.Created,
					Action: c.action, Reason: c.reason}
				if diff := cmp.Diff([]gc.Verdict{want}, plan.Providers[1].Instances); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
				if len(b.deletes) > 0 {
					t.Errorf("a plan has deleted %v", b.deletes)
				}
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				var deletes []provider.Ref
				if c.action == gc.Delete {
					deletes = []provider.Ref{{ID: "id-x", UID: "x", Incarnation: "inc-x"}}
				}
				if diff := cmp.Diff(deletes, b.deletes); diff != "" {
					t.Errorf("deletes of the sweep (-want +got):\n%s", diff)
				}
			})
		})
	}
}
