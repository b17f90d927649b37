package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/proxy"
)

func (s *server) countsEdits(t *testing.T) {
	p := s.create(t, document("counted", json.RawMessage(`{"provider": "lab"}`)))
	for _, c := range []struct {
		what string
		do   func() (*v1alpha1.Proxy, error)
		want int64
	}{
		{"a status", func() (*v1alpha1.Proxy, error) {
			return s.patch(t, p, map[string]any{"status": proxy.Status{Phase: proxy.Ready}}, "status")
		}, 1},
		{"an annotation", func() (*v1alpha1.Proxy, error) {
			return s.patch(t, p, map[string]any{"metadata": map[string]any{"annotations": map[string]string{"a": "b"}}})
		}, 1},
		{"the spec as it was, with a default spelled out", func() (*v1alpha1.Proxy, error) {
			return s.replace(t, p, json.RawMessage(`{"provider": "lab", "maxLeases": 10}`))
		}, 1},
		{"another spec", func() (*v1alpha1.Proxy, error) {
			return s.replace(t, p, json.RawMessage(`{"provider": "lab", "maxLeases": 11}`))
		}, 2},
	} {
		var err error
		if p, err = c.do(); err != nil {
			t.Fatal(c.what, err)
		}
		if p.Generation != c.want {
			t.Errorf("after %s the generation is %d, want %d", c.what, p.Generation, c.want)
		}
	}
}

// fullStatus has every field set.
func fullStatus(t *testing.T) proxy.Status {
	t.Helper()
	var s proxy.Status
	fill(reflect.ValueOf(&s).Elem())
	at := proxy.At(time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC))
	s.LastHealthCheckTime, s.FirstReadyTime, s.Instance.Planned, s.Instance.Retry = at, at, at, at
	s.Conditions = []proxy.Condition{
		{Type: proxy.Healthy, Status: proxy.True, Reason: "ProbeSucceeded", Message: "ok", LastTransitionTime: at},
		{Type: proxy.Provisioned, Status: proxy.Unknown},
	}
	if v := reflect.ValueOf(s); slices.ContainsFunc(fields(v), reflect.Value.IsZero) || slices.ContainsFunc(fields(v.FieldByName("Instance")), reflect.Value.IsZero) {
		t.Fatalf("not every field is set: %+v", s)
	}
	return s
}

func fields(v reflect.Value) (all []reflect.Value) {
	for _, field := range v.Fields() {
		all = append(all, field)
	}
	return all
}

func (s *server) keepsStatus(t *testing.T) {
	p := s.create(t, document("full", json.RawMessage(`{"provider": "lab"}`)))
	want := fullStatus(t)
	if _, err := s.patch(t, p, map[string]any{"status": want}, "status"); err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.Proxy
	if err := s.rest.Get().Namespace("default").Resource("proxies").Name(p.Name).Do(t.Context()).Into(&got); err != nil {
		t.Fatal(err)
	}
	if !got.Status.Equal(want) {
		t.Errorf("status (-written +kept):\n%+v\n%+v", want, got.Status)
	}
	emptied, err := s.patch(t, p, map[string]any{"status": nil}, "status")
	if err != nil || !emptied.Status.Equal(proxy.Status{}) {
		t.Errorf("emptied: %+v, %v", emptied.Status, err)
	}
}

// A single time in a single status that Go cannot read would keep every object from the fleet.
func (s *server) refusesTimes(t *testing.T) {
	p := s.create(t, document("timed", json.RawMessage(`{"provider": "lab"}`)))
	for text, taken := range map[string]bool{
		"2026-01-02T03:04:05Z":      true,
		"0000-01-01T00:00:00Z":      true,
		"9999-12-31T23:59:59Z":      true,
		"9999-12-31T23:59:59-01:00": false,
		"2026-01-02T03:04:05.5Z":    false,
		"2026-01-02t03:04:05z":      false,
		"2026-01-02 03:04:05Z":      false,
		"2026-01-02":                false,
		"2026-02-30T00:00:00Z":      false,
		"2026-01-02T24:00:00Z":      false,
		"2026-06-30T23:59:60Z":      false,
		"soon":                      false,
		"":                          false,
	} {
		patched, err := s.patch(t, p, map[string]any{"status": map[string]string{"firstReadyTime": text}}, "status")
		switch {
		case taken && (err != nil || patched.Status.FirstReadyTime.String() != text):
			t.Errorf("%q became %v, %v", text, patched.Status.FirstReadyTime, err)
		case !taken && !apierrors.IsInvalid(err):
			t.Errorf("%q is taken: %v", text, err)
		}
	}
}

