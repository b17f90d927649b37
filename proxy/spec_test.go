package proxy_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/proxy"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want proxy.Spec
	}{
		{"managed defaults", proxy.Spec{Provider: "lab"},
			proxy.Spec{Mode: proxy.Managed, Provider: "lab", Port: 3128, MaxLeases: 10}},
		{"external has no port", proxy.Spec{Mode: proxy.External}, proxy.Spec{Mode: proxy.External, MaxLeases: 10}},
		{"what is set stays", proxy.Spec{Mode: proxy.Managed, Port: 1, MaxLeases: 2}, proxy.Spec{Mode: proxy.Managed, Port: 1, MaxLeases: 2}},
		{"keys of credentials",
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, Credentials: &proxy.Credentials{SecretRef: proxy.CredentialsRef{Name: "s"}}},
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, Credentials: &proxy.Credentials{
				SecretRef: proxy.CredentialsRef{Name: "s", UsernameKey: "username", PasswordKey: "password"}}}},
		{"empty things",
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, Attributes: map[string]string{}, Endpoint: &proxy.Endpoint{TLS: &proxy.TLS{}},
				HealthCheck: proxy.HealthCheck{ExpectedStatus: []int32{}}},
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, Endpoint: &proxy.Endpoint{}}},
		{"the health check keeps what was declared",
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, HealthCheck: proxy.HealthCheck{Timeout: 1, TLS: &proxy.TLS{}}},
			proxy.Spec{Mode: proxy.External, MaxLeases: 1, HealthCheck: proxy.HealthCheck{Timeout: 1, TLS: &proxy.TLS{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.in.Clone()
			got := c.in.Canonical()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(got, got.Canonical()); diff != "" {
				t.Errorf("twice is not once:\n%s", diff)
			}
			if diff := cmp.Diff(before, c.in); diff != "" {
				t.Errorf("it changed what it was given:\n%s", diff)
			}
		})
	}
}

// A store that keeps JSON must not see an edit where there is none.
func TestCanonicalSurvivesJSON(t *testing.T) {
	for _, c := range readJudged(t).Valid {
		t.Run(c.Name, func(t *testing.T) {
			want := c.Spec.Canonical()
			b, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var got proxy.Spec
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("read back otherwise:\n%s", cmp.Diff(want, got))
			}
		})
	}
}

func TestWithDefaults(t *testing.T) {
	builtIn := proxy.HealthCheck{
		URL: "https://www.gstatic.com/generate_204", Interval: proxy.Duration(30 * time.Second), Timeout: proxy.Duration(10 * time.Second),
		SuccessThreshold: 1, FailureThreshold: 3, ExpectedStatus: []int32{204},
	}
	own := fill(t, proxy.HealthCheck{}, 1)
	fleet := fill(t, proxy.HealthCheck{}, 2)
	mixed := builtIn
	mixed.Timeout, mixed.Interval = own.Timeout, fleet.Interval
	systemRoots := fleet
	systemRoots.TLS = &proxy.TLS{}
	for _, c := range []struct {
		name             string
		own, fleet, want proxy.HealthCheck
	}{
		{"nothing", proxy.HealthCheck{}, proxy.HealthCheck{}, builtIn},
		{"the fleet's", proxy.HealthCheck{}, fleet, fleet},
		{"its own", own, fleet, own},
		{"some of each", proxy.HealthCheck{Timeout: own.Timeout},
			proxy.HealthCheck{Timeout: fleet.Timeout, Interval: fleet.Interval}, mixed},
		{"an empty TLS is the system's roots", proxy.HealthCheck{TLS: &proxy.TLS{}}, fleet, systemRoots},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.own.WithDefaults(c.fleet)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			shareNothing(t, "HealthCheck", reflect.ValueOf(got), reflect.ValueOf(c.fleet))
			shareNothing(t, "HealthCheck", reflect.ValueOf(got), reflect.ValueOf(c.own))
		})
	}
}

func TestCloneSharesNothing(t *testing.T) {
	p := fill(t, proxy.Proxy{}, 1)
	c := p.Clone()
	if diff := cmp.Diff(&p, c); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
	shareNothing(t, "Proxy", reflect.ValueOf(p), reflect.ValueOf(*c))
}

// fill returns v with something in each field, reached through pointers, slices and maps, so that a field that is added to
// the model cannot be forgotten. Another n gives other things.
func fill[T any](t *testing.T, v T, n int64) T {
	t.Helper()
	set(t, reflect.ValueOf(&v).Elem(), n)
	return v
}

func set(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	if v.Type() == reflect.TypeFor[proxy.Time]() {
		v.Set(reflect.ValueOf(proxy.At(time.Unix(n, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Int32, reflect.Int64:
		v.SetInt(n)
	case reflect.String:
		v.SetString(string(rune('a' + n)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(t, v.Index(0), n)
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		set(t, key, n)
		set(t, elem, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	case reflect.Struct:
		for _, field := range v.Fields() {
			set(t, field, n)
		}
	default:
		t.Fatalf("teach this test about %v", v.Type())
	}
}

// shareNothing walks two values of one shape and finds memory that both reach.
func shareNothing(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if !a.IsNil() && a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
			shareNothing(t, path, a.Elem(), b.Elem())
		}
	case reflect.Struct:
		for i := range a.NumField() {
			shareNothing(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}
