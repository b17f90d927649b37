package v1alpha1_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/internal/cluster"
)

// server is a real API server that has the CustomResourceDefinitions.
type server struct {
	*cluster.Cluster
	rest *rest.RESTClient
}

// TestAPIServer is all that needs one.
func TestAPIServer(t *testing.T) {
	s := start(t)
	t.Run("takes specs that are valid", s.takesValid)
	t.Run("refuses specs that are not", s.refusesInvalid)
	t.Run("judges edits as Go does", s.judgesEdits)
	t.Run("judges odd texts as Go does", s.judgesOddTexts)
	t.Run("judges names as Go does", s.judgesNames)
	t.Run("fills in the defaults that are fixed", s.fillsIn)
	t.Run("takes the documents of the examples", s.takesExamples)
	t.Run("counts edits of the spec alone", s.countsEdits)
	t.Run("keeps a status", s.keepsStatus)
	t.Run("keeps no time that cannot be read", s.refusesTimes)
	t.Run("quotes no password", s.quotesNoPassword)
	t.Run("shows columns", s.showsColumns)
}

func start(t *testing.T) *server {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.KubectlInput(t.Context(), string(v1alpha1.CRDs()), "apply", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "wait", "--for=condition=established", "--all", "crd", "--timeout=30s"); err != nil {
		t.Fatal(err)
	}
	return &server{c, client(t, c.Kubeconfig())}
}

func client(t *testing.T, kubeconfig string) *rest.RESTClient {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	version := v1alpha1.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &version, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.QPS, cfg.Timeout = -1, 30*time.Second
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// document returns a Proxy as it is in a file.
func document(name string, spec json.RawMessage) []byte {
	b, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(),
		"kind":       "Proxy",
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	})
	if err != nil {
		panic(err) // the spec was read from JSON
	}
	return b
}

// post sends a document, with unknown fields refused, as kubectl does.
func (s *server) post(doc []byte) *rest.Request {
	return s.rest.Post().Namespace("default").Resource("proxies").Param("fieldValidation", "Strict").Body(doc)
}

// judge returns what the object would be, and creates none.
func (s *server) judge(t *testing.T, doc []byte) (*v1alpha1.Proxy, error) {
	t.Helper()
	p := new(v1alpha1.Proxy)
	return p, s.post(doc).Param("dryRun", "All").Do(t.Context()).Into(p)
}

// create makes a proxy. It goes with the cluster.
func (s *server) create(t *testing.T, doc []byte) *v1alpha1.Proxy {
	t.Helper()
	p := new(v1alpha1.Proxy)
	if err := s.post(doc).Do(t.Context()).Into(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// replace puts another spec in the place of a proxy's.
func (s *server) replace(t *testing.T, p *v1alpha1.Proxy, spec json.RawMessage) (*v1alpha1.Proxy, error) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(),
		"kind":       "Proxy",
		"metadata":   map[string]any{"name": p.Name, "resourceVersion": p.ResourceVersion},
		"spec":       spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	replaced := new(v1alpha1.Proxy)
	put := s.rest.Put().Namespace("default").Resource("proxies").Name(p.Name).Param("fieldValidation", "Strict")
	return replaced, put.Body(b).Do(t.Context()).Into(replaced)
}

// patch merges a part into a proxy, or into its status.
func (s *server) patch(t *testing.T, p *v1alpha1.Proxy, part any, subresource ...string) (*v1alpha1.Proxy, error) {
	t.Helper()
	b, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	patched := new(v1alpha1.Proxy)
	patch := s.rest.Patch(types.MergePatchType).Namespace("default").Resource("proxies").Name(p.Name).SubResource(subresource...)
	return patched, patch.Body(b).Do(t.Context()).Into(patched)
}

// wantRefused wants an API server to name these fields, and no others. When the shape is wrong it does not look at the rules,
// and says so: then some of them will do.
func wantRefused(t *testing.T, err error, fields []string) {
	t.Helper()
	got, partly := refused(t, err)
	want := slices.Sorted(slices.Values(fields))
	if partly {
		want = slices.DeleteFunc(want, func(f string) bool { return !slices.Contains(got, f) })
	}
	if len(got) == 0 || !slices.Equal(want, got) {
		t.Errorf("the refusal names %q, want %q: %v", got, fields, err)
	}
}

var (
	unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)
	badNumber    = regexp.MustCompile(`must be of type integer with format int(?:32|64) in (\S+)$`)
)

// refused returns the fields that an API server names when it does not take an object, and whether it looked at a part only.
func refused(t *testing.T, err error) (fields []string, partly bool) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("%v is no refusal", err)
	}
	for _, m := range unknownField.FindAllStringSubmatch(status.ErrStatus.Message, -1) {
		fields = append(fields, m[1])
	}
	if status.ErrStatus.Details == nil {
		return fields, false
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			partly = true
			continue
		}
		field := cause.Field
		if m := badNumber.FindStringSubmatch(cause.Message); m != nil {
			field = m[1]
		}
		fields = append(fields, withoutIndex(field))
	}
	slices.Sort(fields)
	return slices.Compact(fields), partly
}
