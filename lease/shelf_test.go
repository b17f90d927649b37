package lease

import (
	"strings"
	"testing"
	"time"
)

// TestShelf makes sure that the ID of a lease leads to it and to nothing else, for as long as it is kept.
func TestShelf(t *testing.T) {
	s, start := newShelf(), time.Now()
	p := &member{candidate: &Candidate{Key: "a"}}
	open := map[string]*held{}
	for range 3*slotsPerBlock + 5 {
		h := s.open(p)
		if open[h.id] != nil || len(h.id) != 32 {
			t.Fatalf("ID %q of a new lease", h.id)
		}
		open[h.id] = h
	}
	var ended []string
	for id, h := range open {
		if s.findOpen(id) != h {
			t.Fatalf("%q is not found", id)
		}
		other := id[:31] + map[bool]string{true: "B", false: "A"}[id[31] == 'A']
		if s.find(other) != nil || s.find(strings.ToLower(id)) != nil || s.find(id[:31]) != nil || s.find(id+"A") != nil {
			t.Fatalf("what is nearly %q finds something", id)
		}
		if len(ended) < 2*slotsPerBlock {
			s.end(h, start.Add(time.Duration(len(ended))))
			ended = append(ended, id)
		}
	}
	for i, id := range ended {
		switch found := s.find(id); {
		case found == nil || found.open != nil || found.granted != p.candidate:
			t.Fatalf("an ended lease is kept as %+v", found)
		case s.forget(start.Add(time.Duration(i-1))) != "":
			t.Fatal("it was forgotten too early")
		case s.forget(start.Add(time.Duration(i))) != id || s.find(id) != nil:
			t.Fatal("it was not forgotten")
		}
	}
	for range ended {
		s.open(p)
	}
	if s.kept() != len(open) || len(s.blocks) != 4 {
		t.Errorf("%d leases in %d blocks, want %d in 4: slots are used again", s.kept(), len(s.blocks), len(open))
	}
}

// TestShelfAfterRestart makes sure that leases go back to where they were, and new ones elsewhere.
func TestShelfAfterRestart(t *testing.T) {
	before, after := newShelf(), newShelf()
	p := &member{candidate: &Candidate{Key: "a"}}
	var ids []string
	for range 2*slotsPerBlock + 1 {
		ids = append(ids, before.open(p).id)
	}
	for _, id := range []string{ids[2*slotsPerBlock], ids[3]} {
		slot, ok := after.claim(id)
		if !ok {
			t.Fatalf("%q is no ID", id)
		}
		after.hold(slot, p)
	}
	for _, id := range []string{ids[3], "", "lease-1", strings.Repeat("a", 32)} {
		if _, ok := after.claim(id); ok {
			t.Errorf("%q was claimed", id)
		}
	}
	after.ready()
	seen := map[int]bool{after.find(ids[3]).number: true, after.find(ids[2*slotsPerBlock]).number: true}
	for range 3 * slotsPerBlock {
		h := after.open(p)
		if seen[h.number] {
			t.Fatalf("slot %d was given twice", h.number)
		}
		seen[h.number] = true
	}
	if after.find(ids[4]) != nil {
		t.Error("a lease was found that was not restored")
	}
}
