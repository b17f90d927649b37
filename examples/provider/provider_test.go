package examplecloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	examplecloud "github.com/proxyfleet/fleet/examples/provider"
	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// open makes the provider of a fleet over a cloud.
func open(t testing.TB, fleet, url string) provider.Provider {
	t.Helper()
	config, err := json.Marshal(map[string]any{"url": url, "zones": []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := examplecloud.New(provider.Environment{Fleet: fleet}, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		c, url := cloudtest.Start(t, cloud.Config{Boot: 50 * time.Millisecond, Stop: 50 * time.Millisecond, PageSize: 2})
		return providertest.Harness{
			Open:     func(t testing.TB, fleet string) provider.Provider { return open(t, fleet, url) },
			Request:  requests(),
			Outlives: true,
			Settle:   20 * time.Second,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "small" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "debian" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = 10 },
				"cloudInit":             func(r *provider.Request) { r.CloudInit = secret.New("#cloud-config of a stranger") },
				"credentials":           func(r *provider.Request) { r.Credentials.Password = secret.New("correct horse battery") },
			},
			Plant:  func(t testing.TB, r provider.Request) { plant(t, url, r) },
			Inject: func(f providertest.Fault) bool { return inject(t, c, f) },
		}
	})
}

// requests returns requests for one zone after the other.
func requests() func() provider.Request {
	zones := []string{"a", "b"}
	n := 0
	return func() provider.Request {
		n++
		return request(zones[n%len(zones)])
	}
}

func request(zone string) provider.Request {
	return provider.Request{
		Placement:   provider.Placement{Zone: zone},
		Port:        3128,
		Credentials: provider.Credentials{Username: secret.New("crawler-of-the-suite"), Password: secret.New("s3cret-of-the-suite")},
	}
}

