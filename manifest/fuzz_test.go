package manifest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDocuments holds that no text makes the parser panic, and that a set that was read, written as documents and read
// again is the same.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		"",
		"--- # x\n...\n%YAML 1.1\n---\n{a: &a [*a]}",
		header + "spec: {provider: local, attributes: &x {1: a}, healthCheck: {interval: 30s, expectedStatus: [204], tls: {<<: *x}}}\n---\n" +
			header + "spec: {mode: External, endpoint: {scheme: http, host: '::1', port: 3128}}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==}\nstringData: {b: !!binary /w==}",
		"apiVersion: crawl.example.com/v1alpha1\nkind: FleetConfiguration\nfleetID: home\nproviders: [{name: a, type: local, config: {x: [1.5, true]}}]",
		`{"apiVersion":"v1","kind":"List","items":[{"kind":"List","apiVersion":"v1"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := read(string(data))
		if err != nil {
			return
		}
		rendered := render(t, set)
		if len(rendered) == 0 {
			return // an empty List: its file has a document, and its set has none
		}
		again, err := read(string(rendered))
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, rendered)
		}
		if diff := cmp.Diff(set, again, sameSet); diff != "" {
			t.Errorf("changed on its way through\n%s\n-before +after:\n%s", rendered, diff)
		}
	})
}

// render writes a set as documents. JSON is YAML.
func render(t *testing.T, set *Set) []byte {
	t.Helper()
	var b bytes.Buffer
	write := func(kind, version string, doc map[string]any) {
		doc["kind"], doc["apiVersion"] = kind, version
		b.WriteString("---\n")
		if err := json.NewEncoder(&b).Encode(doc); err != nil {
			t.Fatal(err)
		}
	}
	for k, d := range set.Proxies {
		meta := map[string]any{"name": k.Name, "namespace": k.Namespace, "annotations": d.Annotations}
		write("Proxy", apiVersion, map[string]any{"metadata": meta, "spec": d.Spec})
	}
	for k, s := range set.Secrets {
		data := map[string][]byte{}
		for key, value := range s.Data {
			data[key] = []byte(value.Reveal())
		}
		meta := map[string]any{"name": k.Name, "namespace": k.Namespace, "labels": s.Labels}
		write("Secret", "v1", map[string]any{"metadata": meta, "data": data})
	}
	if c := set.Configuration; c != nil {
		write("FleetConfiguration", apiVersion, map[string]any{"fleetID": c.FleetID, "healthCheck": c.HealthCheck, "providers": c.Providers})
	}
	return b.Bytes()
}
