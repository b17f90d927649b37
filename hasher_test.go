package fleet

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// TestHashGolden holds the hashes of this release: an upgrade that changed one would replace every instance.
func TestHashGolden(t *testing.T) {
	h := NewHasher("crawl")
	full := proxy.Spec{Provider: "gcp", Port: 8080,
		Placement: proxy.Placement{Zone: "europe-west4-a", MachineType: "e2-micro", Image: "debian-13", DiskSizeGb: 10}}
	tests := []struct {
		name string
		spec proxy.Spec
		in   proxy.Inputs
		want string
	}{
		{"least", proxy.Spec{Provider: "local"}, proxy.Inputs{}, "v1-346a1245ee803df420549a76eac9d427"},
		{"placed", full, proxy.Inputs{}, "v1-af5b6e4e6eeea229559372437850df92"},
		{"with a password", full, proxy.Inputs{Username: secret.New("user"), Password: secret.New("pass")}, "v1-0b766306aa1bb72661ac90810204c70c"},
		{"with user data", full, proxy.Inputs{CloudInit: secret.New("#cloud-config\n")}, "v1-72f9ac2cc04ef42dc1a084fd96023984"},
	}
	for _, test := range tests {
		if got := h.Hash("uid-1", test.spec, test.in); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	endpoint := proxy.Endpoint{Scheme: proxy.SOCKS5, Host: "gw.example.net", Port: 1080}
	if got := h.Endpoint("uid-1", endpoint, secret.New("user")); got != "external-204c38d8f9372cb76352f01bd53b43a0" {
		t.Errorf("endpoint: %s", got)
	}
}

// shaping says of each field of a spec whether it shapes the instance. Whoever adds a field to the spec adds a row: a field
// that shapes the instance goes into the hash, for otherwise an edit of it would change nothing.
var shaping = map[string]bool{
	"Mode":                  false, // cannot be changed
	"Provider":              true,
	"Placement.Zone":        true,
	"Placement.MachineType": true,
	"Placement.Image":       true,
	"Placement.DiskSizeGb":  true,
	"CloudInit":             false, // what it leads to does
	"Credentials":           false, // what they lead to does
	"Port":                  true,
	"Endpoint":              false, // External ones have no instance
	"Attributes":            false,
	"MaxLeases":             false,
	"HealthCheck":           false,
}

func TestHashFields(t *testing.T) {
	h := NewHasher("crawl")
	base := proxy.Spec{Provider: "local", Port: 3128}
	before := h.Hash("uid-1", base, proxy.Inputs{})
	seen := map[string]bool{}
	var visit func(path string, index []int, of reflect.Type)
	visit = func(path string, index []int, of reflect.Type) {
		for i := range of.NumField() {
			f := of.Field(i)
			name, at := path+f.Name, append(append([]int(nil), index...), i)
			if f.Type == reflect.TypeFor[proxy.Placement]() {
				visit(name+".", at, f.Type)
				continue
			}
			seen[name] = true
			shapes, known := shaping[name]
			if !known {
				t.Errorf("%s: say in the table whether it shapes the instance", name)
				continue
			}
			spec := base.Clone()
			set(t, reflect.ValueOf(&spec).Elem().FieldByIndex(at))
			if changed := h.Hash("uid-1", spec, proxy.Inputs{}) != before; changed != shapes {
				t.Errorf("%s: an edit changes the hash: %v, want %v", name, changed, shapes)
			}
		}
	}
	visit("", nil, reflect.TypeFor[proxy.Spec]())
	for name := range shaping {
		if !seen[name] {
			t.Errorf("%s: is in the table, and in no spec", name)
		}
	}
}

// set gives a field some value other than its zero value.
func set(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("other")
	case reflect.Int32, reflect.Int64:
		v.SetInt(8080)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.Struct:
		set(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %v: teach this function", v.Kind())
	}
}

func TestHashInputs(t *testing.T) {
	spec := proxy.Spec{Provider: "local"}
	text := secret.New
	distinct := map[string]string{}
	add := func(what, hash string) {
		for other, is := range distinct {
			if is == hash {
				t.Errorf("%s and %s have one hash", what, other)
			}
		}
		distinct[what] = hash
	}
	h := NewHasher("crawl")
	add("nothing", h.Hash("uid-1", spec, proxy.Inputs{}))
	add("user data", h.Hash("uid-1", spec, proxy.Inputs{CloudInit: text("x")}))
	add("a user", h.Hash("uid-1", spec, proxy.Inputs{Username: text("x")}))
	add("a password", h.Hash("uid-1", spec, proxy.Inputs{Password: text("x")}))
	add("user ab, password c", h.Hash("uid-1", spec, proxy.Inputs{Username: text("ab"), Password: text("c")}))
	add("user a, password bc", h.Hash("uid-1", spec, proxy.Inputs{Username: text("a"), Password: text("bc")}))
	add("the same password of another proxy", h.Hash("uid-2", spec, proxy.Inputs{Password: text("x")}))
	add("the same password in another fleet", NewHasher("other").Hash("uid-1", spec, proxy.Inputs{Password: text("x")}))
	add("the same user of an endpoint", h.Endpoint("uid-1", proxy.Endpoint{}, text("x")))
	add("the same user of another proxy's endpoint", h.Endpoint("uid-2", proxy.Endpoint{}, text("x")))
	add("an endpoint without a user", h.Endpoint("uid-1", proxy.Endpoint{}, secret.Text{}))

	if a, b := h.Hash("uid-1", spec, proxy.Inputs{}), h.Hash("uid-2", spec, proxy.Inputs{}); a != b {
		t.Error("without secrets, two proxies that are alike have two hashes")
	}
	again := NewHasher("crawl").Hash("uid-1", spec, proxy.Inputs{Password: text("x")})
	if again != distinct["a password"] {
		t.Error("another process hashes otherwise")
	}
	for what, hash := range distinct {
		if !label.MatchString(hash) {
			t.Errorf("%s: %q does not fit into a label", what, hash)
		}
	}
}

// TestHashDefaults: what a spec leaves out and what it gives as the default are one.
func TestHashDefaults(t *testing.T) {
	h := NewHasher("crawl")
	short, long := proxy.Spec{Provider: "local"}, proxy.Spec{Mode: proxy.Managed, Provider: "local", Port: 3128, MaxLeases: 10}
	if a, b := h.Hash("uid-1", short, proxy.Inputs{}), h.Hash("uid-1", long, proxy.Inputs{}); a != b {
		t.Errorf("%s without and %s with the defaults", a, b)
	}
}

// TestShapeLeavesOut: a field that is not used is not in what is hashed, so that a field that a later release adds changes
// no hash.
func TestShapeLeavesOut(t *testing.T) {
	if a, b := digest(shape{}), digest(struct{}{}); a != b {
		t.Errorf("%s of a shape without anything, %s of nothing", a, b)
	}
	type later struct {
		Provider string `json:"provider,omitempty"`
		Port     int32  `json:"port,omitempty"`
		Firmware string `json:"firmware,omitempty"`
	}
	if a, b := digest(shape{Provider: "local", Port: 1}), digest(later{Provider: "local", Port: 1}); a != b {
		t.Errorf("%s of this release, %s of a later one", a, b)
	}
}

func TestMatches(t *testing.T) {
	h := NewHasher("crawl")
	spec := proxy.Spec{Provider: "local"}
	own := h.Hash("uid-1", spec, proxy.Inputs{})
	for mark, want := range map[string]bool{
		own: true,
		h.Hash("uid-1", proxy.Spec{}, proxy.Inputs{}): false,
		strings.ToUpper(own):                          false,
		"":                                            false,
		"v1-":                                         false,
		"v0-abc":                                      false,
		"v-abc":                                       false,
		"v01-abc":                                     false,
		"v02-abc":                                     false,
		"abc":                                         false,
		"2-abc":                                       false,
		"v2":                                          false,
		"vv2-abc":                                     false,
		"v2x-abc":                                     false,
		"v-2-abc":                                     false,
		"v2-abc":                                      true,
		"v2-":                                         true,
		"v9-abc":                                      true,
		"v10-abc":                                     true,
		"v11-abc":                                     true,
	} {
		if got := h.Matches(mark, "uid-1", spec, proxy.Inputs{}); got != want {
			t.Errorf("%q matches: %v, want %v", mark, got, want)
		}
	}
}

// TestHashCache: what was computed is kept, up to a bound, and by digest only.
func TestHashCache(t *testing.T) {
	h := NewHasher("crawl")
	in := proxy.Inputs{Password: secret.New("planted-password")}
	first := h.Hash("uid-1", proxy.Spec{}, in)
	if allocs := testing.AllocsPerRun(10, func() { h.Hash("uid-1", proxy.Spec{}, in) }); allocs > 100 || len(h.stretched) != 1 {
		t.Errorf("%v allocations and %d entries for the same inputs", allocs, len(h.stretched))
	}
	if dump := fmt.Sprintf("%v %q", h.stretched, h.stretched); strings.Contains(dump, "planted-password") {
		t.Error("the cache holds the password")
	}
	for i := len(h.stretched); i < maxStretched; i++ {
		h.stretched[[32]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}] = "x"
	}
	h.Hash("uid-2", proxy.Spec{}, in)
	if n := len(h.stretched); n > maxStretched {
		t.Errorf("%d entries, more than %d", n, maxStretched)
	}
	if again := h.Hash("uid-1", proxy.Spec{}, in); again != first {
		t.Errorf("%s before and %s after the cache was full", first, again)
	}
}

