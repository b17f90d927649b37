package provider_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/provider"
)

// common is embedded, as what two configurations share may be.
type common struct {
	Project string `json:"project"`
}

type host struct {
	Address netip.Addr        `json:"address"`
	Labels  map[string]string `json:"labels,omitempty"`
	Secret  string            `json:"-"`
}

type config struct {
	common
	Addresses []string            `json:"addresses"`
	Hosts     []*host             `json:"hosts,omitempty"`
	ByZone    map[string]host     `json:"byZone,omitempty"`
	Limits    *struct{ Most int } `json:"limits,omitempty"`
	Raw       json.RawMessage     `json:"raw,omitempty"`
	Any       any                 `json:"any,omitempty"`
}

func TestDecodeConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       config
	}{
		{"absent", ``, config{}},
		{"blank", " \n", config{}},
		{"null", `null`, config{}},
		{"empty", `{}`, config{}},
		{"embedded", `{"project":"p"}`, config{common: common{Project: "p"}}},
		{"list", `{"addresses":["a","b"]}`, config{Addresses: []string{"a", "b"}}},
		{"nested", `{"hosts":[{"address":"127.0.0.1","labels":{"any":"name"}},null]}`,
			config{Hosts: []*host{{Address: netip.MustParseAddr("127.0.0.1"), Labels: map[string]string{"any": "name"}}, nil}}},
		{"map", `{"byZone":{"z":{"labels":null}}}`, config{ByZone: map[string]host{"z": {}}}},
		{"field without a tag", `{"limits":{"Most":3}}`, config{Limits: &struct{ Most int }{3}}},
		{"free form", `{"raw":{"x":{"y":1}},"any":{"z":[{}]}}`,
			config{Raw: json.RawMessage(`{"x":{"y":1}}`), Any: map[string]any{"z": []any{map[string]any{}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got config
			if err := provider.DecodeConfig(json.RawMessage(c.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(config{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"unknown field", `{"adresses":[]}`, []string{"config.adresses: there is no such field; the fields are addresses, any, byZone, hosts, limits, project, raw"}},
		{"another case", `{"Addresses":[]}`, []string{"config.Addresses: there is no such field"}},
		{"nested in a list", `{"hosts":[{},{"port":1}]}`, []string{"config.hosts[1].port: there is no such field; the fields are address, labels"}},
		{"nested in a map", `{"byZone":{"z":{"port":1}}}`, []string{"config.byZone.z.port: there is no such field"}},
		{"field that JSON may not set", `{"hosts":[{"Secret":"x"}]}`, []string{"config.hosts[0].Secret: there is no such field"}},
		{"twice", `{"project":"a","project":"b"}`, []string{"config.project: the field stands there twice"}},
		{"several", `{"a":1,"hosts":[{"b":{"c":2}}],"project":"x","d":[]}`, []string{"config.a:", "config.hosts[0].b:", "config.d:"}},
		{"trailing value", `{} {}`, []string{"config: ", "after top-level value"}},
		{"trailing brace", `{}}`, []string{"config: ", "after top-level value"}},
		{"cut off", `{"project":`, []string{"config: ", "unexpected end"}},
		{"another kind", `["a"]`, []string{"config: ", "cannot unmarshal array"}},
		{"another kind of field", `{"addresses":"a"}`, []string{"config: ", "addresses"}},
		{"not JSON", `addresses: []`, []string{"config: ", "invalid character"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := provider.DecodeConfig(json.RawMessage(c.text), new(config))
			if err == nil {
				t.Fatal("DecodeConfig returned no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// What is accepted is accepted by a plain strict decoder too, and survives a round trip.
func FuzzDecodeConfig(f *testing.F) {
	for _, text := range []string{
		``, `null`, `{}`, `{"project":"p","addresses":["a"],"hosts":[{"address":"::1"}]}`, `{"Project":1}`, `{"a":{"b":[]}}`,
		`{"byZone":{"":{}}}`, `{"limits":{"Most":1}}`, `[]`, `{} {}`, `{"raw":[],"raw":{}}`, `{"any":{"x":1,"x":2}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got config
		if err := provider.DecodeConfig(text, &got); err != nil {
			return
		}
		if len(strings.TrimSpace(string(text))) == 0 {
			return
		}
		plain := json.NewDecoder(strings.NewReader(string(text)))
		plain.DisallowUnknownFields()
		if err := plain.Decode(new(config)); err != nil {
			t.Fatalf("DecodeConfig accepts %q, and a strict decoder does not: %v", text, err)
		}
		back, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("what %q decodes to cannot be encoded: %v", text, err)
		}
		var again config
		if err := provider.DecodeConfig(back, &again); err != nil {
			t.Fatalf("%q decodes, is encoded as %q, and that does not decode: %v", text, back, err)
		}
	})
}
