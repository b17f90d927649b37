package proxy_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/proxy"
)

// judged is testdata/specs.yaml.
type judged struct {
	Valid, Invalid []struct {
		Name   string     `json:"name"`
		Spec   proxy.Spec `json:"spec"`
		Fields []string   `json:"fields"`

		SchemaFields []string `json:"schemaFields"`
		GoOnly       string   `json:"goOnly"`
	}
	Malformed any // for those who read documents
	Edits     []struct {
		Name   string     `json:"name"`
		Old    proxy.Spec `json:"old"`
		New    proxy.Spec `json:"new"`
		Fields []string   `json:"fields"`
	}
}

func readJudged(t *testing.T) (j judged) {
	t.Helper()
	b, err := os.ReadFile("testdata/specs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Valid) == 0 || len(j.Invalid) == 0 || len(j.Edits) == 0 {
		t.Fatal("the table lost a part")
	}
	return j
}

// fields returns the fields that an error names, each once.
func fields(err error) []string {
	var all []string
	var visit func(error)
	visit = func(err error) {
		if f, ok := err.(*proxy.FieldError); ok {
			all = append(all, f.Field)
		}
		switch err := err.(type) {
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				visit(e)
			}
		case interface{ Unwrap() error }:
			visit(err.Unwrap())
		}
	}
	visit(err)
	slices.Sort(all)
	return slices.Compact(all)
}

func wantFields(t *testing.T, err error, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(want, fields(err)); diff != "" {
		t.Errorf("fields of %v (-want +got):\n%s", err, diff)
	}
	for _, f := range want {
		if !strings.Contains(err.Error(), f+": ") {
			t.Errorf("the text does not name %s: %v", f, err)
		}
	}
}

func TestValidate(t *testing.T) {
	j := readJudged(t)
	for _, c := range j.Valid {
		t.Run("valid/"+c.Name, func(t *testing.T) {
			if err := proxy.Validate(c.Spec); err != nil {
				t.Error(err)
			}
			if err := proxy.Validate(c.Spec.Canonical()); err != nil {
				t.Errorf("canonical: %v", err)
			}
		})
	}
	for _, c := range j.Invalid {
		t.Run("invalid/"+c.Name, func(t *testing.T) { wantFields(t, proxy.Validate(c.Spec), c.Fields...) })
	}
}

func TestValidateUpdate(t *testing.T) {
	for _, c := range readJudged(t).Edits {
		t.Run(c.Name, func(t *testing.T) {
			if err := errors.Join(proxy.Validate(c.Old), proxy.Validate(c.New)); err != nil {
				t.Fatalf("the case itself is bad: %v", err)
			}
			err := proxy.ValidateUpdate(c.Old, c.New)
			if len(c.Fields) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFields(t, err, c.Fields...)
			if !errors.Is(err, proxy.ErrImmutable) {
				t.Errorf("%v is not ErrImmutable", err)
			}
		})
	}
}

