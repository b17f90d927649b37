package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// While an insert goes on and nothing can be seen, nothing is known: not that the machine is missing, and not that it failed.
func TestNothingIsKnownWhileAnInsertGoesOn(t *testing.T) {
	for _, who := range []string{"who sent it", "another process"} {
		t.Run(who, func(t *testing.T) {
			cloud, url := start(t, gcptest.Config{Insert: time.Hour, Boot: time.Hour})
			p := open(t, "f", url, nil)
			r := named("us-central1-a", "u")
			cloud.Inject(gcptest.Fault{Method: "instances.insert", Hidden: time.Hour})
			mustCreate(t, p, r)
			if who == "another process" {
				p = open(t, "f", url, nil)
			}
			_, err := p.Get(t.Context(), ref(r))
			if diff := same(err, provider.Error{Op: "get", Class: provider.ErrTransient, Reason: "InsertRunning"}, "operation-"); diff != "" {
				t.Errorf("Get returned %v: %s", err, diff)
			}
		})
	}
}

// An operation that cannot be asked for says nothing.
func TestALookUpThatFailsMeansUnknown(t *testing.T) {
	r := named("us-central1-a", "u")
	fails := failed("QUOTA_EXCEEDED", "Quota exceeded", "")
	forbidden := body(403, "forbidden", "Required 'compute.zoneOperations.get' permission", "")
	tests := []struct {
		name, method string
		fault        gcptest.Fault
		want         provider.Error
	}{
		{"503", "zoneOperations.get", gcptest.Fault{Status: 503}, provider.Error{Class: provider.ErrTransient, Reason: "BackendError"}},
		{"forbidden", "zoneOperations.get", gcptest.Fault{Status: 403, Body: forbidden},
			provider.Error{Class: provider.ErrPermanent, Reason: "PermissionDenied"}},
		{"no answer", "zoneOperations.get", gcptest.Fault{LoseAnswer: true, Times: 2}, // the transport repeats a GET once
			provider.Error{Class: provider.ErrTransient, Reason: "Unreachable"}},
		{"503 of another process", "zoneOperations.list", gcptest.Fault{Status: 503}, provider.Error{Class: provider.ErrTransient, Reason: "BackendError"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cloud, url := start(t, gcptest.Config{Insert: time.Millisecond, Boot: time.Hour})
			p := open(t, "f", url, nil)
			cloud.Inject(gcptest.Fault{Method: "instances.insert", Fails: fails, FailStatus: 403, Vanishes: true})
			mustCreate(t, p, r)
			if tt.method == "zoneOperations.list" {
				p = open(t, "f", url, nil)
			}
			tt.fault.Method, tt.want.Op = tt.method, "get"
			cloud.Inject(tt.fault)
			_, err := p.Get(t.Context(), ref(r))
			if diff := same(err, tt.want, ""); diff != "" {
				t.Errorf("Get returned %v: %s", err, diff)
			}
			err = awaitCreateFailed(t, p, r)
			if provider.ClassOf(err) != provider.ErrQuotaExceeded {
				t.Errorf("once it can be asked for, Get returned %v, want the quota", err)
			}
		})
	}
}

func awaitCreateFailed(t *testing.T, p provider.Provider, r provider.Request) error {
	t.Helper()
	var err error
	eventually(t, "the failure is told", func() bool {
		_, err = p.Get(t.Context(), ref(r))
		e, ok := errors.AsType[*provider.Error](err)
		return ok && e.CreateFailed
	})
	return err
}

// What cannot be asked for takes nothing from a machine that is there.
func TestAMachineThatBootsIsThereWhateverItsInsertSays(t *testing.T) {
	cloud, url := start(t, gcptest.Config{Insert: 20 * time.Millisecond, Boot: time.Hour})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	mustCreate(t, p, r)
	cloud.Inject(gcptest.Fault{Method: "zoneOperations.get", Status: 503, Times: 1000})
	if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Provisioning {
		t.Errorf("Get returned %+v, %v, want it on its way", in, err)
	}
	if n := cloud.Requests()["zoneOperations.get"]; n != 1 {
		t.Errorf("the operation was asked for %d times in one poll, want once", n)
	}
}

