// Package deploy has only tests: of the image, of what kustomize and Helm make of these folders, and of both on an API server.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// patience bounds whatever a test waits for: tools that have to be compiled first among it.
const patience = 12 * time.Minute

// module is the root of this module, seen from this package.
const module = ".."

// attempt runs one of the tools that read these folders, which tools/deploy pins. The first run of one compiles it.
func attempt(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(withTimeout(t), "go", append([]string{"tool", "-modfile=tools/deploy/go.mod"}, args...)...)
	cmd.Dir = module
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// tool is attempt for what must succeed.
func tool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := attempt(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kustomized is what kustomize makes of a folder of the module.
func kustomized(t *testing.T, folder string) string {
	t.Helper()
	return tool(t, "kustomize", "build", folder)
}

// charted is what Helm makes of the chart.
func charted(t *testing.T, flags ...string) string {
	t.Helper()
	return tool(t, append([]string{"helm", "template", "proxyfleet", "deploy/helm/proxyfleet", "--namespace", "proxyfleet"}, flags...)...)
}

// overlay writes an installation of somebody's own into a folder of the test, and returns it as the module sees it. Paths in it
// begin at the module.
func overlay(t *testing.T, kustomization string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(module)
	if err != nil {
		t.Fatal(err)
	}
	up, err := filepath.Rel(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(kustomization, "MODULE", up)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// objects are what documents declare, by kind, namespace and name.
type objects map[string]map[string]any

func parse(t *testing.T, documents string) objects {
	t.Helper()
	all := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		var o unstructured.Unstructured
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if !o.IsList() {
			all.add(t, o)
			continue
		}
		list, err := o.ToList()
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			all.add(t, item)
		}
	}
}

func (all objects) add(t *testing.T, o unstructured.Unstructured) {
	t.Helper()
	if len(o.Object) == 0 {
		return
	}
	id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	if all[id] != nil {
		t.Fatalf("%s is there twice", id)
	}
	all[id] = o.Object
}

// hashed is the name that kustomize gives a ConfigMap by its content.
var hashed = regexp.MustCompile(`proxyfleet-config-[a-z0-9]{10}`)

// plain takes away what kustomize and Helm do each in its own way: the namespaces, which Helm leaves to others, that new content of
// the ConfigMap makes new pods, and that CRDs outlive a release.
func (all objects) plain(t *testing.T) objects {
	t.Helper()
	delete(all, "Namespace /proxyfleet")
	delete(all, "Namespace /proxies")
	for _, o := range all {
		drop(o, "helm.sh/resource-policy", "metadata", "annotations")
		drop(o, "checksum/fleet", "spec", "template", "metadata", "annotations")
		if o["kind"] != "ConfigMap" {
			continue
		}
		data := o["data"].(map[string]any)
		var fleet map[string]any
		if err := yaml.Unmarshal([]byte(data["fleet.yaml"].(string)), &fleet); err != nil {
			t.Fatal(err)
		}
		data["fleet.yaml"] = fleet
	}
	return all
}

// drop removes a field, and then the object that held it if nothing is left in it.
func drop(object map[string]any, field string, path ...string) {
	holder, found, err := unstructured.NestedMap(object, path...)
	if !found || err != nil {
		return
	}
	delete(holder, field)
	if len(holder) == 0 {
		unstructured.RemoveNestedField(object, path...)
	} else if err := unstructured.SetNestedMap(object, holder, path...); err != nil {
		panic(err)
	}
}

// withTimeout bounds what a test waits for.
func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