var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

func FuzzHash(f *testing.F) {
	f.Add("uid-1", "local", "", "", "", int64(0), int32(0), "", "", "")
	f.Add("uid-1", "gcp", "europe-west4-a", "e2-micro", "debian-13", int64(10), int32(3128), "#cloud-config", "user", "pa:ss")
	f.Add("\x00", "\xff", "\"", "{}", "世", int64(-1), int32(-1), "\x00", "\xff\xfe", strings.Repeat("x", 300))
	h := NewHasher("crawl")
	f.Fuzz(func(t *testing.T, uid, prov, zone, machine, image string, disk int64, port int32, cloudInit, user, password string) {
		spec := proxy.Spec{Provider: prov, Port: port,
			Placement: proxy.Placement{Zone: zone, MachineType: machine, Image: image, DiskSizeGb: disk}}
		in := proxy.Inputs{CloudInit: secret.New(cloudInit), Username: secret.New(user), Password: secret.New(password)}
		hash := h.Hash(uid, spec, in)
		if !label.MatchString(hash) || !strings.HasPrefix(hash, "v1-") {
			t.Fatalf("%q does not fit into a label", hash)
		}
		equal := spec.Canonical()
		equal.Attributes, equal.MaxLeases = map[string]string{zone: image}, 3
		if again := h.Hash(uid, equal, in); again != hash {
			t.Fatalf("%s and %s for what is the same", hash, again)
		}
		if !h.Matches(hash, uid, spec, in) {
			t.Fatalf("%s does not match itself", hash)
		}
		_ = h.Matches(zone, uid, spec, in)
		rotated := in
		rotated.Password = secret.New(password + "x")
		if h.Matches(hash, uid, spec, rotated) {
			t.Fatalf("%s matches another password", hash)
		}
	})
}