// An insert is asked for until it has ended, and no longer.
func TestAnInsertThatHasEndedIsNotAskedForAgain(t *testing.T) {
	cloud, url := start(t, gcptest.Config{Boot: time.Hour})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	mustCreate(t, p, r)
	for range 3 {
		if _, err := p.Get(t.Context(), ref(r)); err != nil {
			t.Fatal(err)
		}
	}
	if n := cloud.Requests()["zoneOperations.get"]; n > 1 {
		t.Errorf("the operation was asked for %d times, want once at most", n)
	}
}

// After a restart one list of a zone serves all who miss something there, and asks for no field that has no index.
func TestLostOperationsAreFoundByOneList(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, unhurried)
	var all []provider.Request
	for n := range 20 {
		r := named("us-central1-a", fmt.Sprint("u", n))
		cloud.Inject(gcptest.Fault{Method: "instances.insert", Fails: failed("QUOTA_EXCEEDED", "Quota exceeded", ""), FailStatus: 403})
		if _, err := p.Create(t.Context(), r); provider.ClassOf(err) != provider.ErrQuotaExceeded {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	p = open(t, "f", url, unhurried)
	for _, r := range all {
		tellsFailure(t, p, r, provider.Error{Class: provider.ErrQuotaExceeded, Reason: "QuotaExceeded", CreateFailed: true}, "")
	}
	if n := cloud.Requests()["zoneOperations.list"]; n != 1 {
		t.Errorf("the operations were listed %d times, want once", n)
	}
}

// What an earlier insert of the same name came to is past once a later one succeeded.
func TestTheLastInsertCounts(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	cloud.Inject(gcptest.Fault{Method: "instances.insert", Fails: failed("QUOTA_EXCEEDED", "Quota exceeded", ""), FailStatus: 403})
	if _, err := p.Create(t.Context(), r); err == nil {
		t.Fatal("the insert succeeded")
	}
	r.Token = "another"
	mustCreate(t, p, r)
	cloud.Vanish("us-central1-a", r.Name)
	for _, p := range []provider.Provider{p, open(t, "f", url, nil)} {
		if _, err := p.Get(t.Context(), ref(r)); provider.ClassOf(err) != provider.ErrNotFound {
			t.Errorf("Get returned %v, want NotFound", err)
		}
	}
}

// A name that is taken is looked at.
func TestTheNameIsTaken(t *testing.T) {
	r := named("us-central1-a", "u")
	taken := body(409, "alreadyExists", "The resource 'projects/p/zones/z/instances/i' already exists", "")
	op := failed("RESOURCE_ALREADY_EXISTS", "The resource already exists", "")
	tests := []struct {
		name  string
		fault gcptest.Fault
		there func(*gcptest.Server)
		want  provider.Error // its zero value stands for an instance
	}{
		{"by ours", gcptest.Fault{}, func(c *gcptest.Server) { plant(c, r) }, provider.Error{}},
		{"by ours, says the operation", gcptest.Fault{Fails: op, FailStatus: 409, Vanishes: true}, func(c *gcptest.Server) { plant(c, r) }, provider.Error{}},
		{"by somebody", gcptest.Fault{}, func(c *gcptest.Server) {
			other := r
			other.Marks.UID = "v"
			plant(c, other)
		}, provider.Error{Class: provider.ErrPermanent, Reason: provider.NameTaken}},
		{"by what cannot be seen yet", gcptest.Fault{Status: 409, Body: taken}, func(*gcptest.Server) {},
			provider.Error{Class: provider.ErrTransient, Reason: "NotVisible"}},
		{"by what cannot be seen yet, says the operation", gcptest.Fault{Fails: op, FailStatus: 409, Vanishes: true}, func(*gcptest.Server) {},
			provider.Error{Class: provider.ErrTransient, Reason: "NotVisible"}},
		{"and cannot be looked at", gcptest.Fault{Status: 409, Body: taken}, func(c *gcptest.Server) {
			c.Inject(gcptest.Fault{Method: "instances.get", Status: 503})
		}, provider.Error{Class: provider.ErrTransient, Reason: "BackendError"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cloud, url := start(t, gcptest.Config{})
			p := open(t, "f", url, nil)
			tt.there(cloud)
			tt.fault.Method = "instances.insert"
			if tt.fault != (gcptest.Fault{Method: "instances.insert"}) {
				cloud.Inject(tt.fault)
			}
			in, err := p.Create(t.Context(), r)
			tt.want.Op = "create"
			if tt.want.Class == "" {
				if err != nil || in.Marks != r.Marks || in.Incarnation == "" {
					t.Errorf("Create returned %+v, %v, want the instance that is there", in, err)
				}
				return
			}
			if diff := same(err, tt.want, ""); diff != "" {
				t.Errorf("Create returned %v: %s", err, diff)
			}
			if _, err := p.Get(t.Context(), ref(r)); provider.ClassOf(err) == provider.ErrPermanent {
				t.Errorf("Get returned %v: a name that was taken is no failed create", err)
			}
		})
	}
}

// Each intent is another request to the API, and a transport that sends one again does not make two machines.
func TestRequestIDs(t *testing.T) {
	var ids []string
	p := open(t, "f", serving(t, func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.URL.Query().Get("requestId"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}), nil)
	for _, token := range []string{"a", "b", "a"} {
		r := named("us-central1-a", "u")
		r.Token = token
		_, _ = p.Create(t.Context(), r)
	}
	if len(ids) != 3 || ids[0] != ids[2] || ids[0] == ids[1] {
		t.Errorf("the request IDs are %q, want one for each token", ids)
	}
	cloud, url := start(t, gcptest.Config{})
	mustCreate(t, open(t, "f", url, nil), named("us-central1-a", "u")) // the test server takes only UUIDs
	if len(cloud.History()) != 1 {
		t.Error("no machine was made")
	}
}

// A delete that is under way is not sent again: it would count among the operations that a project may have at once.
func TestADeleteIsSentOnce(t *testing.T) {
	cloud, url := start(t, gcptest.Config{Stop: time.Hour})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	in := mustCreate(t, p, r)
	for range 3 {
		if err := p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: "u", Incarnation: in.Incarnation}); err != nil {
			t.Fatal(err)
		}
		if now, err := p.Get(t.Context(), ref(r)); err != nil || now.State != provider.Terminating {
			t.Errorf("Get returned %+v, %v, want it Terminating", now, err)
		}
	}
	if n := cloud.Requests()["instances.delete"]; n != 1 {
		t.Errorf("%d deletes were sent, want 1", n)
	}
}

