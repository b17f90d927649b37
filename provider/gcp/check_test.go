package gcp_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// check returns the one verdict of a provider.
func check(ctx context.Context, t *testing.T, p provider.Provider) provider.TargetStatus {
	t.Helper()
	all := p.(provider.Checker).Check(ctx)
	if len(all) != 1 || all[0].Target != project {
		t.Fatalf("the verdicts are %+v, want one on %s", all, project)
	}
	return all[0]
}

// A check says what it is that does not work.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		fault  gcptest.Fault
		reason string
		text   string
	}{
		"ready": {},
		"API disabled": {gcptest.Fault{Status: 403, Body: body(403, "accessNotConfigured", "Compute Engine API has not been used in project 1", "")},
			"APIDisabled", "has not been used"},
		"no permission": {gcptest.Fault{Status: 403, Body: body(403, "forbidden", "Required 'compute.instances.list' permission", "")},
			"PermissionDenied", "compute.instances.list"},
		"no such project":    {gcptest.Fault{Status: 404, Body: body(404, "notFound", "The resource 'projects/p' was not found", "")}, "ProjectNotFound", "projects/p"},
		"too many requests":  {gcptest.Fault{Status: 403, Body: body(403, "rateLimitExceeded", "Rate Limit Exceeded", "")}, "RateLimited", ""},
		"in trouble":         {gcptest.Fault{Status: 503}, "BackendError", ""},
		"no answer":          {gcptest.Fault{LoseAnswer: true, Times: 2}, "Unreachable", ""},
		"a token is refused": {gcptest.Fault{Status: 401, Body: body(401, "authError", "Invalid Credentials", "")}, "CredentialsRejected", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cloud, url := start(t, gcptest.Config{})
			p := open(t, "f", url, nil)
			if name != "ready" {
				cloud.Inject(tt.fault)
			}
			got := check(t.Context(), t, p)
			if got.Ready != (tt.reason == "") || got.Reason != tt.reason || !strings.Contains(got.Message, tt.text) {
				t.Errorf("the verdict is %+v, want the reason %q with %q", got, tt.reason, tt.text)
			}
			if n := cloud.Requests(); n["instances.aggregatedList"] == 0 || len(n) != 1 {
				t.Errorf("the requests are %v, want a list", n)
			}
		})
	}
}

func TestCheckOfWhatIsNotThere(t *testing.T) {
	if got := check(t.Context(), t, open(t, "f", "http://127.0.0.1:1", nil)); got.Reason != "Unreachable" {
		t.Errorf("the verdict is %+v, want Unreachable", got)
	}
	cloud, url := start(t, gcptest.Config{})
	cloud.Inject(gcptest.Fault{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got := check(ctx, t, open(t, "f", url, nil)); got.Reason != provider.Timeout {
		t.Errorf("the verdict is %+v, want Timeout", got)
	}
	cloud.Heal()
	cloud.Unreachable("us-central1-a")
	got := check(t.Context(), t, open(t, "f", url, nil))
	if !got.Ready || !strings.Contains(got.Details["unreachable"], "us-central1-a") {
		t.Errorf("the verdict is %+v, want it ready, and the zone named", got)
	}
}

// key is the file of a service account's key whose tokens are issued by the test server.
func key(t *testing.T, url string) string {
	t.Helper()
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": project, "private_key_id": "k", "private_key": testKey(t),
		"client_email": "fleet@p.iam.gserviceaccount.com", "client_id": "1", "token_uri": url + "/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// startTLS serves a cloud that wants a token, as only https may carry one, and a transport that trusts it.
func startTLS(t *testing.T, c gcptest.Config) (*gcptest.Server, *httptest.Server) {
	t.Helper()
	cloud := gcptest.New(c)
	server := httptest.NewTLSServer(cloud)
	t.Cleanup(server.Close)
	return cloud, server
}

// testKey is a private key in PEM.
func testKey(t *testing.T) string {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// authenticated opens a provider that authenticates itself.
func authenticated(t *testing.T, server *httptest.Server, file string) provider.Provider {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"project": project, "provisioning": "spot", "address": "ipv4", "endpoint": server.URL, "credentialsFile": file,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := gcp.New(provider.Environment{Fleet: "f"}, config)
	if err != nil {
		t.Fatal(err)
	}
	gcp.Over(p, server.Client().Transport)
	return p
}

// Credentials come from a file, and one that is put there later is found.
func TestCredentialsFile(t *testing.T) {
	cloud, server := startTLS(t, gcptest.Config{Token: "token-of-the-fleet"})
	file := filepath.Join(t.TempDir(), "key.json")
	p := authenticated(t, server, file)
	if got := check(t.Context(), t, p); got.Reason != "NoCredentials" || !strings.Contains(got.Message, file) {
		t.Errorf("without a file the verdict is %+v, want NoCredentials that names it", got)
	}
	if _, err := p.Create(t.Context(), named("us-central1-a", "u")); provider.ClassOf(err) != provider.ErrTransient {
		t.Errorf("without a file Create returned %v, want a transient error", err)
	}
	for name, text := range map[string]string{
		"no JSON": "-----BEGIN PRIVATE KEY-----", "of a person": `{"type": "authorized_user", "refresh_token": "hush"}`, "empty": "",
	} {
		write(t, file, text)
		got := check(t.Context(), t, p)
		if got.Reason != "NoCredentials" || strings.Contains(got.Message, "hush") || strings.Contains(got.Message, "PRIVATE") {
			t.Errorf("with a file that is %s the verdict is %+v, want NoCredentials that quotes nothing", name, got)
		}
	}
	write(t, file, key(t, server.URL))
	cloud.Inject(gcptest.Fault{Method: "token", Status: 503, Body: `{}`, Times: 10})
	if got := check(t.Context(), t, p); got.Ready || got.Reason == "CredentialsRejected" {
		t.Errorf("while no token can be had the verdict is %+v, want none that blames the key", got)
	}
	cloud.Heal()
	cloud.Inject(gcptest.Fault{Method: "token", Status: 400, Body: `{"error":"invalid_grant","error_description":"hush"}`})
	if got := check(t.Context(), t, p); got.Reason != "CredentialsRejected" || strings.Contains(got.Message, "hush") {
		t.Errorf("with a key that was revoked the verdict is %+v, want CredentialsRejected", got)
	}
	if got := check(t.Context(), t, p); !got.Ready {
		t.Errorf("with a good key the verdict is %+v, want it ready", got)
	}
	mustCreate(t, p, named("us-central1-a", "u"))
}

// Without a file they are what the library finds.
func TestApplicationDefaultCredentials(t *testing.T) {
	_, server := startTLS(t, gcptest.Config{Token: "token-of-the-fleet"})
	file := filepath.Join(t.TempDir(), "key.json")
	write(t, file, key(t, server.URL))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	if got := check(t.Context(), t, authenticated(t, server, "")); !got.Ready {
		t.Errorf("the verdict is %+v, want it ready", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