// certificate returns one that signed itself, as PEM.
func certificate(t *testing.T) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// The limits that would fill a document, and what no document can hold.
func TestValidateLimits(t *testing.T) {
	const junk = "\xff"
	attributes := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = strings.Repeat("ä", 256)
		}
		return m
	}
	ca := certificate(t)
	for _, c := range []struct {
		name   string
		spec   proxy.Spec
		fields []string
	}{
		{"64 attributes of 256 characters", proxy.Spec{Provider: "p", Attributes: attributes(64)}, nil},
		{"65 attributes", proxy.Spec{Provider: "p", Attributes: attributes(65)}, []string{"spec.attributes"}},
		{"an attribute of 257 characters", proxy.Spec{Provider: "p", Attributes: map[string]string{"a": strings.Repeat("ä", 257)}},
			[]string{"spec.attributes.a"}},
		{"an attribute's key of 63 characters", proxy.Spec{Provider: "p", Attributes: map[string]string{strings.Repeat("ä", 63): "v"}}, nil},
		{"a certificate that cannot be read", proxy.Spec{Provider: "p", HealthCheck: proxy.HealthCheck{TLS: &proxy.TLS{
			CA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}}}, []string{"spec.healthCheck.tls.ca"}},
		{"one that can be read behind it", proxy.Spec{Provider: "p", HealthCheck: proxy.HealthCheck{TLS: &proxy.TLS{
			CA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" + ca}}}, nil},
		{"text that is not UTF-8, Managed", proxy.Spec{
			Provider: junk, Placement: proxy.Placement{Zone: junk, MachineType: junk, Image: junk},
			CloudInit:   &proxy.CloudInit{Inline: junk},
			Attributes:  map[string]string{"a": junk, junk: "b"},
			HealthCheck: proxy.HealthCheck{URL: "http://h/" + junk, TLS: &proxy.TLS{CA: ca + junk, ServerName: junk}},
		}, []string{"spec.provider", "spec.placement.zone", "spec.placement.machineType", "spec.placement.image", "spec.cloudInit.inline",
			"spec.attributes", "spec.attributes.a", "spec.healthCheck.url", "spec.healthCheck.tls.ca", "spec.healthCheck.tls.serverName"}},
		{"text that is not UTF-8, External", proxy.Spec{Mode: proxy.External,
			Endpoint: &proxy.Endpoint{Scheme: proxy.HTTPS, Host: "h" + junk, Port: 1, TLS: &proxy.TLS{CA: ca + junk, ServerName: junk}}},
			[]string{"spec.endpoint.host", "spec.endpoint.tls.ca", "spec.endpoint.tls.serverName"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := proxy.Validate(c.spec); err != nil || len(c.fields) > 0 {
				wantFields(t, err, c.fields...)
			}
		})
	}
}

func TestValidateKey(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		name   string
		key    proxy.Key
		fields []string
	}{
		{"plain", proxy.Key{Namespace: "crawl", Name: "eu-1"}, nil},
		{"digits and the longest", proxy.Key{Namespace: "1", Name: long}, nil},
		{"empty", proxy.Key{}, []string{"metadata.name", "metadata.namespace"}},
		{"too long", proxy.Key{Namespace: "crawl", Name: long + "a"}, []string{"metadata.name"}},
		{"upper case", proxy.Key{Namespace: "Crawl", Name: "a"}, []string{"metadata.namespace"}},
		{"dot", proxy.Key{Namespace: "crawl", Name: "a.b"}, []string{"metadata.name"}},
		{"slash", proxy.Key{Namespace: "crawl", Name: "a/b"}, []string{"metadata.name"}},
		{"hyphen first", proxy.Key{Namespace: "crawl", Name: "-a"}, []string{"metadata.name"}},
		{"hyphen last", proxy.Key{Namespace: "crawl", Name: "a-"}, []string{"metadata.name"}},
		{"line break", proxy.Key{Namespace: "crawl", Name: "a\n"}, []string{"metadata.name"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := proxy.ValidateKey(c.key); err != nil || len(c.fields) > 0 {
				wantFields(t, err, c.fields...)
			}
		})
	}
}

func TestValidateHealthCheckNamesItsPath(t *testing.T) {
	if err := proxy.ValidateHealthCheck("healthDefaults", proxy.HealthCheck{}); err != nil {
		t.Errorf("nothing set: %v", err)
	}
	err := proxy.ValidateHealthCheck("healthDefaults", proxy.HealthCheck{URL: "x", Interval: 1, Timeout: -1, TLS: &proxy.TLS{CA: "x"}})
	wantFields(t, err, "healthDefaults.url", "healthDefaults.interval", "healthDefaults.timeout", "healthDefaults.tls.ca")
}

// People paste the URL of a proxy, password and all, into the wrong field.
func TestValidateEchoesNoPassword(t *testing.T) {
	const password = "hunter2"
	for name, spec := range map[string]proxy.Spec{
		"host": {Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "http://me:" + password + "@gw:3128", Port: 3128}},
		"URL":  {Provider: "p", HealthCheck: proxy.HealthCheck{URL: "ftp://me:" + password + "@gw"}},
		"odd":  {Provider: "p", HealthCheck: proxy.HealthCheck{URL: "http://me:" + password + "@gw:\x01/"}},
		"name": {Provider: "p", HealthCheck: proxy.HealthCheck{URL: "http://me!" + password + "/"}},
		"port": {Provider: "p", HealthCheck: proxy.HealthCheck{URL: "http://" + password + ":0/"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := proxy.Validate(spec); err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

func FuzzValidate(f *testing.F) {
	f.Add("http", "proxy.example", int32(3128), "http://t.example/", int64(time.Second))
	f.Add("http", ":::", int32(1), "http://h:0/", int64(0))
	f.Add("http", "fe80::1%eth 0", int32(1), "http://m\u00fcnchen.example:70000/?a b", int64(0))
	f.Add("socks5", "::1", int32(0), "https://[::1]:443/", int64(0))
	f.Fuzz(func(t *testing.T, scheme, host string, port int32, url string, interval int64) {
		s := proxy.Spec{Mode: proxy.External,
			Endpoint:    &proxy.Endpoint{Scheme: proxy.Scheme(scheme), Host: host, Port: port},
			HealthCheck: proxy.HealthCheck{URL: url, Interval: proxy.Duration(interval)}}
		if proxy.Validate(s) != nil {
			return
		}
		if strings.ContainsAny(host, "/@[]\\ \x00") || host == "" {
			t.Errorf("host %q is accepted", host)
		}
		if err := (health.Target{URL: url}).Validate(); url != "" && strings.Contains(err.Error(), "URL:") {
			t.Errorf("URL %q is accepted, and then cannot be probed: %v", url, err)
		}
		if err := proxy.Validate(s.Canonical()); err != nil {
			t.Errorf("its canonical form is refused: %v", err)
		}
		if err := proxy.ValidateUpdate(s, s.Canonical()); err != nil {
			t.Errorf("it may not become its canonical form: %v", err)
		}
	})
}
