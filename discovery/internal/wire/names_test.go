package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

func TestNames(t *testing.T) {
	tests := map[string][]string{
		`{}`: nil,
		` { "a" : 1 , "b":"x,y" , "a":[{"c":1}, "d"] }`: {"a", "b", "a"},
		`{"a":{"b":{"c":"d"},"e":[1,2]},"f":true}`:      {"a", "f"},
		`{"\u0061\"b\\":"\\\"","":null}`:                {`a"b\`, ""},
		`{"a":"{\"b\":1}","c":"]"}`:                     {"a", "c"},
	}
	for text, want := range tests {
		if d := cmp.Diff(want, wire.Names([]byte(text)), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

// FuzzNames holds the names against those that package encoding/json reads.
func FuzzNames(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"c"]},"\u0061":"\"","d":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		var want []string
		dec := json.NewDecoder(bytes.NewReader(text))
		_, _ = dec.Token() // the brace
		for dec.More() {
			name, _ := dec.Token()
			want = append(want, fmt.Sprint(name))
			var value json.RawMessage
			_ = dec.Decode(&value)
		}
		if d := cmp.Diff(want, wire.Names(text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	})
}
