package gcp_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// A fleet that is larger than two pages, in several zones, among machines of others.
func TestListOfManyPages(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	const count = 1200
	zones := []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	want := map[string]bool{}
	for n := range count {
		r := named(zones[n%3], fmt.Sprint("u", n))
		plant(cloud, r)
		want[ref(r).ID] = true
	}
	for n := range 50 {
		r := named(zones[n%3], fmt.Sprint("v", n))
		r.Name, r.Marks = provider.Name("another", r.Marks.UID), provider.Marks{Fleet: "another", UID: r.Marks.UID, Hash: "h"}
		plant(cloud, r)
		r.Name, r.Marks = fmt.Sprint("database-", n), provider.Marks{}
		plant(cloud, r)
	}
	p := open(t, "f", url, nil)
	all, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, in := range all {
		got[in.ID] = true
		if in.State != provider.Running || in.Marks.Fleet != "f" || in.Incarnation == "" || in.Created.IsZero() {
			t.Fatalf("the list has %+v", in)
		}
	}
	if len(all) != count || !maps.Equal(got, want) {
		t.Errorf("the list has %d instances, %d of them different, want %d", len(all), len(got), count)
	}
	if n := cloud.Requests()["instances.aggregatedList"]; n != 3 {
		t.Errorf("it took %d pages, want 3", n)
	}
	for skip := range 3 {
		cloud.Inject(gcptest.Fault{Method: "instances.aggregatedList", Skip: skip, Status: 503})
		if all, err := p.List(t.Context()); provider.ClassOf(err) != provider.ErrTransient || all != nil {
			t.Errorf("when page %d fails, List returned %d instances, %v, want nothing but a transient error", skip+1, len(all), err)
		}
	}
}

// A zone that cannot be reached makes a list an error that names it. What is there elsewhere is still seen one by one.
func TestListWithAnUnreachableZone(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, unhurried)
	here, there := named("us-central1-a", "u"), named("europe-west1-b", "v")
	for _, r := range []provider.Request{here, there} {
		plant(cloud, r)
	}
	cloud.Unreachable("europe-west1-b")
	all, err := p.List(t.Context())
	if diff := same(err, provider.Error{Op: "list", Class: provider.ErrTransient, Reason: "ZoneUnreachable"}, "zones/europe-west1-b"); diff != "" || all != nil {
		t.Errorf("List returned %v, %v: %s", all, err, diff)
	}
	for _, r := range []provider.Request{here, there} {
		if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Running {
			t.Errorf("Get returned %+v, %v, want it Running", in, err)
		}
	}
	if n := cloud.Requests()["instances.get"]; n != 1 {
		t.Errorf("%d instances were asked for directly, want only the one that the list lacks", n)
	}
}

// Each way in which the API says that it does not show everything.
func TestListThatLacksSomething(t *testing.T) {
	const vm = `{"zones/a-b-c": {"instances": [{"id": "1", "name": "proxy-x", "status": "RUNNING", "labels": {"proxyfleet_fleet": "f"}}]}`
	tests := map[string]struct {
		pages []string
		whole bool
	}{
		"an empty zone":                          {[]string{`{"items": ` + vm + `, "zones/z": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}}`}, true},
		"a zone":                                 {[]string{`{"items": ` + vm + `, "zones/z": {"warning": {"code": "UNREACHABLE"}}}}`}, false},
		"a zone on the second page":              {[]string{`{"items": ` + vm + `}, "nextPageToken": "1"}`, `{"items": {"zones/z": {"warning": {"code": "UNREACHABLE"}}}}`}, false},
		"only at the top":                        {[]string{`{"items": ` + vm + `}, "unreachables": ["zones/z"]}`}, false},
		"only at the top of a page with nothing": {[]string{`{"items": ` + vm + `}, "nextPageToken": "1"}`, `{"unreachables": ["zones/z"], "nextPageToken": "2"}`, `{}`}, false},
		"for a reason that nobody knows":         {[]string{`{"items": ` + vm + `, "zones/z": {"warning": {"code": "TIRED"}}}}`}, false},
		"a warning at the top":                   {[]string{`{"items": ` + vm + `}, "warning": {"code": "PARTIAL_SUCCESS"}}`}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pages := slices.Clone(tt.pages)
			p := open(t, "f", serving(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("returnPartialSuccess") != "true" {
					t.Error("without partial success, one zone in trouble takes the others with it")
				}
				fmt.Fprint(w, pages[0])
				pages = pages[1:]
			}), nil)
			all, err := p.List(t.Context())
			if (err == nil) != tt.whole || tt.whole && len(all) != 1 {
				t.Errorf("List returned %v, %v, want it to be whole: %v", all, err, tt.whole)
			}
			if len(pages) != 0 {
				t.Errorf("%d pages were not read", len(pages))
			}
		})
	}
}

