package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// read parses the text of a file.
func read(data string) (*Set, error) {
	return parse(contents{files: []file{{path: "fleet.yaml", data: []byte(data)}}})
}

var sameSet = cmp.Options{
	cmpopts.IgnoreUnexported(Set{}),
	cmpopts.EquateEmpty(),
	cmp.Comparer(secret.Text.Equal),
	cmp.Comparer(proxy.Time.Equal),
}

// header begins a Proxy that is valid as soon as a spec follows.
const header = "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\n"

func TestGoodDocuments(t *testing.T) {
	a := proxy.Key{Namespace: "default", Name: "a"}
	managed := proxy.Spec{Provider: "local"}
	oneProxy := &Set{Proxies: map[proxy.Key]proxy.Declaration{a: {Spec: managed}}}
	oneSecret := func(labels map[string]string, data map[string]secret.Text) *Set {
		return &Set{Secrets: map[proxy.Key]proxy.Secret{a: {Labels: labels, Data: data}}}
	}
	const secretHeader = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
	for _, c := range []struct {
		name, text string
		want       *Set
	}{
		{"proxy", header + "spec: {provider: local}", oneProxy},
		{"with a byte order mark and CRLF", "\ufeff" + strings.ReplaceAll("---\n"+header+"spec: {provider: local}\n---\n", "\n", "\r\n"), oneProxy},
		{"empty documents are skipped", "---\n# nothing\n---\n\n---\nnull\n---\n" + header + "spec: {provider: local}\n...\n---\n", oneProxy},
		{"content on the line that begins a document", `--- {apiVersion: crawl.example.com/v1alpha1, kind: Proxy, metadata: {name: a}, spec: {provider: local}}`, oneProxy},
		{"a document ends with three dots", header + "spec: {provider: local}\n...\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", &Set{
			Proxies: oneProxy.Proxies, Secrets: map[proxy.Key]proxy.Secret{a: {}},
		}},
		{"JSON", `{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"name":"a"},"spec":{"provider":"local"}}`, oneProxy},
		{"null is as if it were left out", header + "spec: {provider: local, cloudInit: null, port: null, attributes: null}", oneProxy},
		{
			"as kubectl get prints it",
			"apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata:\n  name: a\n  namespace: crawl\n  labels: {team: x}\n  annotations: {crawl.example.com/retry: '1'}\n" +
				"  creationTimestamp: '2026-01-01T00:00:00Z'\n  finalizers: [crawl.example.com/instance]\n  generation: 3\n  managedFields: [{manager: kubectl}]\n" +
				"  ownerReferences: []\n  resourceVersion: '12'\n  uid: 0a\nspec: {provider: local}\nstatus: {phase: Ready, unheard: of}\n",
			&Set{Proxies: map[proxy.Key]proxy.Declaration{
				{Namespace: "crawl", Name: "a"}: {Spec: managed, Annotations: map[string]string{"crawl.example.com/retry": "1"}},
			}},
		},
		{"list", "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + strings.ReplaceAll(header, "\n", "\n  ") + "spec: {provider: local}", oneProxy},
		{
			"aliases and merge keys",
			header + "spec:\n  provider: local\n  attributes: &x {one: '1'}\n  healthCheck: {tls: &tls {serverName: h}, url: http://h/}\n" +
				"---\n" + strings.Replace(header, "{name: a}", "{name: b, annotations: &y {k: v}, labels: *y}", 1) + "spec: {provider: local, attributes: {<<: {a: b}, c: d}}",
			&Set{Proxies: map[proxy.Key]proxy.Declaration{
				a: {Spec: proxy.Spec{Provider: "local", Attributes: map[string]string{"one": "1"},
					HealthCheck: proxy.HealthCheck{URL: "http://h/", TLS: &proxy.TLS{ServerName: "h"}}}},
				{Namespace: "default", Name: "b"}: {Spec: proxy.Spec{Provider: "local", Attributes: map[string]string{"a": "b", "c": "d"}},
					Annotations: map[string]string{"k": "v"}},
			}},
		},
		{
			"keys as kubectl reads them",
			header + "spec: {provider: local, attributes: {1: a, 2.5: b, yes: c}}",
			&Set{Proxies: map[proxy.Key]proxy.Declaration{a: {Spec: proxy.Spec{Provider: "local", Attributes: map[string]string{"1": "a", "2.5": "b", "true": "c"}}}}},
		},
		{
			"secret", secretHeader + "type: kubernetes.io/basic-auth\nimmutable: true\ndata: {username: dTp1, binary: /w==, gone: b2xk}\nstringData: {password: 'p@ss ', gone: new}",
			oneSecret(nil, map[string]secret.Text{"username": secret.New("u:u"), "binary": secret.New("\xff"),
				"password": secret.New("p@ss "), "gone": secret.New("new")}),
		},
		{"secret with labels", strings.Replace(secretHeader, "a}", "a, labels: {crawl.example.com/credentials: 'true'}}", 1),
			oneSecret(map[string]string{proxy.CredentialsLabel: "true"}, nil)},
		{"secret with a name whose parts are longer than labels", "apiVersion: v1\nkind: Secret\nmetadata: {name: " + strings.Repeat("a", 251) + ".b}",
			&Set{Secrets: map[proxy.Key]proxy.Secret{{Namespace: "default", Name: strings.Repeat("a", 251) + ".b"}: {}}}},
		{
			"fleet configuration",
			"apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: home-1\nhealthCheck: {interval: 1m}\n" +
				"providers:\n- {name: local, type: local, maxInstances: 7, config: {b: [1, 2.5, true, {x: null}], a: 9007199254740993}}\n- {name: b, type: local}\n",
			&Set{Configuration: &Configuration{
				FleetID:     "home-1",
				HealthCheck: proxy.HealthCheck{Interval: proxy.Duration(time.Minute)},
				Providers: []Provider{
					{"local", "local", 7, json.RawMessage(`{"a":9007199254740993,"b":[1,2.5,true,{"x":null}]}`)},
					{"b", "local", 0, json.RawMessage(`{}`)},
				},
			}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameSet); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestBadDocuments(t *testing.T) {
	const (
		inFile   = "fleet.yaml: "
		inFirst  = "fleet.yaml:1: document 1: "
		inProxy  = "fleet.yaml:1: document 1, Proxy default/a: "
		inSecret = "fleet.yaml:1: document 1, Secret default/s: "
		inConfig = "fleet.yaml:1: document 1, FleetConfiguration: "

		empty  = inFile + "holds no document, and an emptied file deletes nothing: put the documents back, or name the file no longer if it is not needed"
		secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
		config = "apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\n"
	)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c]\n", c, c-1)
	}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"empty file", "", []string{empty}},
		{"nothing but comments", "# nothing\n---\n# here\n", []string{empty}},
		{"binary", "\x7fELF\x02\x01\xff", []string{inFile + "is not UTF-8 text"}},
		{"control characters", "kind: \x01", []string{inFirst + "is not YAML: control characters are not allowed"}},
		{"not YAML", "kind: Proxy\n\tspec: x\n", []string{"fleet.yaml:2: document 1: is not YAML: found a tab character that violates indentation"}},
		{"lines count from the top of the file", header + "spec: {provider: local}\n---\n\n# more\nkind: [\n---\nkind: ]\n", []string{
			"fleet.yaml:8: document 2: is not YAML: did not find expected node content",
			"fleet.yaml:10: document 3: is not YAML: did not find expected node content",
		}},
		{"not an object", "- a\n---\nhello\n---\n3\n", []string{
			inFirst + "must be an object with apiVersion and kind, not a list",
			"fleet.yaml:3: document 2: must be an object with apiVersion and kind, not a string",
			"fleet.yaml:5: document 3: must be an object with apiVersion and kind, not a number without quotes",
		}},
		{"second document without a mark", `{"kind":"Proxy"}{"kind":"Proxy"}`, []string{inFirst + "goes on after its end: begin each document with a line that holds only ---"}},
		{"document mark behind an exotic line break", "kind: Proxy\r---\rkind: Proxy", []string{inFirst + "goes on after its end: begin each document with a line that holds only ---"}},
		{"duplicate keys", header + "spec: {provider: a}\nspec:\n  port: 1\n  port: 2", []string{
			"fleet.yaml:7: document 1: has the key \"port\" twice in one object",
			"fleet.yaml:6: document 1: has the key \"spec\" twice in one object",
		}},
		{"keys that become the same", header + "spec: {attributes: {1: a, '1': b}}", []string{inFirst + `has the key "1" twice in one object`}},
		{"key that is no string", header + "spec: {attributes: {null: a}}", []string{inFirst + "has a key that is not a string"}},
		{"duplicate key that is no word", `{"a\"b": 1, "a\"b": 2}`, []string{inFirst + "has a key twice in one object"}},
		{"key that is a list", header + "spec: {attributes: {[a]: b}}", []string{inFirst + "is not YAML"}},
		{"key that is not UTF-8", "{!!binary /w==: a}", []string{inFirst + "has a key that is not UTF-8"}},
		{"nested aliases", bomb, []string{inFirst + "is not YAML: document contains excessive aliasing"}},
		{"aliases of large values", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 64) + "]\n---\nnot looked at any more\n", []string{inFirst + "expands to more than 32 MiB: use fewer aliases"}},

		{"no kind", "metadata: {}", []string{inFirst + `kind: must be Proxy, Secret or FleetConfiguration, not ""`}},
		{"unknown kind", "apiVersion: v1\nkind: ConfigMap", []string{inFirst + `kind: must be Proxy, Secret or FleetConfiguration, not "ConfigMap"`}},
		{"kind is no string", "kind: 3", []string{inFirst + `kind: must be Proxy, Secret or FleetConfiguration, not ""`}},
		{"unknown apiVersion", "apiVersion: v1\nkind: Proxy", []string{inFirst + `apiVersion: must be crawl.example.com/v1alpha1 for kind Proxy, not "v1"`}},
		{"apiVersion of a Secret", "apiVersion: v2\nkind: Secret", []string{inFirst + `apiVersion: must be v1 for kind Secret, not "v2"`}},
		{"unknown fields at any depth", header + "spec:\n  porrt: 1\n  placement: {Zone: z}\n  cloudInit: {secretRef: {name: a, key: b, 'c d': e}}\nextra: 1\n", []string{
			inProxy + "extra: unknown field",
			inProxy + `spec.cloudInit.secretRef."c d": unknown field`,
			inProxy + "spec.placement.Zone: unknown field",
			inProxy + "spec.porrt: unknown field",
		}},
		{"values that do not fit", strings.Replace(header, "{name: a}", "{name: a, annotations: []}", 1) + `spec:
  mode: 1
  port: 99999999999
  placement: zone
  attributes: {a: 1, b: yes, c: [x]}
  maxLeases: 1.5
  endpoint: {tls: {insecureSkipVerify: "true"}}
  healthCheck: {interval: 30, timeout: soon, expectedStatus: [204, "205"], url: {}, tls: true, successThreshold: .inf}
`, []string{
			inProxy + "metadata.annotations: must be an object, not a list",
			inProxy + "spec.attributes.a: must be a string, not a number without quotes",
			inProxy + "spec.attributes.b: must be a string, not true or false without quotes",
			inProxy + "spec.attributes.c: must be a string, not a list",
			inProxy + "spec.endpoint.tls.insecureSkipVerify: must be true or false, not a string",
			inProxy + "spec.healthCheck.expectedStatus[1]: must be a whole number of at most 32 bits, not a string",
			inProxy + `spec.healthCheck.interval: a duration must be a string with a unit, such as "30s", not 30`,
			inProxy + "spec.healthCheck.successThreshold: must be a whole number of at most 32 bits, not a number without quotes",
			inProxy + `spec.healthCheck.timeout: a duration must be a number with a unit, such as "30s", not "soon"`,
			inProxy + "spec.healthCheck.tls: must be an object, not true or false without quotes",
			inProxy + "spec.healthCheck.url: must be a string, not an object",
			inProxy + "spec.maxLeases: must be a whole number of at most 32 bits, not a number without quotes",
			inProxy + "spec.mode: must be a string, not a number without quotes",
			inProxy + "spec.placement: must be an object, not a string",
			inProxy + "spec.port: is too large a number: must be a whole number of at most 32 bits, which is up to 2147483647",
		}},
		{"numbers that do not fit", header + "spec: {provider: local, maxLeases: 99999999999, port: -3000000000, placement: {diskSizeGb: 1e30}, healthCheck: {successThreshold: 1.5, failureThreshold: 18446744073709551615}}", []string{
			inProxy + "spec.healthCheck.failureThreshold: is too large a number: must be a whole number of at most 32 bits, which is up to 2147483647",
			inProxy + "spec.healthCheck.successThreshold: must be a whole number of at most 32 bits, not a number without quotes",
			inProxy + "spec.maxLeases: is too large a number: must be a whole number of at most 32 bits, which is up to 2147483647",
			inProxy + "spec.placement.diskSizeGb: is too large a number: must be a whole number of at most 64 bits, which is up to 9223372036854775807",
			inProxy + "spec.port: is too small a number: must be a whole number of at most 32 bits, which is up to 2147483647",
		}},
		{"values that are not valid", "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {namespace: B}\nspec: {port: 70000, healthCheck: {timeout: -1s}}", []string{
			`fleet.yaml:1: document 1, Proxy B/: metadata.namespace: must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not "B"`,
			`fleet.yaml:1: document 1, Proxy B/: metadata.name: must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not ""`,
			"fleet.yaml:1: document 1, Proxy B/: spec.provider: is required: the name of a configured provider",
			"fleet.yaml:1: document 1, Proxy B/: spec.port: must be 1 to 65535, or left out for 3128, not 70000",
			"fleet.yaml:1: document 1, Proxy B/: spec.healthCheck.timeout: must be positive, not -1s",
		}},
		{"declared twice", header + "spec: {provider: a}\n---\n" + strings.Replace(header, "{name", "{namespace: default, name", 1) + "spec: {provider: b}\n", []string{
			"fleet.yaml:6: document 2, Proxy default/a: is declared twice; the other one is at fleet.yaml:1: document 1, Proxy default/a",
		}},
		{"declared twice in a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- 7", []string{
			"fleet.yaml:1: document 1, item 2, Secret default/s: is declared twice; the other one is at fleet.yaml:1: document 1, item 1, Secret default/s",
			"fleet.yaml:1: document 1, item 3: must be an object with apiVersion and kind, not a number without quotes",
		}},
		{"all problems at once", "kind: X\n---\n" + header + "spec: 1\n", []string{
			inFirst + `kind: must be Proxy, Secret or FleetConfiguration, not "X"`,
			"fleet.yaml:3: document 2, Proxy default/a: spec: must be an object, not a number without quotes",
		}},

		{"secret that is not base64", secret + "data: {password: 'hunter2!'}\nstringData: {password: other}", []string{inSecret + "data.password: is not base64; a value as it is belongs under stringData"}},
		{"secret that is a number", secret + "data: {a: 12345678}\nstringData: {b: 12345678, c: true, d: [12345678]}", []string{
			inSecret + "data.a: must be a string, not a number without quotes",
			inSecret + "stringData.b: must be a string, not a number without quotes",
			inSecret + "stringData.c: must be a string, not true or false without quotes",
			inSecret + "stringData.d: must be a string, not a list",
		}},
		{"secret with a name that is too long", "apiVersion: v1\nkind: Secret\nmetadata: {name: " + strings.Repeat("a", 254) + "}", []string{
			"fleet.yaml:1: document 1, Secret default/" + strings.Repeat("a", 254) + `: metadata.name: must be a DNS subdomain, not "` + strings.Repeat("a", 254) + `"`}},
		{"secret names and keys", "apiVersion: v1\nkind: Secret\nmetadata: {name: a_b, namespace: x.y}\nstringData: {..a: b, 'c d': e}\nunknown: 1\nimmutable: maybe", []string{
			"fleet.yaml:1: document 1, Secret x.y/a_b: immutable: must be true or false, not a string",
			"fleet.yaml:1: document 1, Secret x.y/a_b: unknown: unknown field",
			"fleet.yaml:1: document 1, Secret x.y/a_b: data...a: is not a key of a Secret: 1 to 253 letters, digits, '-', '_' and '.', not beginning with '..'",
			"fleet.yaml:1: document 1, Secret x.y/a_b: data.\"c d\": is not a key of a Secret: 1 to 253 letters, digits, '-', '_' and '.', not beginning with '..'",
			`fleet.yaml:1: document 1, Secret x.y/a_b: metadata.namespace: must be a DNS label, not "x.y"`,
			`fleet.yaml:1: document 1, Secret x.y/a_b: metadata.name: must be a DNS subdomain, not "a_b"`,
		}},
		{"secret that is too large", secret + "stringData: {a: " + strings.Repeat("x", 1<<20) + ", b: z}", []string{inSecret + "data: must be at most 1048576 bytes in all, not 1048577"}},
		{"secret with an alias that leads nowhere", secret + "stringData: {password: *hunter2}", []string{inFirst + "is not YAML: an alias has no anchor; a value that begins with * belongs in quotes"}},
		{"secret with a tag", secret + "stringData: {password: !!int hunter2}", []string{inFirst + "is not YAML"}},
		{"secret under a key that is an object", secret + "stringData: {{password: hunter2}: x}", []string{inFirst + "is not YAML"}},
		{"secret under null", secret + "stringData: {~: hunter2}", []string{inFirst + "has a key that is not a string"}},

		{"two configurations", config + "---\n" + config, []string{
			"fleet.yaml:4: document 2, FleetConfiguration: is declared twice; the other one is at fleet.yaml:1: document 1, FleetConfiguration"}},
		{"configuration with metadata", config + "metadata: {name: x}", []string{inConfig + "metadata: unknown field"}},
		{"configuration", config + "fleetID: Home\nhealthCheck: {interval: 1ms}\nproviders:\n- {name: A, maxInstances: -1, config: x}\n- {name: b, type: local}\n- {name: b, type: local, config: []}\n- {}", []string{
			inConfig + `fleetID: must be 1 to 63 lower-case letters, digits or '-', not "Home"`,
			inConfig + "healthCheck.interval: must be at least 1s, not 1ms",
			inConfig + `providers[0].name: must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not "A"`,
			inConfig + "providers[0].type: is required: the kind of provider",
			inConfig + "providers[0].maxInstances: must be at least 1, or left out for no limit, not -1",
			inConfig + "providers[0].config: must be an object",
			inConfig + `providers[2].name: must be unique: another provider is named "b"`,
			inConfig + "providers[2].config: must be an object",
			inConfig + `providers[3].name: must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not ""`,
			inConfig + "providers[3].type: is required: the kind of provider",
		}},
		{"configuration without a list", config + "providers: {name: a}", []string{inConfig + "providers: must be a list, not an object"}},
		{"configuration with a number that JSON cannot hold", config + "providers: [{name: a, type: b, config: {x: .nan}}]", []string{
			inConfig + "providers[0].config: holds a number that is not finite"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.text)
			if err == nil {
				t.Fatal("was accepted")
			}
			if diff := cmp.Diff(c.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, hidden := range []string{"hunter2", "12345678"} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("the error holds a secret: %v", err)
				}
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := read(strings.Repeat("kind: X\n---\n", 1000))
	all := strings.Split(err.Error(), "\n")
	if len(all) != maxProblems+1 || all[maxProblems] != "there are more problems" {
		t.Errorf("%d problems, the last is %q", len(all), all[len(all)-1])
	}
}

func TestErrorsKeepTheirType(t *testing.T) {
	_, err := read(header + "spec: {port: 70000}")
	if _, ok := errors.AsType[*proxy.FieldError](err); !ok {
		t.Errorf("no FieldError in the tree of %v", err)
	}
}

// TestEveryField decodes each field of the model, so that none is added to it that documents cannot hold.
func TestEveryField(t *testing.T) {
	for _, want := range []any{&proxy.Spec{}, &Configuration{}} {
		t.Run(fmt.Sprintf("%T", want), func(t *testing.T) {
			fill(t, reflect.ValueOf(want).Elem())
			b, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			budget := maxExpanded
			v, problems := tree(b, &budget)
			got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
			problems = append(problems, decode(v.(map[string]any), got)...)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// fill sets everything that can be set to something.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	if raw, ok := reflect.TypeAssert[*json.RawMessage](v.Addr()); ok {
		*raw = json.RawMessage(`{"a":1}`)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
		fill(t, v.Index(1))
	case reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		fill(t, item)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), item)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1 << 30)
	default:
		t.Fatalf("no test for fields of type %v", v.Type())
	}
}
