package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/secret"
)

// A fleet is found again by what somebody chose, or by what lives no longer than its instances.
func TestIdentity(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/fleets" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not yours"}`)
			return
		}
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"fleets","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}`)
	}))
	defer server.Close()
	types := map[string]ProviderType{"cloud": {Outlives: true}, "pod": {Outlives: true, InCluster: true}, "local": {}}
	for _, test := range []struct {
		name, flag, id, provider, space string
		want, problem                   string
	}{
		{name: "a flag", flag: "home", provider: "cloud", want: "home"},
		{name: "a configuration", id: "home", provider: "cloud", want: "home"},
		{name: "both", flag: "home", id: "home", want: "home"},
		{name: "a conflict", flag: "home", id: "away", problem: "--fleet-id is home, and the FleetConfiguration says fleetID: away"},
		{name: "a cloud", provider: "cloud", problem: "--fleet-id or a fleetID in the FleetConfiguration is required: instances of provider \"x\" outlive the cluster"},
		// UUIDv5 of the namespace's UID, which is that of RFC 9562 for DNS, and the name of the election.
		{name: "pods", provider: "pod", want: "343bb5c0-faa6-5aa1-a77c-c35ac385a282"},
		{name: "nothing that outlives the process", provider: "local", want: "343bb5c0-faa6-5aa1-a77c-c35ac385a282"},
		{name: "no provider", want: "343bb5c0-faa6-5aa1-a77c-c35ac385a282"},
		{name: "a namespace that cannot be read", space: "others", problem: "no --fleet-id is given, and namespace others, from which one would be made, cannot be read: not yours"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &manifest.Configuration{FleetID: test.id}
			if test.provider != "" {
				c.Providers = []manifest.Provider{{Name: "x", Type: test.provider}}
			}
			o := clusterOptions{fleetID: test.flag, electionID: "proxyfleet", electionSpace: test.space}
			got, err := o.identity(t.Context(), c, types, location{&rest.Config{Host: server.URL}, "fleets"})
			switch {
			case test.problem != "" && (err == nil || !strings.HasPrefix(err.Error(), test.problem)):
				t.Errorf("got %q, %v, want %q", got, err, test.problem)
			case test.problem == "" && (err != nil || got != test.want):
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// Where nothing says which cluster is meant, the words are those of this program.
func TestNoClusterIsFound(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	const want = "--kubernetes: no cluster was found: this process is not in one, and neither --kubeconfig nor KUBECONFIG names a file that says where one is"
	if _, err := (&clusterOptions{}).locate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// certify writes a certificate for loopback, and its key.
func certify(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Replicas with TLS and a token speak to each other with both: the leader answers who knows the token, and a replica tells a
// token to nobody who shows another certificate than its own.
func TestReplicasSpeakTLS(t *testing.T) {
	dir := t.TempDir()
	o := newOptions(t)
	o.certFile, o.keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certify(t, o.certFile, o.keyFile)
	token := access{token: secret.New("sesame")}
	leader := newReplicaWith(t, o, token, &manifest.Configuration{}, nil)
	o.certFile, o.keyFile = filepath.Join(dir, "cert2.pem"), filepath.Join(dir, "key2.pem")
	certify(t, o.certFile, o.keyFile)
	stranger := newReplicaWith(t, o, token, &manifest.Configuration{}, nil)
	o.certFile, o.keyFile = leader.options.certFile, leader.options.keyFile
	follower := newReplicaWith(t, o, token, &manifest.Configuration{}, nil)
	ctx, end := context.WithCancel(t.Context())
	for _, r := range []*replica{leader, stranger, follower} {
		r.ballot.other = strings.TrimPrefix(leader.server.URL(), "https://")
		go func() { r.ended <- r.run(ctx) }()
	}
	leader.ballot.elect <- struct{}{}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	ask := func(r *replica, token string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.server.URL()+"/v1/leases", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status + " " + string(body)
	}
	deadline := time.After(time.Minute)
	for !strings.Contains(ask(leader, "sesame"), "no_match") {
		select {
		case <-deadline:
			t.Fatalf("the leader grants no leases: %s", leader.journal)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if got := ask(follower, "sesame"); !strings.HasPrefix(got, "409 ") || !strings.Contains(got, "no_match") {
		t.Errorf("through another replica: %s", got)
	}
	if got := ask(follower, "guess"); !strings.HasPrefix(got, "401 ") {
		t.Errorf("without the token: %s", got)
	}
	if got := ask(stranger, "sesame"); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "has not answered") {
		t.Errorf("through one with another certificate: %s", got)
	}
	end()
	for _, r := range []*replica{leader, stranger, follower} {
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	}
}
