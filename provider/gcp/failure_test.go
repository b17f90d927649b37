package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// answering serves an API that knows one machine and lists none.
func answering(t *testing.T, vm *computepb.Instance) string {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/aggregated/") {
			fmt.Fprint(w, `{}`)
			return
		}
		body, err := protojson.Marshal(vm)
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	})
}

func serving(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// body is an answer that says no, in the shape of the API: one error with a message and a reason, and details where there are.
func body(code int, reason, message, details string) string {
	if details != "" {
		details = `,"details":` + details
	}
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"errors":[{"message":%q,"domain":"global","reason":%q}]%s}}`,
		code, message, message, reason, details)
}

// failed is the error of an operation, in the shape of the API.
func failed(code, message, details string) string {
	if details != "" {
		details = `,"errorDetails":` + details
	}
	return fmt.Sprintf(`{"errors":[{"code":%q,"message":%q%s}]}`, code, message, details)
}

// same says how an error differs from the one that is wanted, its cause aside; the cause must contain text.
func same(err error, want provider.Error, text string) string {
	got, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return fmt.Sprintf("it is a %T", err)
	}
	if got.Op != want.Op || got.Class != want.Class || got.Reason != want.Reason || got.RetryAfter != want.RetryAfter ||
		got.CreateFailed != want.CreateFailed {
		return fmt.Sprintf("it has %s/%s/%s/%v/%v, want %s/%s/%s/%v/%v", got.Op, got.Class, got.Reason, got.RetryAfter, got.CreateFailed,
			want.Op, want.Class, want.Reason, want.RetryAfter, want.CreateFailed)
	}
	if !strings.Contains(err.Error(), text) {
		return fmt.Sprintf("it does not say %q", text)
	}
	return ""
}

// What Compute Engine answers to an insert, and what the fleet makes of it. Each body has the shape that the API sends; where it
// was seen or is documented is said beside.
func TestInsertRefused(t *testing.T) {
	const (
		apiOff = `[{"@type":"type.googleapis.com/google.rpc.Help"},{"@type":"type.googleapis.com/google.rpc.ErrorInfo",` +
			`"reason":"SERVICE_DISABLED","domain":"googleapis.com","metadata":{"consumer":"projects/1","service":"compute.googleapis.com"}}]`
		crowded = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",` +
			`"domain":"compute.googleapis.com","metadatas":{"containerType":"PROJECT","location":"us-central1"}}]`
		noRoom = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"resource_availability","domain":"compute.googleapis.com",` +
			`"metadatas":{"vmType":"e2-micro","zone":"us-central1-a","zonesAvailable":"us-central1-b,us-central1-f"}}]`
	)
	quota, transient, permanent := provider.ErrQuotaExceeded, provider.ErrTransient, provider.ErrPermanent
	tests := []struct {
		name         string // and the source of the body
		status       int
		body, header string
		want         provider.Error
		text         string
	}{
		{"quota at once (kelseyhightower/kubernetes-the-hard-way#47; troubleshooting-bulk-vm-creation)", 403,
			body(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0 in region us-central1.", ""), "",
			provider.Error{Class: quota, Reason: "QuotaExceeded"}, "Quota 'CPUS' exceeded. Limit: 24.0"},
		{"capacity in the answer itself (karpenter-provider-gcp)", 503,
			body(503, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available.", noRoom), "",
			provider.Error{Class: quota, Reason: "ZoneExhausted"}, "zone us-central1-a has no room now for e2-micro; there is room in us-central1-b, us-central1-f"},
		{"requests a minute (compute/api-quota)", 403, body(403, "rateLimitExceeded", "Rate Limit Exceeded", ""), "",
			provider.Error{Class: transient, Reason: "RateLimited", RetryAfter: time.Minute}, "Rate Limit"},
		{"operations at once (compute/operations-quota)", 403, body(403, "rateLimitExceeded", "Rate Limit Exceeded", crowded), "",
			provider.Error{Class: transient, Reason: "RateLimited", RetryAfter: time.Minute}, ""},
		{"429 (troubleshooting reservations)", 429, body(429, "", "Resource exhausted", ""), "",
			provider.Error{Class: transient, Reason: "RateLimited", RetryAfter: time.Minute}, ""},
		{"the API's own wait, where it is longer", 429, body(429, "rateLimitExceeded", "Rate Limit Exceeded", ""), "120",
			provider.Error{Class: transient, Reason: "RateLimited", RetryAfter: 2 * time.Minute}, ""},
		{"no permission (java-docs-samples#6552)", 403,
			body(403, "forbidden", "Required 'compute.instances.create' permission for 'projects/p/zones/z/instances/i'", ""), "",
			provider.Error{Class: permanent, Reason: "PermissionDenied"}, "compute.instances.create"},
		{"scopes", 403, body(403, "insufficientPermissions", "Request had insufficient authentication scopes.", ""), "",
			provider.Error{Class: permanent, Reason: "PermissionDenied"}, ""},
		{"API disabled (midl-dev/tezos-on-gke#7)", 403,
			body(403, "accessNotConfigured", "Compute Engine API has not been used in project 1 before or it is disabled.", apiOff), "",
			provider.Error{Class: permanent, Reason: "APIDisabled"}, "not been used"},
		{"an image that is none (cloud-foundation-toolkit#95)", 400,
			body(400, "invalid", "Invalid value for field 'resource.disks[0].initializeParams.sourceImage': 'family/debian-9'. The URL is malformed.", ""), "",
			provider.Error{Class: permanent, Reason: "InvalidRequest"}, "sourceImage"},
		{"an image that is not there", 404, body(404, "notFound", "The resource 'projects/p/global/images/i' was not found", ""), "",
			provider.Error{Class: permanent, Reason: "InvalidRequest"}, "images/i"},
		{"no such project", 404, body(404, "notFound", "The resource 'projects/p' was not found", ""), "",
			provider.Error{Class: permanent, Reason: "ProjectNotFound"}, "projects/p"},
		{"an organization's policy (compute/docs: constraints)", 412,
			body(412, "conditionNotMet", "Constraint constraints/compute.vmExternalIpAccess violated for project 1.", ""), "",
			provider.Error{Class: permanent, Reason: "PolicyViolated"}, "vmExternalIpAccess"},
		{"a token that is not accepted", 401, body(401, "authError", "Invalid Credentials", ""), "",
			provider.Error{Class: permanent, Reason: "CredentialsRejected"}, ""},
		{"something that is not ready", 400, body(400, "resourceNotReady", "The resource 'projects/p/regions/r/subnetworks/s' is not ready", ""), "",
			provider.Error{Class: transient, Reason: "NotReady"}, ""},
		{"in trouble (ansible/ansible#61515)", 503,
			body(503, "backendError", "Internal error. Please try again or contact Google Support. (Code: '5913B')", ""), "",
			provider.Error{Class: transient, Reason: "BackendError"}, "5913B"},
		{"500 (the error catalogue's SERVICE_UNAVAILABLE_FOR_LOCATION)", 500, body(500, "", "Service unavailable", ""), "",
			provider.Error{Class: transient, Reason: "BackendError"}, ""},
		{"busy", 503, body(503, "backendError", "Internal error.", ""), "7",
			provider.Error{Class: transient, Reason: "BackendError", RetryAfter: 7 * time.Second}, ""},
		{"a page of something else", 404, "<html>", "", provider.Error{Class: transient, Reason: "Unreachable"}, "no answer of the Compute Engine API"},
		{"a redirect", 302, "", "", provider.Error{Class: transient, Reason: "Unreachable"}, ""},
		{"a proxy in between", 502, "<html>", "", provider.Error{Class: transient, Reason: "BackendError"}, ""},
		{"a field that is quoted", 400,
			body(400, "invalid", "Invalid value for field 'resource.metadata.items[0].value': '#cloud-config s3cret-of-the-suite'", ""), "",
			provider.Error{Class: permanent, Reason: "InvalidRequest"}, "withheld"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			p := open(t, "f", serving(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}), nil)
			in, err := p.Create(t.Context(), named("us-central1-a", "u"))
			tt.want.Op = "create"
			if diff := same(err, tt.want, tt.text); diff != "" {
				t.Errorf("the error is %v: %s", err, diff)
			}
			if strings.Contains(fmt.Sprint(err), "s3cret") {
				t.Errorf("the error quotes a secret: %v", err)
			}
			if in != (provider.Instance{}) {
				t.Errorf("there is an instance beside the error: %+v", in)
			}
			if requests != 1 {
				t.Errorf("%d requests were sent, want 1: it is the fleet that tries again", requests)
			}
		})
	}
}

// An insert that is accepted and fails later leaves nothing behind but its operation. Get tells what became of it.
func TestCreateFailed(t *testing.T) {
	const noRoom = `[{"help":{}},{"localizedMessage":{}},{"errorInfo":{"domain":"compute.googleapis.com","reason":"resource_availability",` +
		`"metadatas":{"vmType":"e2-micro","attachment":"","zone":"us-central1-a","zonesAvailable":"us-central1-b,us-central1-f"}}}]`
	quota, transient, permanent := provider.ErrQuotaExceeded, provider.ErrTransient, provider.ErrPermanent
	tests := []struct {
		name, fails string
		status      int
		want        provider.Error
		text        string
	}{
		{"capacity (CCExtractor/sample-platform#901, kubernetes/k8s.io#9834)",
			failed("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request.", noRoom), 503,
			provider.Error{Class: quota, Reason: "ZoneExhausted"}, "zone us-central1-a has no room now for e2-micro; there is room in us-central1-b, us-central1-f"},
		{"capacity without a hint", failed("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "The zone has not enough resources.", ""), 503,
			provider.Error{Class: quota, Reason: "ZoneExhausted"}, "zone us-central1-a has no room now"},
		{"quota (ai-on-gke#849)", failed("QUOTA_EXCEEDED", "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 8.0 in region us-central1.", ""), 403,
			provider.Error{Class: quota, Reason: "QuotaExceeded"}, "IN_USE_ADDRESSES"},
		{"addresses (karpenter-provider-gcp)", failed("IP_SPACE_EXHAUSTED_WITH_DETAILS", "The IP space of the subnetwork is exhausted.", ""), 400,
			provider.Error{Class: quota, Reason: "AddressesExhausted"}, ""},
		{"too many operations", failed("RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded", ""), 403,
			provider.Error{Class: transient, Reason: "RateLimited", RetryAfter: time.Minute}, ""},
		{"in trouble (ubicloud#5495)", failed("INTERNAL_ERROR", "Internal error", ""), 503, provider.Error{Class: transient, Reason: "BackendError"}, ""},
		{"no permission", failed("PERMISSIONS_ERROR", "Required 'iam.serviceAccounts.actAs' permission", ""), 403,
			provider.Error{Class: permanent, Reason: "PermissionDenied"}, "actAs"},
		{"invalid", failed("INVALID_USAGE", "Subnetwork is IPv4 only", ""), 400, provider.Error{Class: permanent, Reason: "InvalidRequest"}, ""},
		{"deleted while it was made (cloud-gpu-reliability#5)", failed("CONFLICTING_OPERATION", "deleted", ""), 409,
			provider.Error{Class: transient, Reason: "CreateFailed"}, ""},
		{"a word that nobody knows", failed("SOLAR_FLARE", "Ions", ""), 503, provider.Error{Class: transient, Reason: "CreateFailed"}, "SOLAR_FLARE: Ions"},
		{"metadata that is quoted", failed("INVALID_FIELD_VALUE", "Invalid value for field 'resource.metadata': 's3cret-of-the-suite'", ""), 400,
			provider.Error{Class: permanent, Reason: "InvalidRequest"}, "withheld"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.CreateFailed = true
			fault := gcptest.Fault{Method: "instances.insert", Fails: tt.fails, FailStatus: tt.status}
			r := named("us-central1-a", "u")

			t.Run("already in the answer", func(t *testing.T) {
				cloud, url := start(t, gcptest.Config{})
				p := open(t, "f", url, nil)
				cloud.Inject(fault)
				_, err := p.Create(t.Context(), r)
				now := tt.want
				now.Op, now.CreateFailed = "create", false
				if diff := same(err, now, tt.text); diff != "" {
					t.Errorf("Create returned %v: %s", err, diff)
				}
				tellsFailure(t, p, r, tt.want, tt.text)
				if n := cloud.Requests()["zoneOperations.get"]; n != 0 {
					t.Errorf("the operation was asked for %d times though it had told everything", n)
				}
			})
			t.Run("later", func(t *testing.T) {
				cloud, url := start(t, gcptest.Config{Insert: 50 * time.Millisecond, Boot: time.Hour})
				p := open(t, "f", url, nil)
				cloud.Inject(fault)
				if in := mustCreate(t, p, r); in.State != provider.Provisioning || in.Incarnation == "" {
					t.Errorf("Create returned %+v, want it accepted", in)
				}
				err := awaitError(t, p, r)
				tt.want.Op = "get"
				if diff := same(err, tt.want, tt.text); diff != "" {
					t.Errorf("Get returned %v: %s", err, diff)
				}
				tellsFailure(t, p, r, tt.want, tt.text)
				tellsFailure(t, open(t, "f", url, nil), r, tt.want, tt.text) // by another process, which does not know the operation
				// Another create makes another operation: what an earlier one came to is past.
				r.Token = "another"
				mustCreate(t, p, r)
				if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Provisioning {
					t.Errorf("after another create, Get returned %+v, %v, want it on its way", in, err)
				}
			})
		})
	}
}

// tellsFailure says that Get tells of the failure, twice.
func tellsFailure(t *testing.T, p provider.Provider, r provider.Request, want provider.Error, text string) {
	t.Helper()
	for range 2 {
		_, err := p.Get(t.Context(), ref(r))
		want.Op = "get"
		if diff := same(err, want, text); diff != "" {
			t.Errorf("Get returned %v: %s", err, diff)
		}
		if strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("the error quotes a secret: %v", err)
		}
	}
	stranger := ref(r)
	stranger.UID = "another"
	if _, err := p.Get(t.Context(), stranger); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get for another proxy returned %v, want NotFound", err)
	}
}

// awaitError polls until Get fails, and returns that error.
func awaitError(t *testing.T, p provider.Provider, r provider.Request) error {
	t.Helper()
	var err error
	eventually(t, "Get fails", func() bool {
		_, err = p.Get(t.Context(), ref(r))
		return err != nil
	})
	return err
}

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !true() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Get goes by who answers 404, for NotFound is proof: what a wrong endpoint or a missing project says is none.
func TestNotFoundIsProof(t *testing.T) {
	transient, permanent, notFound := provider.ErrTransient, provider.ErrPermanent, provider.ErrNotFound
	tests := map[string]struct {
		body string
		want provider.Class
	}{
		"the machine":              {body(404, "notFound", "The resource 'projects/p/zones/z/instances/i' was not found", ""), notFound},
		"in other words":           {body(404, "notFound", "No such machine", ""), notFound},
		"the project":              {body(404, "notFound", "The resource 'projects/p' was not found", ""), permanent},
		"the zone":                 {body(404, "notFound", "The resource 'projects/p/zones/z' was not found", ""), permanent},
		"a server of other things": {"<html>", transient},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := open(t, "f", serving(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/operations") || strings.Contains(r.URL.Path, "/aggregated/") {
					fmt.Fprint(w, `{}`)
					return
				}
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, tt.body)
			}), nil)
			if _, err := p.Get(t.Context(), ref(named("us-central1-a", "u"))); provider.ClassOf(err) != tt.want {
				t.Errorf("Get returned %v, want the class %s", err, tt.want)
			}
		})
	}
}

// The library would repeat a read for ten minutes, and lose its cause.
func TestNothingIsRepeated(t *testing.T) {
	cloud, url := start(t, gcptest.Config{})
	p := open(t, "f", url, nil)
	in := mustCreate(t, p, named("us-central1-a", "u"))
	calls := map[string]func() error{
		"instances.get":            func() error { return p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: "u"}) },
		"instances.aggregatedList": func() error { _, err := p.List(t.Context()); return err },
		"zoneOperations.list": func() error {
			_, err := open(t, "f", url, nil).Get(t.Context(), ref(named("us-central1-b", "u")))
			return err
		},
	}
	for method, call := range calls {
		t.Run(method, func(t *testing.T) {
			for _, status := range []int{503, 504} {
				cloud.Inject(gcptest.Fault{Method: method, Status: status, Times: 1000})
				before := cloud.Requests()[method]
				err := call()
				if provider.ClassOf(err) != provider.ErrTransient || !strings.Contains(fmt.Sprint(err), fmt.Sprint(status)) {
					t.Errorf("the error is %v, want a transient one that says %d", err, status)
				}
				if n := cloud.Requests()[method] - before; n != 1 {
					t.Errorf("there were %d requests, want 1", n)
				}
				cloud.Heal()
			}
		})
	}
}
