package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/manifest"
	"github.com/proxyfleet/fleet/proxy"
)

// judged is the table that the Go code is held to as well.
type judged struct {
	Valid, Invalid, Malformed []row
	Edits                     []struct {
		Name     string
		Old, New json.RawMessage
		Fields   []string
	}
}

type row struct {
	Name         string
	Spec         json.RawMessage
	Fields       []string
	SchemaFields []string
	GoOnly       string
}

func readJudged(t *testing.T) (j judged) {
	t.Helper()
	b, err := os.ReadFile("../../proxy/testdata/specs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Valid) == 0 || len(j.Invalid) == 0 || len(j.Malformed) == 0 || len(j.Edits) == 0 {
		t.Fatal("the table lost a part")
	}
	return j
}

// declare reads a document as a fleet without Kubernetes does.
func declare(t *testing.T, doc []byte) (proxy.Spec, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Load(manifest.Sources{Files: []string{file}})
	if err != nil {
		return proxy.Spec{}, err
	}
	return set.Proxies[proxy.Key{Namespace: "default", Name: "test"}].Spec, nil
}

// fieldsOf returns the fields that an error of the Go code names.
func fieldsOf(err error) []string {
	var all []string
	var visit func(error)
	visit = func(err error) {
		if f, ok := err.(*proxy.FieldError); ok {
			all = append(all, withoutIndex(f.Field))
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

func withoutIndex(field string) string {
	field, _, _ = strings.Cut(field, "[")
	return field
}

func (s *server) takesValid(t *testing.T) {
	for _, c := range readJudged(t).Valid {
		t.Run(c.Name, func(t *testing.T) {
			doc := document("test", c.Spec)
			want, err := declare(t, doc)
			if err != nil {
				t.Fatalf("manifest: %v", err)
			}
			got, err := s.judge(t, doc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Canonical(), got.Spec.Canonical()); diff != "" {
				t.Errorf("spec (-declared +kept):\n%s", diff)
			}
		})
	}
}

func (s *server) refusesInvalid(t *testing.T) {
	j := readJudged(t)
	for _, c := range slices.Concat(j.Invalid, j.Malformed) {
		t.Run(c.Name, func(t *testing.T) {
			doc := document("test", c.Spec)
			_, err := declare(t, doc)
			if diff := cmp.Diff(slices.Sorted(slices.Values(c.Fields)), fieldsOf(err)); diff != "" {
				t.Errorf("fields of manifest's %v (-want +got):\n%s", err, diff)
			}
			_, err = s.judge(t, doc)
			switch {
			case c.GoOnly != "" && err != nil:
				t.Errorf("the schema can refuse it after all: %v", err)
			case c.GoOnly != "":
			case c.SchemaFields != nil:
				wantRefused(t, err, c.SchemaFields)
			default:
				wantRefused(t, err, c.Fields)
			}
		})
	}
}

func (s *server) judgesEdits(t *testing.T) {
	for i, c := range readJudged(t).Edits {
		t.Run(c.Name, func(t *testing.T) {
			p := s.create(t, document(fmt.Sprintf("edited-%d", i), c.Old))
			_, err := s.replace(t, p, c.New)
			if len(c.Fields) > 0 {
				wantRefused(t, err, c.Fields)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// What nobody wrote a row for: texts put together from parts that are hard to judge.
func (s *server) judgesOddTexts(t *testing.T) {
	const n = 60
	long := strings.Repeat("a", 63) + " " + strings.Repeat("b.", 100)
	for _, c := range []struct {
		name, spec, begin, parts string
	}{
		{"host", `{"mode": "External", "endpoint": {"scheme": "http", "host": %s, "port": 1}}`, "",
			`: :: 1 ffff FFFF fe80 :: : % %eth0 . .. 192.0.2.7 01.2.3.4 256.1.1.1 a A-b _ - [ ] @ / é %25 \n 0 0:0:0:0 ::ffff: 1: :2 abcde ab1`},
		{"scheme of a URL", `{"provider": "p", "healthCheck": {"url": %s}}`, "", `http:// https:// HTTP:// ftp:// http: // / : a.example a.example`},
		{"URL", `{"provider": "p", "healthCheck": {"url": %s}}`, "http://",
			`/ / a.example a.example A_b - : :80 :0 :00443 :65536 :x [ ] [::1] [fe80::1%25e0] [fe80::1%e0] [::ffff:1.2.3.4] [fe80::1%25e%30]
			1.2.3.4 1.2.3 %41 %zz %20 %C3%BC ? # @ u:p@ \ é \u00a0 \u0000 \u007f a b ; & = + | " < { ^ [v1.a] [a] []`},
		{"timeout", `{"provider": "p", "healthCheck": {"timeout": %s}}`, "",
			`0 1 00 9 . + - s ms us µs μs ns m h d S e3 1.5 .5 5. 99999999999 2562047 h47m 1s 1s`},
		{"interval", `{"provider": "p", "healthCheck": {"interval": %s}}`, "",
			`0 1 00 9 . + - s ms us µs μs ns m h d S e3 1.5 .5 5. 999999999ns 1s 1s`},
		{"name of a Secret", `{"provider": "p", "credentials": {"secretRef": {"name": %s}}}`, "", `a b1 . .. - _ A é a- -a ` + long},
		{"key of a Secret", `{"provider": "p", "credentials": {"secretRef": {"name": "a", "usernameKey": %s}}}`, "", `a b1 . .. - _ A é / ` + long},
	} {
		t.Run(c.name, func(t *testing.T) {
			random, parts, good := rand.New(rand.NewPCG(1, 1)), unquoted(t, c.parts), 0
			for range n {
				text := c.begin
				for range 1 + random.IntN(5) {
					text += parts[random.IntN(len(parts))]
				}
				quoted, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				doc := document("test", json.RawMessage(fmt.Sprintf(c.spec, quoted)))
				_, byGo := declare(t, doc)
				_, bySchema := s.judge(t, doc)
				if (byGo == nil) != (bySchema == nil) {
					t.Errorf("%s: Go says %v, the schema %v", quoted, byGo, bySchema)
				}
				if byGo == nil {
					good++
				}
			}
			if good == 0 || good == n {
				t.Errorf("%d of %d are good, which proves little", good, n)
			}
		})
	}
}

// unquoted returns the words of a text, in which escapes are Go's.
func unquoted(t *testing.T, text string) []string {
	t.Helper()
	words := strings.Fields(text)
	for i, word := range words {
		if !strings.Contains(word, `\u`) && word != `\n` {
			continue
		}
		var err error
		if words[i], err = strconv.Unquote(`"` + word + `"`); err != nil {
			t.Fatal(err)
		}
	}
	return words
}

func (s *server) judgesNames(t *testing.T) {
	good := 0
	for _, name := range []string{"", "a", "1", "a-1", "-a", "a-", "A", "a.b", "a_b", "ä", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		byGo := proxy.ValidateKey(proxy.Key{Namespace: "default", Name: name})
		_, bySchema := s.judge(t, document(name, json.RawMessage(`{"provider": "lab"}`)))
		if (byGo == nil) != (bySchema == nil) {
			t.Errorf("%q: Go says %v, the schema %v", name, byGo, bySchema)
		}
		if bySchema == nil {
			good++
		} else if !strings.Contains(bySchema.Error(), "metadata.name: ") {
			t.Errorf("the refusal of %q does not name the field: %v", name, bySchema)
		}
	}
	if good != 4 {
		t.Errorf("%d names are good", good)
	}
}

func (s *server) fillsIn(t *testing.T) {
	for name, spec := range map[string]string{
		"managed":  `{"provider": "lab", "credentials": {"secretRef": {"name": "login"}}}`,
		"external": `{"mode": "External", "endpoint": {"scheme": "http", "host": "a.example", "port": 1}, "maxLeases": null}`,
	} {
		p, err := s.judge(t, document("test", json.RawMessage(spec)))
		if err != nil {
			t.Fatal(err)
		}
		want := p.Spec.Canonical()
		want.Port = 0 // depends on the mode, and a schema's defaults depend on nothing
		if diff := cmp.Diff(want, p.Spec); diff != "" {
			t.Errorf("%s (-canonical +kept):\n%s", name, diff)
		}
	}
}

// The same file works with both. Its FleetConfiguration is for a fleet without Kubernetes.
func (s *server) takesExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "\nkind: Proxy\n") {
			continue
		}
		docs := slices.DeleteFunc(strings.Split(string(b), "\n---\n"), func(doc string) bool {
			return strings.Contains(doc, "\nkind: FleetConfiguration\n")
		})
		if out, err := s.KubectlInput(t.Context(), strings.Join(docs, "\n---\n"), "apply", "--filename=-"); err != nil {
			t.Fatal(file, out, err)
		}
		set, err := manifest.Load(manifest.Sources{Files: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		for key, declared := range set.Proxies {
			var p v1alpha1.Proxy
			if err := s.rest.Get().Namespace(key.Namespace).Resource("proxies").Name(key.Name).Do(t.Context()).Into(&p); err != nil {
				t.Fatal(file, err)
			}
			if diff := cmp.Diff(declared.Spec.Canonical(), p.Spec.Canonical()); diff != "" {
				t.Errorf("%v of %s (-declared +kept):\n%s", key, file, diff)
			}
			taken++
		}
	}
	if taken == 0 {
		t.Error("no example has a Proxy")
	}
}
