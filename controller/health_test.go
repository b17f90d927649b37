package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

func TestHealthWriter(t *testing.T) {
	c := sharedCluster(t)
	cfg := restOf(t, c.Kubeconfig())
	if _, err := c.KubectlInput(t.Context(), `{"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProviderHealth", "metadata": {"name": "theirs"}}`,
		"apply", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	way := newLink(t, cfg)
	var log bytes.Buffer
	w, err := NewHealthWriter(HealthConfig{REST: way.rest, Types: map[string]string{"lab": "kvm", "cloud": "gcp"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	report := func(r monitor.Result) (requests int64) {
		t.Helper()
		before := way.requests.Load()
		if err := w.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return way.requests.Load() - before
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	result := monitor.Result{Provider: "lab", CanCheck: true, Checked: at, Targets: []monitor.Target{
		{TargetStatus: provider.TargetStatus{Target: "host-1", Ready: true, Details: map[string]string{"pool": "default"}}, Since: at.Add(-time.Hour)},
		{TargetStatus: provider.TargetStatus{Target: "host-2", Reason: "Refused", Message: "connection refused"}, Since: at},
	}}
	if n := report(result); n != 3 {
		t.Errorf("the first report took %d requests, want a read, a create and a patch", n)
	}
	want := v1alpha1.ProviderHealthStatus{Type: "kvm", Ready: proxy.False, TargetsReady: "1/2", LastCheckTime: proxy.At(at), Targets: []v1alpha1.TargetHealth{
		{Name: "host-1", Ready: proxy.True, Details: map[string]string{"pool": "default"}, LastTransitionTime: proxy.At(at.Add(-time.Hour))},
		{Name: "host-2", Ready: proxy.False, Reason: "Refused", Message: "connection refused", LastTransitionTime: proxy.At(at)},
	}}
	if diff := cmp.Diff(want, healthOf(t, w, "lab").Status); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// What was said before and is not said again goes.
	result.Targets = result.Targets[1:]
	result.Targets[0].Ready, result.Targets[0].Reason, result.Targets[0].Message = true, "", ""
	result.Checked = at.Add(time.Minute)
	if n := report(result); n != 2 {
		t.Errorf("the second report took %d requests, want a read and a patch", n)
	}
	want = v1alpha1.ProviderHealthStatus{Type: "kvm", Ready: proxy.True, TargetsReady: "1/1", LastCheckTime: proxy.At(result.Checked), Targets: []v1alpha1.TargetHealth{
		{Name: "host-2", Ready: proxy.True, LastTransitionTime: proxy.At(at)}}}
	if diff := cmp.Diff(want, healthOf(t, w, "lab").Status); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	for _, silent := range []monitor.Result{
		{Provider: "lab", CanCheck: true},
		{Provider: "cloud", Checked: at},
		{Provider: "Not_A_Name", CanCheck: true, Checked: at},
		{Provider: "Not_A_Name", CanCheck: true, Checked: at},
	} {
		if n := report(silent); n != 0 {
			t.Errorf("%+v took %d requests, want none", silent, n)
		}
	}
	if n := strings.Count(log.String(), "Not_A_Name"); n != 1 {
		t.Errorf("the log names it %d times:\n%s", n, &log)
	}

	if err := w.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, w); !cmp.Equal(got, []string{"lab", "theirs"}) {
		t.Errorf("after Prune there are %v", got)
	}
	w.cfg.Types = nil
	if err := w.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, w); !cmp.Equal(got, []string{"theirs"}) {
		t.Errorf("after Prune without checks there are %v", got)
	}
}

// Two fleets for the whole cluster show their checks beside each other: each removes its own objects only, and what one has shown
// under a name the other one leaves as it is, and says so once. What an earlier release made has no mark, and is taken over.
func TestHealthOfTwoFleets(t *testing.T) {
	c := sharedCluster(t)
	if _, err := c.Kubectl(t.Context(), "delete", "providerhealths", "--all"); err != nil {
		t.Fatal(err)
	}
	const earlier = `{"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProviderHealth", "metadata": {"name": %q,
"labels": {"app.kubernetes.io/managed-by": "proxyfleet"}}}`
	for _, name := range []string{"early", "left"} {
		if _, err := c.KubectlInput(t.Context(), fmt.Sprintf(earlier, name), "apply", "--filename=-"); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	fleet := func(identity string, providers ...string) *HealthWriter {
		types := map[string]string{}
		for _, name := range providers {
			types[name] = identity
		}
		w, err := NewHealthWriter(HealthConfig{REST: restOf(t, c.Kubeconfig()), Types: types, Fleet: identity, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	begin := func(w *HealthWriter) {
		t.Helper()
		if err := w.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for name := range w.cfg.Types {
				if err := w.Report(t.Context(), monitor.Result{Provider: name, CanCheck: true, Checked: time.Unix(1e9, 0)}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// The first identity is one that could not be a label.
	ours, theirs := fleet("-ours", "early", "gone", "lab"), fleet("theirs", "cloud", "lab")
	stale := healthOf(t, ours, "early")
	begin(ours)
	if h := healthOf(t, ours, "early"); h.Annotations[FleetAnnotation] != "-ours" {
		t.Errorf("what an earlier release made is not marked: %v", h.Annotations)
	}
	begin(theirs)
	delete(ours.cfg.Types, "gone")
	begin(ours)
	begin(theirs)
	if err := theirs.remove(t.Context(), stale); err != nil { // it has listed it, and then it was taken over
		t.Errorf("a removal of what is gone: %v", err)
	}
	got := map[string]string{}
	for _, name := range names(t, ours) {
		h := healthOf(t, ours, name)
		got[name] = h.Annotations[FleetAnnotation] + " shows " + h.Status.Type
	}
	want := map[string]string{"early": "-ours shows -ours", "lab": "-ours shows -ours", "cloud": "theirs shows theirs"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "provider=lab keeper=-ours fleet=theirs") {
		t.Errorf("the log says:\n%s", text)
	}
	for _, w := range []*HealthWriter{ours, theirs} {
		w.cfg.Types = nil
		begin(w)
	}
	if left := names(t, ours); len(left) > 0 {
		t.Errorf("in the end there are %v", left)
	}
}

func healthOf(t *testing.T, w *HealthWriter, name string) *v1alpha1.ProviderHealth {
	t.Helper()
	h := &v1alpha1.ProviderHealth{}
	if err := w.send(t.Context(), w.client.Get().Name(name), h); err != nil {
		t.Fatal(err)
	}
	return h
}

func names(t *testing.T, w *HealthWriter) (all []string) {
	t.Helper()
	list := &v1alpha1.ProviderHealthList{}
	if err := w.send(t.Context(), w.client.Get().VersionedParams(&metav1.ListOptions{}, metav1.ParameterCodec), list); err != nil {
		t.Fatal(err)
	}
	for _, h := range list.Items {
		all = append(all, h.Name)
	}
	return all
}

func TestHealthWriterNeeds(t *testing.T) {
	if _, err := NewHealthWriter(HealthConfig{}); err == nil || !strings.Contains(err.Error(), "REST is required") {
		t.Errorf("the error is %v", err)
	}
}

// A patch has what changed and nothing else, and takes away what went.
func TestChanges(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"nothing", `{"a": 1, "b": {"c": [1]}}`, `{"a": 1, "b": {"c": [1]}}`, `{}`},
		{"a value", `{"a": 1, "b": 2}`, `{"a": 3, "b": 2}`, `{"a":3}`},
		{"a value within", `{"a": {"b": 1, "c": 2}}`, `{"a": {"b": 3, "c": 2}}`, `{"a":{"b":3}}`},
		{"one that is new", `{}`, `{"a": {"b": 1}}`, `{"a":{"b":1}}`},
		{"one that went", `{"a": 1, "b": {"c": 1}}`, `{"a": 1}`, `{"b":null}`},
		{"one within that went", `{"b": {"c": 1, "d": 2}}`, `{"b": {"d": 2}}`, `{"b":{"c":null}}`},
		{"another kind of value", `{"a": 1}`, `{"a": {"b": 1}}`, `{"a":{"b":1}}`},
		{"a list", `{"a": [1, 2]}`, `{"a": [2]}`, `{"a":[2]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var from, to map[string]any
			if err := json.Unmarshal([]byte(c.from), &from); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.to), &to); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(changes(from, to))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}
