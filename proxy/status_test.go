package proxy_test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
)

func TestStatusEqualSeesEveryField(t *testing.T) {
	s := fill(t, proxy.Status{}, 1)
	if !s.Equal(s.Clone()) {
		t.Fatal("a copy is not equal")
	}
	leaves := 0
	var visit func(path string, at func(*proxy.Status) reflect.Value)
	visit = func(path string, at func(*proxy.Status) reflect.Value) {
		v := at(&s)
		switch {
		case v.Type() != reflect.TypeFor[proxy.Time]() && v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				visit(path+"."+v.Type().Field(i).Name, func(s *proxy.Status) reflect.Value { return at(s).Field(i) })
			}
		case v.Kind() == reflect.Slice:
			visit(path+"[0]", func(s *proxy.Status) reflect.Value { return at(s).Index(0) })
		default:
			leaves++
			o := s.Clone()
			set(t, at(&o), 2)
			if s.Equal(o) || o.Equal(s) {
				t.Errorf("a change of %s is not seen", path)
			}
		}
	}
	visit("Status", func(s *proxy.Status) reflect.Value { return reflect.ValueOf(s).Elem() })
	if leaves < 20 {
		t.Errorf("only %d fields were tried", leaves)
	}

	longer := s.Clone()
	longer.Conditions = append(longer.Conditions, proxy.Condition{Type: proxy.Resolved})
	if s.Equal(longer) {
		t.Error("a condition more is not seen")
	}
	if !(proxy.Status{}).Equal(proxy.Status{Conditions: []proxy.Condition{}}) {
		t.Error("no conditions differ from none")
	}
}

func TestStatusJSON(t *testing.T) {
	for name, s := range map[string]proxy.Status{"empty": {}, "full": fill(t, proxy.Status{}, 1)} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var got proxy.Status
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			if !s.Equal(got) {
				t.Errorf("read back otherwise (-want +got):\n%s", cmp.Diff(s, got))
			}
			if name == "empty" && string(b) != "{}" {
				t.Errorf("written as %s", b)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	at := func(sec int64) proxy.Time { return proxy.At(time.Unix(sec, 0)) }
	var s proxy.Status
	if c, ok := s.Condition(proxy.Healthy); ok || c.Type != proxy.Healthy || c.Status != proxy.Unknown {
		t.Errorf("a condition that is not there: %+v, %v", c, ok)
	}
	for i, c := range []proxy.ConditionType{proxy.Resolved, proxy.Healthy, proxy.Provisioned} {
		s.SetCondition(proxy.Condition{Type: c, Status: proxy.False, Reason: strconv.Itoa(i), LastTransitionTime: at(1)})
	}
	s.SetCondition(proxy.Condition{Type: proxy.Provisioned, Status: proxy.False, Reason: "Same", LastTransitionTime: at(2)})
	s.SetCondition(proxy.Condition{Type: proxy.Resolved, Status: proxy.True, Reason: "Other", LastTransitionTime: at(3)})
	want := []proxy.Condition{
		{Type: proxy.Healthy, Status: proxy.False, Reason: "1", LastTransitionTime: at(1)},
		{Type: proxy.Provisioned, Status: proxy.False, Reason: "Same", LastTransitionTime: at(1)},
		{Type: proxy.Resolved, Status: proxy.True, Reason: "Other", LastTransitionTime: at(3)},
	}
	if diff := cmp.Diff(want, s.Conditions); diff != "" {
		t.Errorf("after setting (-want +got):\n%s", diff)
	}
	if c, ok := s.Condition(proxy.Provisioned); !ok || c != want[1] {
		t.Errorf("Condition(Provisioned) = %+v, %v", c, ok)
	}
	s.RemoveCondition(proxy.Provisioned)
	s.RemoveCondition(proxy.Provisioned)
	if diff := cmp.Diff([]proxy.Condition{want[0], want[2]}, s.Conditions); diff != "" {
		t.Errorf("after removing (-want +got):\n%s", diff)
	}
}
