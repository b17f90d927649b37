package walk

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet"
	"github.com/proxyfleet/fleet/provider"
)

// guilty are machines, and worlds, that a walk must find flaws in: a judge who acquits them judges nothing.
var guilty = map[string]setting{
	"by the letter, fresh reads, type edits":  base(func(s *setting) { s.stale, s.edits, s.machine = 0, "type", byLetter }),
	"by the letter, fresh reads, place edits": base(func(s *setting) { s.stale, s.edits, s.machine = 0, "place", byLetter }),
	"by the letter, stale reads, type edits":  base(func(s *setting) { s.edits, s.machine = "type", byLetter }),
	"status writes without a version":         base(func(s *setting) { s.machine = unversioned }),
	// What no contract can prevent, and the sweeper is for: a create that takes effect after its time was over.
	"delays without a bound": base(func(s *setting) { s.nature, s.leaders, s.late = rough, 2, 80 }),
}

func unversioned(h *history, c *cache, providers map[string]provider.Provider) pass {
	c.force = true
	return real(h, c, providers)
}

// enough histories to find any flaw that this package names, several times over.
const enough = 3000

func TestGuilty(t *testing.T) {
	hasher := fleet.NewHasher(fleetID)
	for name, s := range guilty {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(enough) {
				if one := run(t, seed, s, hasher, nil); one.flaws() > 0 {
					t.Logf("seed %d: %v", seed, one)
					return
				}
			}
			t.Errorf("%d histories without a flaw", enough)
		})
	}
}

// mutants are the machine of this module with one protection taken away. Each stands for a sentence in its comments.
var mutants = []struct {
	name     string
	file     string
	old, new string
	kind     string // of history that shows why the protection is there
	places   int    // where old stands; 0: one
}{
	{"no finalizer", "reconciler.go", "case !p.p.Finalizer:", "case false:", "calm", 0},
	{"no intent before Create", "managed.go", "		p.lacks(ReasonProvisioning, \"\")\n	}\n	return p.commit(ctx)",
		"		p.lacks(ReasonProvisioning, \"\")\n	}\n	return nil", "calm", 0},
	{"Create without a deadline", "managed.go", "context.WithDeadline(ctx, planned.Add(delays(w.provider).Call))",
		"context.WithDeadline(ctx, planned.Add(time.Hour))", "rough, two leaders", 0},
	{"one token for all attempts", "managed.go", "digest([]string{p.p.UID, p.p.Version})", "digest([]string{p.p.UID, w.hash})", "rough", 0},
	{"NotFound believed at once", "managed.go", "	return !p.now.Before(p.s.Instance.Planned.Std().Add(delays(prov).Settle))",
		"	return true", "rough", 0},
	{"an ID given up unsettled", "managed.go", "	if !settled {\n		return Result{After: p.Intervals.ProvisioningPoll}, nil\n	}",
		"", "rough, two leaders", 0},
	{"the provider looked up by the spec", "managed.go", "prov := p.Providers[last.Provider]", "prov := p.Providers[p.p.Spec.Provider]", "calm", 0},
	{"the mark not compared", "managed.go", "!p.Hasher.Matches(got.Marks.Hash,", "!p.Hasher.Matches(w.hash,", "calm", 0},
	{"unresolved references ignored", "managed.go", "		return p.unresolved(err)", "		in = proxy.Inputs{}", "calm", 0},
	{"a typo replaces", "replace.go", "	if w.err != nil {", "	if false {", "calm", 0},
	{"a verdict inherited", "condition.go", "	p.s.RemoveCondition(proxy.Healthy)\n", "", "calm", 2},
	{"no write before Delete", "delete.go", "	if err := p.commit(ctx); err != nil {", "	if err := p.flush(ctx); err != nil || p.p == nil {", "quick, two leaders", 0},
	{"Delete without an incarnation", "delete.go", "prov.Delete(call, p.ref(incarnation))", "prov.Delete(call, p.ref(\"\"))", "quick, two leaders", 0},
	{"replacements without pace", "replace.go", "out < max(1, all/5)", "true", "paced", 0},
}

var flawed = regexp.MustCompile(`seed \d+: map\[`)

// TestMutants builds the module once for each protection, with the protection taken away, and has the same walk that
// acquits the machine find the mutant guilty.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the module once for each mutant")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := mutate(t, filepath.Join(root, m.file), m.old, m.new, max(m.places, 1))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-run", "^TestInnocent$/^"+escaped(m.kind)+"$", ".")
			cmd.Env = append(os.Environ(), "WALK=3000")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("no history shows what the protection is for")
			}
			found := flawed.Find(out)
			if found == nil {
				t.Fatalf("the walk did not run: %v\n%s", err, out)
			}
			line, _, _ := bytes.Cut(out[bytes.Index(out, found):], []byte("\n"))
			t.Logf("%s", line)
		})
	}
}

// mutate writes a file with a change at so many places, and an overlay that puts it in the place of the original.
func mutate(t *testing.T, file, old, new string, places int) (overlay string) {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), old); n != places {
		t.Fatalf("%s holds %q %d times, not %d: change the mutant with the code", filepath.Base(file), old, n, places)
	}
	dir := t.TempDir()
	mutant := filepath.Join(dir, "mutant.go")
	overlay = filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutant: []byte(strings.ReplaceAll(string(source), old, new)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// escaped is the name of a subtest as -run wants it.
func escaped(name string) string {
	return regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_"))
}
