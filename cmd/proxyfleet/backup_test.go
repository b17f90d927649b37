package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A backup is a state file: whoever starts with it has the same fleet.
func TestBackup(t *testing.T) {
	p := newPlace(t)
	p.write("fleet.yaml", p.configuration(), login("a"), declared{name: "one"}.String())
	s := p.start()
	before := s.await(1, "Ready")["one"]
	if r := s.cli("backup", p.path("copy.db")); r != (result{}) {
		t.Fatalf("backup: %+v", r)
	}
	if info, err := os.Stat(p.path("copy.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v", info.Mode(), err)
	}
	if r := s.cli("backup", "--force", p.path("copy.db")); r != (result{}) {
		t.Fatalf("backup --force: %+v", r)
	}
	s.kill()
	if err := os.Rename(p.path("copy.db"), p.path("fleet.db")); err != nil {
		t.Fatal(err)
	}
	after := p.start().await(1, "Ready")["one"]
	if diff := cmp.Diff([]any{before.UID, before.InstanceID, before.Host}, []any{after.UID, after.InstanceID, after.Host}); diff != "" {
		t.Errorf("the fleet is another one (-before +after):\n%s", diff)
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) != 4 {
		t.Errorf("there are %v, %v, want the documents, the state, the leases and the instances", left, err)
	}
}