// inject says how this cloud does what the suite asks for.
func inject(t testing.TB, c *cloud.Cloud, f providertest.Fault) bool {
	t.Helper()
	faults := map[providertest.Fault]cloud.Fault{
		providertest.CreateFails:      {Op: "create", Status: 500},
		providertest.CreateUnanswered: {Op: "create", LoseAnswer: true},
		providertest.GetFails:         {Op: "get", Status: 503, RetryAfterSeconds: 1},
		providertest.DeleteFails:      {Op: "delete", Status: 500},
		providertest.DeleteUnanswered: {Op: "delete", LoseAnswer: true},
		providertest.ListFails:        {Op: "list", Status: 503, Skip: 1},
		providertest.CheckFails:       {Op: "list", Status: 503, Times: 1000},
		providertest.Hangs:            {Times: 1000, EffectDelayMillis: int(time.Hour.Milliseconds())},
	}
	fault, ok := faults[f]
	err := c.Inject(fault)
	if f == providertest.Lags {
		ok, err = true, c.SetConditions(cloud.Conditions{LagMillis: 1000})
	}
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// plant makes an instance as somebody else would who uses the same cloud.
func plant(t testing.TB, url string, r provider.Request) {
	t.Helper()
	labels := map[string]string{}
	if r.Marks != (provider.Marks{}) {
		labels = map[string]string{"proxyfleet-fleet": r.Marks.Fleet, "proxyfleet-uid": r.Marks.UID, "proxyfleet-hash": r.Marks.Hash}
	}
	body, err := json.Marshal(map[string]any{"name": r.Name, "labels": labels})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(url+"/v1/zones/"+r.Placement.Zone+"/instances", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("planting an instance is answered with %s", answer.Status)
	}
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct{ config, want string }{
		"nothing":                   {``, "url: "},
		"an unknown field":          {`{"url": "http://127.0.0.1:9080", "zones": ["a"], "region": "x"}`, "region"},
		"no zone":                   {`{"url": "http://127.0.0.1:9080"}`, "zones: "},
		"a zone that is a path":     {`{"url": "http://127.0.0.1:9080", "zones": ["a/../b"]}`, "zones: "},
		"a path in the URL":         {`{"url": "http://127.0.0.1:9080/v1", "zones": ["a"]}`, "url: "},
		"a password in the URL":     {`{"url": "http://u:hush@127.0.0.1:9080", "zones": ["a"]}`, "url: "},
		"a URL of something else":   {`{"url": "file://host", "zones": ["a"]}`, "url: "},
		"all that is wrong at once": {`{"url": "here"}`, "\nzones: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := examplecloud.New(provider.Environment{Fleet: "f"}, json.RawMessage(tt.config))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
			if p != nil {
				t.Errorf("there is a provider beside the error: %+v", p)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func TestPlanNeedsNoZoneWhereThereIsOne(t *testing.T) {
	p, err := examplecloud.New(provider.Environment{Fleet: "f"}, json.RawMessage(`{"url": "http://127.0.0.1:1", "zones": ["a"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := p.Plan(provider.Request{Name: "proxy-x"}); err != nil || id != "zones/a/instances/proxy-x" {
		t.Errorf("the ID is %q, %v, want it in the only zone", id, err)
	}
}

// known is what an instance would be called whose proxy has the UID u.
var known = provider.Ref{ID: "zones/a/instances/proxy-x", UID: "u"}

func TestAPlaceThatIsNoLongerConfigured(t *testing.T) {
	p := open(t, "f", "http://127.0.0.1:1")
	for _, id := range []string{"zones/c/instances/proxy-x", "hosts/a/domains/proxy-x", "zones/a/instances/../../c/proxy-x", "zones/a", ""} {
		_, getErr := p.Get(t.Context(), provider.Ref{ID: id, UID: "u"})
		for _, err := range []error{getErr, p.Delete(t.Context(), provider.Ref{ID: id, UID: "u"})} {
			if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrPermanent || e.Reason != provider.NotConfigured {
				t.Errorf("the error for the ID %q is %v, want NotConfigured", id, err)
			}
		}
	}
}

// What a fault of the cloud means to the fleet.
func TestClasses(t *testing.T) {
	c, url := cloudtest.Start(t, cloud.Config{})
	p := open(t, "f", url)
	tests := []struct {
		name  string
		fault cloud.Fault
		want  provider.Error
	}{
		{"forbidden", cloud.Fault{Status: 403}, provider.Error{Class: provider.ErrPermanent}},
		{"quota", cloud.Fault{Status: 429, RetryAfterSeconds: 600}, provider.Error{Class: provider.ErrQuotaExceeded, RetryAfter: 10 * time.Minute}},
		{"in trouble", cloud.Fault{Status: 500}, provider.Error{Class: provider.ErrTransient}},
		{"busy", cloud.Fault{Status: 503, RetryAfterSeconds: 2}, provider.Error{Class: provider.ErrTransient, RetryAfter: 2 * time.Second}},
		{"too slow", cloud.Fault{Status: 408}, provider.Error{Class: provider.ErrTransient}},
		{"404 of something else", cloud.Fault{Status: 404}, provider.Error{Class: provider.ErrPermanent}},
		{"no answer", cloud.Fault{LoseAnswer: true, Times: 2}, provider.Error{Class: provider.ErrTransient}}, // The transport repeats a GET once.
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Cleanup(c.Heal)
			tt.fault.Op = "get"
			if err := c.Inject(tt.fault); err != nil {
				t.Fatal(err)
			}
			_, err := p.Get(t.Context(), known)
			got, ok := errors.AsType[*provider.Error](err)
			if !ok {
				t.Fatalf("the error is %v, want a provider.Error", err)
			}
			tt.want.Op, tt.want.Err = "get", got.Err
			if diff := cmp.Diff(tt.want, *got, cmp.Comparer(errors.Is)); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
		})
	}
}

// A check says which zone cannot be used, and why, in a word that says what kind of trouble it is.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"works":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"instances": [], "nextPageToken": "7"}`) }, ""},
		"forbidden":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "Refused"},
		"too many":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, "RateLimited"},
		"in trouble": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "Unavailable"},
		"no cloud":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) }, "Unavailable"},
		"silent":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, provider.Timeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/zones/a/instances", tt.handler)
			mux.HandleFunc("GET /v1/zones/b/instances", func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.Query().Get("label"); got != "proxyfleet-fleet=f" {
					t.Errorf("the check asks for %q, want the instances of the fleet", got)
				}
				fmt.Fprint(w, `{"instances": []}`)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			p, ok := provider.As[provider.Checker](open(t, "f", server.URL))
			if !ok {
				t.Fatal("the provider has no Check")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			want := []provider.TargetStatus{{Target: "a", Ready: tt.want == "", Reason: tt.want}, {Target: "b", Ready: true}}
			if diff := cmp.Diff(want, p.Check(ctx), cmpopts.IgnoreFields(provider.TargetStatus{}, "Message")); diff != "" {
				t.Errorf("the verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// A create that was accepted and came to nothing is told by Get, until a later one succeeds.
func TestCreateFailed(t *testing.T) {
	for word, class := range map[string]provider.Class{
		"quota_exceeded": provider.ErrQuotaExceeded, "internal": provider.ErrTransient, "image_broken": provider.ErrPermanent,
	} {
		t.Run(word, func(t *testing.T) {
			c, url := cloudtest.Start(t, cloud.Config{Boot: time.Millisecond})
			p := open(t, "f", url)
			if err := c.Inject(cloud.Fault{Op: "create", FailCreate: word}); err != nil {
				t.Fatal(err)
			}
			r := request("a")
			r.Name, r.Token, r.Marks = "proxy-x", "t1", provider.Marks{Fleet: "f", UID: "u", Hash: "h"}
			if in, err := p.Create(t.Context(), r); err != nil || in.State != provider.Provisioning {
				t.Fatalf("Create returned %+v, %v, want it accepted", in, err)
			}
			err := await(t, p, provider.ErrNotFound, class)
			if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != class || !e.CreateFailed {
				t.Errorf("Get returned %v, want a failed create of class %s", err, class)
			}
			stranger := known
			stranger.UID = "another"
			if _, err := p.Get(t.Context(), stranger); provider.ClassOf(err) != provider.ErrNotFound {
				t.Errorf("Get for another proxy returned %v, want NotFound", err)
			}
			r.Token = "t2"
			if _, err := p.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := p.Delete(t.Context(), known); err != nil {
				t.Fatal(err)
			}
			if err := await(t, p, provider.ErrNotFound); provider.ClassOf(err) != provider.ErrNotFound {
				t.Errorf("after a create that succeeded, Get returned %v, want NotFound", err)
			}
		})
	}
}

// await polls until Get of the known instance fails, and returns that error.
func await(t *testing.T, p provider.Provider, classes ...provider.Class) error {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		_, err := p.Get(t.Context(), known)
		for _, class := range classes {
			if errors.Is(err, class) {
				return err
			}
		}
		select {
		case <-deadline:
			t.Fatalf("Get still returns %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Between the look and the delete another instance may take the name: the cloud is told which one is meant.
func TestDeleteIsFenced(t *testing.T) {
	tests := []struct {
		name, state, incarnation string
		status                   int
		want                     []string
	}{
		{"the one that is meant", "RUNNING", "17", http.StatusNoContent, []string{`"17"`}},
		{"whichever there is", "RUNNING", "", http.StatusNoContent, []string{`"17"`}},
		{"another took the name", "RUNNING", "17", http.StatusPreconditionFailed, []string{`"17"`}},
		{"it has gone", "RUNNING", "17", http.StatusNotFound, []string{`"17"`}},
		{"it goes already", "STOPPING", "17", http.StatusNoContent, nil},
		{"another has the name", "RUNNING", "16", http.StatusNoContent, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var deleted []string
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/"+known.ID, func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"id": "17", "state": %q, "labels": {"proxyfleet-fleet": "f", "proxyfleet-uid": "u"}}`, tt.state)
			})
			mux.HandleFunc("DELETE /v1/"+known.ID, func(w http.ResponseWriter, r *http.Request) {
				deleted = append(deleted, r.Header.Get("If-Match"))
				w.WriteHeader(tt.status)
				codes := map[int]string{http.StatusPreconditionFailed: "id_mismatch", http.StatusNotFound: "instance_not_found"}
				if code, ok := codes[tt.status]; ok {
					fmt.Fprintf(w, `{"code": %q}`, code)
				}
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			ref := known
			ref.Incarnation = tt.incarnation
			if err := open(t, "f", server.URL).Delete(t.Context(), ref); err != nil {
				t.Errorf("Delete returned %v", err)
			}
			if diff := cmp.Diff(tt.want, deleted); diff != "" {
				t.Errorf("the ids in the deletes (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a server answers, a call ends with a transient error at most, and never with what is not there.
func TestStrangeAnswers(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"no JSON":         func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"half an answer":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id": "1", `)) },
		"no instance":     func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{}`)) },
		"no end":          func(w http.ResponseWriter, r *http.Request) { endless(w, r) },
		"a page from 502": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			p := open(t, "f", server.URL)
			_, getErr := p.Get(t.Context(), known)
			for _, err := range []error{getErr, p.Delete(t.Context(), known)} {
				if provider.ClassOf(err) != provider.ErrTransient {
					t.Errorf("the error is %v, want a transient one", err)
				}
			}
		})
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	blanks := []byte(strings.Repeat(" ", 1<<16))
	for r.Context().Err() == nil {
		if _, err := w.Write(blanks); err != nil {
			return
		}
	}
}