// A list that lags behind what this process did does not mislead it: it makes nothing twice, and deletes nothing twice.
func TestListThatLags(t *testing.T) {
	cloud, url := start(t, gcptest.Config{Stop: 10 * time.Millisecond})
	p := open(t, "f", url, map[string]any{"settle": "2s"}) // a list is young for 200 ms
	r := named("us-central1-a", "u")
	first := mustCreate(t, p, r)
	if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Running {
		t.Fatalf("Get returned %+v, %v", in, err)
	}
	lagging := slowList(t, cloud, 300*time.Millisecond)
	p = open(t, "f", lagging, map[string]any{"settle": "2s"})
	if err := p.Delete(t.Context(), ref(r)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool {
		in, err := p.Get(t.Context(), ref(r))
		if err == nil && in.State == provider.Running {
			t.Fatalf("after the delete it is %s again", in.State)
		}
		return provider.ClassOf(err) == provider.ErrNotFound
	})
	r.Token = "another"
	second := mustCreate(t, p, r)
	until := time.Now().Add(400 * time.Millisecond)
	for time.Now().Before(until) {
		in, err := p.Get(t.Context(), ref(r))
		if err != nil || in.Incarnation != second.Incarnation || in.Incarnation == first.Incarnation {
			t.Fatalf("Get returned %+v, %v, want the incarnation %s", in, err, second.Incarnation)
		}
		<-time.After(5 * time.Millisecond)
	}
	if len(cloud.History()) != 2 {
		t.Errorf("%d machines were made, want 2", len(cloud.History()))
	}
}

// slowList serves a cloud whose lists answer what was true a while ago, and whose other answers are the truth.
func slowList(t *testing.T, cloud *gcptest.Server, lag time.Duration) string {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/aggregated/") {
			cloud.Lag(lag)
			defer cloud.Lag(0)
		}
		cloud.ServeHTTP(w, r)
	})
}

// One list stands for many requests, and what is gone is always asked for.
func TestManyAreSeenByOneList(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, unhurried)
	var all []provider.Request
	for n := range 100 {
		r := named("us-central1-a", fmt.Sprint("u", n))
		plant(cloud, r)
		all = append(all, r)
	}
	for range 3 {
		for _, r := range all {
			if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Running {
				t.Fatalf("Get returned %+v, %v", in, err)
			}
		}
	}
	if n := cloud.Requests(); n["instances.get"] != 0 || n["instances.aggregatedList"] != 1 {
		t.Errorf("the requests are %v, want one list", n)
	}
	stranger := ref(all[0])
	stranger.UID = "somebody"
	if _, err := p.Get(t.Context(), stranger); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get for another proxy returned %v, want NotFound", err)
	}
	cloud.Plant("us-central1-b", &computepb.Instance{Name: new(all[0].Name)})
	elsewhere := all[0]
	elsewhere.Placement.Zone = "us-central1-b"
	if _, err := p.Get(t.Context(), ref(elsewhere)); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get of an unmarked machine returned %v, want NotFound", err)
	}
}