// A spot machine that was taken away is stopped, and its disk costs money until it is deleted.
func TestATerminatedMachineIsStopped(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	mustCreate(t, p, r)
	cloud.Preempt("us-central1-a", r.Name)
	in, err := p.Get(t.Context(), ref(r))
	if err != nil || in.State != provider.Stopped || in.Reason != "Terminated" {
		t.Fatalf("Get returned %+v, %v, want it Stopped as Terminated", in, err)
	}
	if !cloud.History()[0].Resource.GetDisks()[0].GetAutoDelete() {
		t.Error("its disk stays when it is deleted")
	}
	if err := p.Delete(t.Context(), ref(r)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(t.Context(), ref(r)); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("after the delete, Get returned %v, want NotFound", err)
	}
}

// Between the look and the delete another instance may take the name: the API is told which one is meant.
func TestDeleteIsFenced(t *testing.T) {
	r := named("us-central1-a", "u")
	vm := fmt.Sprintf(`{"id": "17", "name": %q, "status": "RUNNING", "labels": {"proxyfleet_fleet": "f", "proxyfleet_uid": "u"}}`, r.Name)
	for incarnation, want := range map[string]string{"17": "/instances/17", "": "/instances/17", "16": ""} {
		t.Run(incarnation, func(t *testing.T) {
			deleted := ""
			p := open(t, "f", serving(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					_, deleted, _ = strings.Cut(r.URL.Path, "/zones/us-central1-a")
					w.WriteHeader(http.StatusNotFound) // the one that was meant is gone by now
					fmt.Fprint(w, body(404, "notFound", "The resource 'projects/p/zones/z/instances/17' was not found", ""))
					return
				}
				fmt.Fprint(w, vm)
			}), nil)
			where := ref(r)
			where.Incarnation = incarnation
			if err := p.Delete(t.Context(), where); err != nil {
				t.Errorf("Delete returned %v", err)
			}
			if deleted != want {
				t.Errorf("what was deleted is %q, want %q", deleted, want)
			}
		})
	}
}

