package local

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

func basic(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }

func TestGate(t *testing.T) {
	fresh, err := newGateFor(provider.Credentials{Username: secret.New("us:er"), Password: secret.New("pä ss")}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var kept login
	text, err := json.Marshal(fresh.login)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	right := basic("us:er:pä ss")
	for _, c := range []struct {
		name, header string
		want         bool
	}{
		{"none", "", false},
		{"right", right, true},
		{"scheme in lower case", "basic" + right[len("Basic"):], true},
		{"wrong password", basic("us:er:pass"), false},
		{"wrong user", basic("user:pä ss"), false},
		{"longer", basic("us:er:pä sss"), false},
		{"empty", basic(""), false},
		{"another scheme", "Bearer " + right[len("Basic "):], false},
		{"not encoded", "Basic us:er:pä ss", false},
		{"scheme alone", "Basic", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fresh.admits(t.Context(), c.header); got != c.want {
				t.Errorf("the gate that made the login admits: %v, want %v", got, c.want)
			}
			read := newGate(&kept)
			for _, when := range []string{"the first", "the second"} {
				if got := read.admits(t.Context(), c.header); got != c.want {
					t.Errorf("a gate that read the login admits %s time: %v, want %v", when, got, c.want)
				}
			}
			if read.admits(t.Context(), right); read.admits(t.Context(), c.header) != c.want {
				t.Errorf("a gate that knows the right credentials admits: %v, want %v", !c.want, c.want)
			}
		})
	}
}

// Once the right credentials are known, neither they nor wrong ones cost a slow hash.
func TestGatePaysOnce(t *testing.T) {
	made, err := newGateFor(provider.Credentials{Username: secret.New("user"), Password: secret.New("pass")}, 1)
	if err != nil {
		t.Fatal(err)
	}
	kept := *made.login
	read := newGate(&kept)
	if !read.admits(t.Context(), basic("user:pass")) {
		t.Fatal("the right credentials were not admitted")
	}
	for name, g := range map[string]*gate{"made": made, "read": read} {
		g.login.Hash = nil // nothing can match a hash any more
		if !g.admits(t.Context(), basic("user:pass")) || g.admits(t.Context(), basic("user:past")) {
			t.Errorf("the gate that was %s went by the slow hash although it knew the credentials", name)
		}
	}
}

// Requests that wait for their turn end by their context.
func TestGateWaitsByContext(t *testing.T) {
	g := newGate(&login{Iterations: 1, Hash: []byte("x")})
	g.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g.admits(ctx, basic("user:pass")) {
		t.Error("a request was admitted whose credentials nobody looked at")
	}
}

func TestGateWithoutLogin(t *testing.T) {
	g, err := newGateFor(provider.Credentials{}, 1)
	if err != nil || g.login != nil || !g.admits(t.Context(), "") {
		t.Errorf("a proxy without credentials has the login %v and admits nobody: %v", g.login, err)
	}
}

func TestSalted(t *testing.T) {
	c := provider.Credentials{Username: secret.New("user"), Password: secret.New("pass")}
	one, err1 := newGateFor(c, 1)
	two, err2 := newGateFor(c, 1)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if string(one.login.Hash) == string(two.login.Hash) {
		t.Error("the same credentials have the same hash twice")
	}
}
