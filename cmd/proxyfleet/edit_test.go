package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/lease"
)

// An edit of the documents of a fleet that runs does what it says and no more.
func TestEdits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one, two, three := declared{name: "one"}, declared{name: "two"}, declared{name: "three"}
	write := func() {
		p.write("fleet.yaml", p.configuration(), login("a"), one.String(), two.String(), three.String())
	}
	write()
	s := p.start()
	before := s.await(3, "Ready")

	t.Run("what does not shape an instance replaces none", func(t *testing.T) {
		made := p.incarnations()
		two.more = "attributes: {region: eu}\n  maxLeases: 2\n  healthCheck: {interval: 2s}"
		write()
		eventually(t, func() string {
			if two := s.list()["two"]; two.MaxLeases != 2 || two.ObservedGeneration != 2 {
				return fmt.Sprintf("the edit is not seen: %+v", two)
			}
			return ""
		})
		if got := s.list()["two"]; got.Phase != "Ready" || got.Attributes["region"] != "eu" {
			t.Errorf("after the edit it is %+v", got)
		}
		if now := p.incarnations(); len(now) != 3 || now[before["two"].UID] != made[before["two"].UID] {
			t.Errorf("instances were %v and are %v", made, now)
		}
	})

	t.Run("another port is another instance", func(t *testing.T) {
		made := p.incarnations()
		one.port = 3129
		write()
		eventually(t, func() string {
			if one := s.list()["one"]; one.Phase != "Ready" || one.Port != 3129 {
				return fmt.Sprintf("it is not replaced: %+v", one)
			}
			return ""
		})
		if listens(before["one"]) {
			t.Error("the old listener is still open")
		}
		now := p.incarnations()
		if uid := before["one"].UID; now[uid] == made[uid] || s.list()["one"].UID != uid {
			t.Errorf("instances were %v and are %v", made, now)
		}
	})

	const unknown = `no provider "hear" is configured`
	t.Run("a slip in a proxy that runs deletes nothing", func(t *testing.T) {
		two.provider = "hear"
		write()
		eventually(t, func() string {
			if list := s.cli("get", "proxies").stdout; !strings.Contains(list, unknown) {
				return "nobody tells of the slip:\n" + list
			}
			return ""
		})
		granted, err := s.client.Acquire(t.Context(), lease.Request{Selector: map[string]string{"region": "eu"}})
		if err != nil {
			t.Fatalf("the proxy is not leased any more: %v", err)
		}
		p.target.crawl(t, granted.Leases[0].Proxy.RevealURL())
		two.provider = ""
		write()
	})

	t.Run("an unknown provider fails until it is mended", func(t *testing.T) {
		four := declared{name: "four", provider: "hear"}
		p.write("fleet.yaml", p.configuration(), login("a"), one.String(), two.String(), three.String(), four.String())
		eventually(t, func() string {
			if list := s.cli("get", "proxies").stdout; !strings.Contains(list, unknown) || !strings.Contains(list, "Failed") {
				return "it does not fail:\n" + list
			}
			return ""
		})
		four.provider = ""
		p.write("fleet.yaml", p.configuration(), login("a"), one.String(), two.String(), three.String(), four.String())
		s.await(4, "Ready")
		write()
		s.await(3, "Ready")
	})

	t.Run("without a document there is no listener", func(t *testing.T) {
		p.write("fleet.yaml", p.configuration(), login("a"), one.String(), two.String())
		all := s.await(2, "Ready")
		if _, ok := all["three"]; ok || listens(before["three"]) {
			t.Errorf("three is still there: %+v", all)
		}
		if !listens(all["one"]) || !listens(all["two"]) {
			t.Error("others do not listen any more")
		}
	})
}

// An edit that looks like an accident is refused as a whole, with a word on what to do.
func TestRefusedEdits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	documents := []string{p.configuration(), login("a")}
	for n := range 8 {
		documents = append(documents, declared{name: fmt.Sprintf("p%d", n)}.String())
	}
	p.write("fleet.yaml", documents...)
	s := p.start()
	s.await(8, "Ready")
	const refused = "refused the documents: nothing is applied, and what was applied last stays in force until they are mended"
	tests := []struct {
		name      string
		documents []string
		want      string
	}{
		{"a name twice", append(documents[:10:10], documents[9]), "Proxy default/p7: is declared twice; the other one is at"},
		{"no document left", []string{"\n"}, "an emptied file deletes nothing"},
		{"half of the fleet gone", documents[:6], "--allow-delete 4"},
		{"half a document", append(documents[:9:9], documents[9][:60]), "document 10"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p.write("fleet.yaml", test.documents...)
			eventually(t, func() string {
				if said := s.log.find(refused, "problems"); !strings.Contains(said, test.want) {
					return fmt.Sprintf("the log does not say %q but %q", test.want, said)
				}
				return ""
			})
			if all := s.list(); len(all) != 8 || all["p7"].Deleting {
				t.Errorf("there are %+v", all)
			}
		})
	}

	t.Run("at a start too, unless it is meant", func(t *testing.T) {
		p.write("fleet.yaml", documents[:6]...)
		s.kill()
		r := call(t, "run", "--listen", "127.0.0.1:0", "-f", p.path("fleet.yaml"))
		if r.code != 1 || !strings.Contains(r.stderr, "--allow-delete 4") {
			t.Errorf("the start: %+v", r)
		}
		p.start("--allow-delete", "4").await(4, "Ready")
	})
}