func TestAnIDOfSomethingElse(t *testing.T) {
	p := open(t, "f", "http://127.0.0.1:1", nil)
	for _, id := range []string{"hosts/a/domains/proxy-x", "zones/a/instances/../b", "zones/us-central1-a", "", "zones/A/instances/x"} {
		_, getErr := p.Get(t.Context(), provider.Ref{ID: id, UID: "u"})
		for _, err := range []error{getErr, p.Delete(t.Context(), provider.Ref{ID: id, UID: "u"})} {
			if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != provider.NotConfigured {
				t.Errorf("the error for the ID %q is %v, want NotConfigured", id, err)
			}
		}
	}
}

// The zone of an instance is that of its ID, whatever the spec says by now; the same name in another zone is another instance.
func TestTheZoneComesFromTheID(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, nil)
	a, b := named("us-central1-a", "u"), named("us-central1-b", "u")
	b.Token = "another"
	mustCreate(t, p, a)
	mustCreate(t, p, b)
	if err := p.Delete(t.Context(), ref(a)); err != nil {
		t.Fatal(err)
	}
	for _, m := range cloud.History() {
		if gone := m.Status(time.Now()) == ""; gone != (m.Zone == "us-central1-a") {
			t.Errorf("the machine in %s is gone: %v", m.Zone, gone)
		}
	}
}

// Whatever a server answers, a call ends with a transient error at most, and never with what is not there.
func TestStrangeAnswers(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id": "1", `)) },
		"another type":   func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id": ["x"]}`)) },
		"an empty one": func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/aggregated/") {
				w.Write([]byte(`{}`))
			}
		},
		"nothing": func(w http.ResponseWriter, _ *http.Request) {},
		"no end": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
					return
				}
			}
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			p := open(t, "f", serving(t, handler), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			where := ref(named("us-central1-a", "u"))
			_, getErr := p.Get(ctx, where)
			_, listErr := p.List(ctx)
			for _, err := range []error{getErr, listErr, p.Delete(ctx, where)} {
				if provider.ClassOf(err) != provider.ErrTransient {
					t.Errorf("the error is %v, want a transient one", err)
				}
			}
		})
	}
}

// That the name was taken may be told only when the operation ends. It is no failure: whoever has the name is met.
func TestATakenNameThatIsToldLater(t *testing.T) {
	cloud, url := start(t, gcptest.Config{Insert: 20 * time.Millisecond})
	p := open(t, "f", url, nil)
	r := named("us-central1-a", "u")
	cloud.Inject(gcptest.Fault{Method: "instances.insert", Vanishes: true, FailStatus: 409,
		Fails: failed("RESOURCE_ALREADY_EXISTS", "The resource already exists", "")})
	mustCreate(t, p, r)
	eventually(t, "the operation has ended", func() bool {
		_, err := p.Get(t.Context(), ref(r))
		if e, ok := errors.AsType[*provider.Error](err); ok && e.CreateFailed {
			t.Fatalf("Get returned %v, and the create met what is there", err)
		}
		return provider.ClassOf(err) == provider.ErrNotFound
	})
	plant(cloud, r)
	if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Running {
		t.Errorf("Get returned %+v, %v, want who has the name", in, err)
	}
}
