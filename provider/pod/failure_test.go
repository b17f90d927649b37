package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/provider"
)

// answering serves the same answer to every request, and counts them.
func answering(t *testing.T, code int, header http.Header, body string) (url string, requests func() int) {
	t.Helper()
	n := make(chan int, 1)
	n <- 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n <- <-n + 1
		w.Header().Set("Content-Type", "application/json")
		maps.Copy(w.Header(), header)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int { v := <-n; n <- v; return v }
}

// says is an answer of the API server that says no.
func says(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) string {
	text, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message, Details: details})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestFailures says what each answer to a create means. The messages are those of Kubernetes 1.37.
func TestFailures(t *testing.T) {
	const name = `pods "proxy-x" is forbidden: `
	tests := map[string]struct {
		code    int
		header  http.Header
		body    string
		want    provider.Error
		message string
	}{
		"RBAC": {code: 403, body: says(403, "Forbidden", `pods is forbidden: User "system:serviceaccount:proxyfleet:proxyfleet" cannot create resource "pods" in API group "" in the namespace "proxies"`, nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "Forbidden"}, message: `cannot create resource "pods"`},
		"a quota without room": {code: 403, body: says(403, "Forbidden", name+"exceeded quota: most, requested: pods=1, used: pods=20, limited: pods=20", nil),
			want: provider.Error{Class: provider.ErrQuotaExceeded, Reason: "QuotaExceeded"}, message: "limited: pods=20"},
		"a quota of what is not said": {code: 403, body: says(403, "Forbidden", name+"failed quota: most: must specify limits.cpu for: squid", nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "QuotaUnmet"}, message: "limits.cpu"},
		"a quota that nobody has counted yet": {code: 403, body: says(403, "Forbidden", name+"status unknown for quota: most, resources: pods", nil),
			want: provider.Error{Class: provider.ErrTransient, Reason: "QuotaUnmet"}},
		"a limit range": {code: 403, body: says(403, "Forbidden", name+"maximum memory usage per Container is 128Mi, but limit is 256Mi", nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "LimitRange"}, message: "128Mi"},
		"pod security": {code: 403, body: says(403, "Forbidden", name+`violates PodSecurity "restricted:latest": runAsNonRoot != true`, nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "PodSecurity"}, message: "runAsNonRoot"},
		"a namespace that is young": {code: 403, body: says(403, "Forbidden", name+`error looking up service account proxies/default: serviceaccount "default" not found`, nil),
			want: provider.Error{Class: provider.ErrTransient, Reason: "ServiceAccountMissing"}},
		"a namespace that is being deleted": {code: 403, body: says(403, "Forbidden", name+"unable to create new content in namespace proxies because it is being terminated", nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "NamespaceTerminating"}},
		"some other admission plugin": {code: 403, body: says(403, "Forbidden", name+"node selectors conflict", nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "AdmissionDenied"}, message: "node selectors conflict"},
		"a webhook that says no": {code: 400, body: says(400, "", `admission webhook "policy.example.com" denied the request: exceeded quota: of my own`, nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "AdmissionDenied"}, message: "of my own"},
		"a policy that says no": {code: 422, body: says(422, "Invalid", `pods "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no squid here`, nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "AdmissionDenied"}, message: "no squid here"},
		"a webhook that is away": {code: 500, body: says(500, "InternalError", `Internal error occurred: failed calling webhook "policy.example.com": connection refused`, nil),
			want: provider.Error{Class: provider.ErrTransient, Reason: "WebhookFailed"}},
		"no such namespace": {code: 404, body: says(404, "NotFound", `namespaces "proxies" not found`, &metav1.StatusDetails{Kind: "namespaces", Name: "proxies"}),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "NamespaceNotFound"}, message: `"proxies"`},
		"no such pod": {code: 422, body: says(422, "Invalid", `Pod "proxy-x" is invalid: spec.tolerations[0].operator: Invalid value: "Maybe"`, nil),
			want: provider.Error{Class: provider.ErrPermanent, Reason: "InvalidRequest"}, message: "Maybe"},
		"who are you": {code: 401, body: says(401, "Unauthorized", "Unauthorized", nil),
			want: provider.Error{Class: provider.ErrTransient, Reason: "CredentialsRejected"}},
		"a quota that others write": {code: 409, body: says(409, "Conflict", `Operation cannot be fulfilled on resourcequotas "most": the object has been modified`, nil),
			want: provider.Error{Class: provider.ErrTransient, Reason: "Conflict"}},
		"too many requests": {code: 429, header: http.Header{"Retry-After": {"7"}}, body: "Too many requests, please try again later.",
			want: provider.Error{Class: provider.ErrTransient, Reason: "RateLimited", RetryAfter: 7 * time.Second}},
		"too many requests, in words": {code: 429, body: says(429, "TooManyRequests", "slow down", &metav1.StatusDetails{RetryAfterSeconds: 9}),
			want: provider.Error{Class: provider.ErrTransient, Reason: "RateLimited", RetryAfter: 9 * time.Second}, message: "slow down"},
		"a server in trouble":          {code: 500, body: says(500, "InternalError", "etcdserver: leader changed", nil), want: provider.Error{Class: provider.ErrTransient, Reason: "ServerError"}, message: "leader changed"},
		"a server that is busy":        {code: 503, header: http.Header{"Retry-After": {"3"}}, body: "apiserver not ready", want: provider.Error{Class: provider.ErrTransient, Reason: "ServerError", RetryAfter: 3 * time.Second}},
		"a server that took too long":  {code: 504, body: says(504, "Timeout", "request did not complete within the allotted timeout", nil), want: provider.Error{Class: provider.ErrTransient, Reason: "ServerError"}},
		"something that stands before": {code: 404, body: "<html>404 not found</html>", want: provider.Error{Class: provider.ErrTransient, Reason: "Unreachable"}},
		"a login page":                 {code: 200, body: "<html>who are you</html>", want: provider.Error{Class: provider.ErrTransient, Reason: "Unreachable"}},
		"another object":               {code: 201, body: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"other","uid":"x"}}`, want: provider.Error{Class: provider.ErrTransient, Reason: "Unreachable"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			url, requests := answering(t, test.code, test.header, test.body)
			p := open(t, "fleet-one", map[string]any{"kubeconfig": kubeconfig(t, url)})
			_, err := p.Create(t.Context(), asked("fleet-one", "uid-1"))
			e, ok := errors.AsType[*provider.Error](err)
			if !ok {
				t.Fatalf("Create returned %v", err)
			}
			if e.Class != test.want.Class || e.Reason != test.want.Reason || e.RetryAfter != test.want.RetryAfter || e.Op != "create" {
				t.Errorf("got %s %s %s after %v, want create %s %s after %v", e.Op, e.Class, e.Reason, e.RetryAfter,
					test.want.Class, test.want.Reason, test.want.RetryAfter)
			}
			if !strings.Contains(e.Error(), test.message) {
				t.Errorf("%q does not say %q", e, test.message)
			}
			if n := requests(); n != 1 {
				t.Errorf("%d requests were sent: to wait and to try again is for the fleet", n)
			}
		})
	}
}

// TestNotFoundIsProven says that only the API server's own word on that pod means that it is not there.
func TestNotFoundIsProven(t *testing.T) {
	gone := says(404, "NotFound", `pods "proxy-x" not found`, &metav1.StatusDetails{Kind: "pods", Name: "proxy-x"})
	tests := map[string]struct {
		code int
		body string
		want provider.Class
	}{
		"the API server":             {404, gone, provider.ErrNotFound},
		"a load balancer":            {404, "<html>default backend - 404</html>", provider.ErrTransient},
		"a load balancer, in JSON":   {404, `{"message": "not found"}`, provider.ErrTransient},
		"an API server without pods": {404, says(404, "NotFound", "the server could not find the requested resource", nil), provider.ErrTransient},
		"no namespace, of an API":    {404, says(404, "NotFound", `namespaces "proxies" not found`, &metav1.StatusDetails{Kind: "namespaces", Name: "proxies"}), provider.ErrPermanent},
		"a pod of another name":      {200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"other","uid":"x"}}`, provider.ErrTransient},
		"an empty object":            {200, `{}`, provider.ErrTransient},
		"a pod that is not managed": {200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"proxy-x","uid":"x","labels":{"crawl.example.com/fleet":"fleet-one","crawl.example.com/uid":"uid-1"}}}`,
			provider.ErrNotFound},
		"a pod without marks, by name": {200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"proxy-x","uid":"x"}}`, provider.ErrNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			url, _ := answering(t, test.code, nil, test.body)
			p := open(t, "fleet-one", map[string]any{"kubeconfig": kubeconfig(t, url)})
			ref := provider.Ref{ID: "namespaces/proxies/pods/proxy-x", UID: "uid-1"}
			if _, err := p.Get(t.Context(), ref); provider.ClassOf(err) != test.want {
				t.Errorf("Get returned %v, want the class %s", err, test.want)
			}
			if err := p.Delete(t.Context(), ref); (err == nil) != (test.want == provider.ErrNotFound) {
				t.Errorf("Delete returned %v", err)
			}
		})
	}
}