// People paste the URL of a proxy, password and all, into the wrong field, and what an API server says is logged.
func (s *server) quotesNoPassword(t *testing.T) {
	const password = "hunter2"
	for _, spec := range []string{
		`{"mode": "External", "endpoint": {"scheme": "http", "host": "http://me:hunter2@gw:3128", "port": 3128}}`,
		`{"provider": "p", "healthCheck": {"url": "http://me:hunter2@gw"}}`,
		`{"provider": "p", "healthCheck": {"url": "ftp://me:hunter2@gw"}}`,
		`{"provider": "p", "healthCheck": {"url": "http://me!hunter2/"}}`,
		`{"provider": "p", "healthCheck": {"url": "http://hunter2:0/"}}`,
	} {
		if _, err := s.judge(t, document("test", json.RawMessage(spec))); err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func (s *server) showsColumns(t *testing.T) {
	p := s.create(t, document("seen", json.RawMessage(`{"provider": "lab"}`)))
	if _, err := s.patch(t, p, map[string]any{"status": proxy.Status{Phase: proxy.Ready, LatencyMillis: 87,
		Conditions: []proxy.Condition{{Type: proxy.Healthy, Status: proxy.True}, {Type: proxy.Provisioned, Status: proxy.False, Message: "booting"}},
		Instance:   proxy.Instance{Host: "192.0.2.7"}}}, "status"); err != nil {
		t.Fatal(err)
	}
	s.createHealth(t)
	for kind, want := range map[string][]string{
		"proxies":               {"NAME PHASE PROVIDER IP LATENCY HEALTHY AGE", "seen Ready lab 192.0.2.7 87 True"},
		"proxies --output=wide": {"HEALTHY AGE MESSAGE", " booting"},
		"ph":                    {"NAME TYPE READY TARGETS LAST CHECK AGE", "lab kvm False 1/2 150m"},
	} {
		out, err := s.Kubectl(t.Context(), append([]string{"get"}, strings.Fields(kind)...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("kubectl get %s\n%s", kind, out)
		for _, line := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " ")+" ", line+" ") {
				t.Errorf("kubectl get %s does not show %q:\n%s", kind, line, out)
			}
		}
	}
	if out, err := s.Kubectl(t.Context(), "get", "proxies,ph"); err != nil {
		t.Error(out, err)
	}
}

// createHealth creates a ProviderHealth and writes its status, which is kept as it is.
func (s *server) createHealth(t *testing.T) {
	t.Helper()
	h := &v1alpha1.ProviderHealth{Status: v1alpha1.ProviderHealthStatus{Type: "gcp"}}
	h.Name = "lab"
	made := new(v1alpha1.ProviderHealth)
	if err := s.rest.Post().Resource("providerhealths").Body(h).Do(t.Context()).Into(made); err != nil {
		t.Fatal(err)
	}
	if made.Status.Type != "" {
		t.Error("a status is taken from who creates the object")
	}
	at := proxy.At(time.Now().Add(-150 * time.Minute))
	want := v1alpha1.ProviderHealthStatus{Type: "kvm", Ready: proxy.False, TargetsReady: "1/2", LastCheckTime: at, Targets: []v1alpha1.TargetHealth{
		{Name: "host-1", Ready: proxy.True, Details: map[string]string{"libvirtVersion": "11.3.0"}, LastTransitionTime: at},
		{Name: "host-2", Ready: proxy.False, Reason: "DialFailed", Message: "connection refused", LastTransitionTime: at},
	}}
	b, err := json.Marshal(map[string]any{"status": want})
	if err != nil {
		t.Fatal(err)
	}
	patched := new(v1alpha1.ProviderHealth)
	patch := s.rest.Patch(types.MergePatchType).Resource("providerhealths").Name("lab").SubResource("status")
	if err := patch.Body(b).Do(t.Context()).Into(patched); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, patched.Status); diff != "" {
		t.Errorf("status (-written +kept):\n%s", diff)
	}
}

func TestDeepCopiesShareNothing(t *testing.T) {
	for _, o := range []runtime.Object{&v1alpha1.Proxy{}, &v1alpha1.ProxyList{}, &v1alpha1.ProviderHealth{}, &v1alpha1.ProviderHealthList{}} {
		t.Run(reflect.TypeOf(o).Elem().Name(), func(t *testing.T) {
			fill(reflect.ValueOf(o).Elem())
			c := o.DeepCopyObject()
			if !reflect.DeepEqual(o, c) {
				t.Errorf("the copy is another:\n%+v\n%+v", o, c)
			}
			apart(t, reflect.TypeOf(o).Elem().Name(), reflect.ValueOf(o), reflect.ValueOf(c))
		})
	}
}

// fill sets all exported fields, with one element in each map and list.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range fields(v) {
			if field.CanSet() {
				fill(field)
			}
		}
	}
}

// apart finds what two values have in common in memory.
func apart(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if !a.IsNil() && a.UnsafePointer() == b.UnsafePointer() {
			t.Errorf("%s is shared", path)
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		if !a.IsNil() {
			apart(t, path, a.Elem(), b.Elem())
		}
	case reflect.Slice:
		for i := range a.Len() {
			apart(t, path+"[]", a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if field := a.Type().Field(i); field.IsExported() {
				apart(t, path+"."+field.Name, a.Field(i), b.Field(i))
			}
		}
	}
}

// What was read is written so that it is read as the same again.
func FuzzProxyAsJSON(f *testing.F) {
	var full v1alpha1.Proxy
	fill(reflect.ValueOf(&full.Spec).Elem())
	fill(reflect.ValueOf(&full.Status).Elem())
	seed, err := json.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"spec": {"healthCheck": {"interval": "-0", "timeout": "1h"}}, "status": {"firstReadyTime": "0000-01-01T00:00:00+01:00"}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var first, second v1alpha1.Proxy
		if json.Unmarshal(doc, &first) != nil {
			return
		}
		first.ObjectMeta.Reset() // Kubernetes' own
		written, err := json.Marshal(first.DeepCopy())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if err := json.Unmarshal(written, &second); err != nil {
			t.Fatalf("%s cannot be read: %v", written, err)
		}
		if diff := cmp.Diff(first.Spec.Canonical(), second.Spec.Canonical()); diff != "" {
			t.Errorf("spec:\n%s", diff)
		}
		again, err := json.Marshal(second)
		if err != nil || string(again) != string(written) {
			t.Errorf("written as\n%s\nand then as\n%s, %v", written, again, err)
		}
	})
}
