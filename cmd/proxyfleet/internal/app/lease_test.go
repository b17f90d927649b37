package app

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeaseAcquire makes sure that what is asked for on the command line reaches the fleet, and how several leases are printed.
func TestLeaseAcquire(t *testing.T) {
	const one = `{"leaseID":"L1","proxy":{"url":"http://u:p@192.0.2.1:3128","host":"192.0.2.1","port":3128,"name":"a","namespace":"default"},"ttlSeconds":60`
	two := strings.NewReplacer("L1", "L2", "192.0.2.1", "192.0.2.2", `"a"`, `"b"`).Replace(one) + "}"
	tests := []struct {
		name           string
		args           []string
		asked          map[string]any
		answer         string
		stdout, stderr []string // lines, or what they begin with
	}{
		{"one", []string{"--target", "shop"}, map[string]any{"target": "shop", "count": 1.0},
			one + "}", []string{"http://u:p@192.0.2.1:3128"}, []string{"lease L1 of default/a until"}},
		{"several", []string{"--count", "2", "--wait", "30s", "--session", "alice"},
			map[string]any{"count": 2.0, "waitSeconds": 30.0, "session": "alice"},
			one + `,"moved":true,"leases":[` + one + "}," + two + "]}",
			[]string{"http://u:p@192.0.2.1:3128", "http://u:p@192.0.2.2:3128"},
			[]string{"the session had another proxy before", "lease L1 of default/a until", "lease L2 of default/b until"}},
		{"several as JSON", []string{"--count", "2", "-o", "json"}, map[string]any{"count": 2.0},
			one + `,"leases":[` + one + "}," + two + "]}", []string{"["}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var asked map[string]any
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
					t.Error(err)
				}
				delete(asked, "requestID")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(test.answer))
			}))
			defer server.Close()
			cmd := newLease()
			var stdout, stderr bytes.Buffer
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			cmd.SetArgs(append([]string{"acquire", "--server", server.URL}, test.args...))
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.asked, asked); d != "" {
				t.Errorf("asked (-want +got):\n%s", d)
			}
			begins(t, stdout.String(), test.stdout)
			begins(t, stderr.String(), test.stderr)
		})
	}
}

// begins checks what the lines of a text begin with. JSON counts as one line.
func begins(t *testing.T, text string, want []string) {
	t.Helper()
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" || strings.HasPrefix(text, "[") && line != "[" })
	if len(lines) != len(want) {
		t.Errorf("%q, want %q", lines, want)
		return
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("%q, want %q", line, want[i])
		}
	}
}