// TestListIsCompleteOrAnError says that no part of a list, and nothing that is none, is taken for the list.
func TestListIsCompleteOrAnError(t *testing.T) {
	tests := map[string]struct {
		code int
		body string
		want string
	}{
		"a page that has expired": {410, says(410, "Expired", "The provided continue parameter is too old", nil), "Conflict"},
		"an empty object":         {200, `{}`, "Unreachable"},
		"a page of a website":     {200, "<html></html>", "Unreachable"},
		"no right":                {403, denied, "Forbidden"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			url, _ := answering(t, test.code, nil, test.body)
			p := open(t, "fleet-one", map[string]any{"kubeconfig": kubeconfig(t, url)})
			all, err := p.List(t.Context())
			if e, ok := errors.AsType[*provider.Error](err); !ok || e.Reason != test.want || all != nil {
				t.Errorf("List returned %v and %v, want %s", all, err, test.want)
			}
		})
	}
}

// TestNoCluster says that a fleet opens without one, and is told so by each call until there is.
func TestNoCluster(t *testing.T) {
	file := t.TempDir() + "/kubeconfig"
	p := open(t, "fleet-one", map[string]any{"kubeconfig": file})
	check := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.Create(ctx, asked("fleet-one", "uid-1"))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.ErrTransient || e.Reason != want {
			t.Errorf("Create returned %v, want a transient %s", err, want)
		}
	}
	check("NoKubeconfig")
	url, _ := answering(t, 500, nil, "")
	rename(t, kubeconfig(t, url), file)
	check("ServerError")
}
